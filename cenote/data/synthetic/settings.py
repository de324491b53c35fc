"""What a world is made of, and the presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from ...options import suggest
from .background import DENSITIES
from .classes import SHAPES, caption
from .domains import DOMAINS
from .paint import COLOURS, TEXTURES, VARIANTS
from .rng import Dice
from .scenes import SCENES
from .shapes import SUBCLASSES

SHARED = 4  # classes of a collage that every image may show: the nuisance of 002


@dataclass(frozen=True)
class Settings:
    images: int = 4000
    size: int = 128  # pixels of a side
    seed: int = 0
    classes: tuple[str, ...] = tuple(SHAPES)  # a number takes the first ones
    fine: bool = False  # subclasses are the labels: bird/crested
    unseen: bool = False  # with fine: the test split has subclasses that the train split has not
    collage: bool = False  # with unseen: one tile of the class among three of shared classes
    scenes: tuple[str, ...] = tuple(SCENES)  # a number takes the first ones
    bias: float = (
        0.5  # train and val: P(the scene is the label's home) = bias + (1 - bias) / scenes
    )
    test_bias: float = 0.0  # the same in the test split
    domains: tuple[str, ...] = ("photo",)
    sizes: tuple[float, ...] = (1.0, 1.0, 1.0)  # weights of small, medium and large
    counts: tuple[float, ...] = (5.0, 2.0, 1.0, 1.0)  # weights of one to four objects
    distractors: int = 2  # at most so many objects that are no class
    occlusion: float = 0.0  # the share of objects with something in front of them

    def __post_init__(self) -> None:
        for key, known in (("classes", SHAPES), ("scenes", SCENES), ("domains", DOMAINS)):
            object.__setattr__(self, key, _chosen(key, getattr(self, key), list(known)))
        for key in ("sizes", "counts"):
            object.__setattr__(self, key, tuple(float(value) for value in getattr(self, key)))
        _check(self.images >= 1, f"images must be at least 1, got {self.images}")
        least = 64 if self.collage else 32
        _check(least <= self.size <= 1024, f"size must be {least} to 1024 pixels, got {self.size}")
        _check(self.size % 2 == 0, f"size must be even, got {self.size}")
        for key in ("bias", "test_bias", "occlusion"):
            value = getattr(self, key)
            _check(0 <= value <= 1, f"{key} must be between 0 and 1, got {value}")
        _check(0 <= self.distractors <= 20, f"distractors must be 0 to 20, got {self.distractors}")
        for key, n in (("sizes", 3), ("counts", 4)):
            weights = getattr(self, key)
            good = len(weights) == n and all(0 <= w < 1e9 for w in weights) and sum(weights) > 0
            _check(good, f"{key} must be {n} weights that are not all zero, got {weights}")
        _check(not self.unseen or self.fine, "unseen needs fine: it keeps subclasses apart")
        drawn_before = "in one that was drawn before, they do: draw another"
        _check(
            not self.collage or self.unseen,
            f"collage needs unseen: its splits share no subclass ({drawn_before})",
        )
        _check(
            not self.collage or len(self.classes) > SHARED,
            f"a collage needs more than {SHARED} classes",
        )

    def as_json(self) -> dict[str, Any]:
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "images": 96,
        "size": 64,
        "classes": 6,
        "scenes": 4,
        "bias": 0.0,
        "distractors": 1,
        "sizes": (0, 1, 2),
    },
    "small": {"images": 4000, "size": 128},
    "hard": {
        "images": 8000,
        "classes": 8,
        "fine": True,
        "bias": 0.7,
        "sizes": (2, 3, 3),
        "distractors": 4,
        "occlusion": 0.25,
    },
    "retrieval": {"images": 8000, "classes": 20, "fine": True, "unseen": True, "distractors": 4},
    "collage": {
        "images": 6000,
        "classes": 20,
        "fine": True,
        "unseen": True,
        "collage": True,
        "bias": 0.0,
        "counts": (1, 0, 0, 0),
        "sizes": (0, 1, 2),
    },
    "domains": {"images": 6000, "domains": tuple(DOMAINS), "bias": 0.0},
}


def settings_of(preset: str | None, **changes: Any) -> Settings:
    """A preset (`small` or `world/small`) with some settings changed."""
    name = (preset or "").removeprefix("world/")
    if preset is not None and name not in PRESETS:
        raise ValueError(
            f"no world '{preset}'{suggest(name, list(PRESETS))}: world/{', world/'.join(PRESETS)}"
        )
    known = {field.name for field in fields(Settings)}
    for key in changes:
        if key not in known:
            raise ValueError(
                f"a world has no setting '{key}'{suggest(key, sorted(known))}: {', '.join(sorted(known))}"
            )
    return Settings(**{**PRESETS.get(name, {}), **changes})


def _chosen(key: str, given: Any, known: list[str]) -> tuple[str, ...]:
    """Names as they are, or the first so many."""
    names = [str(name) for name in ([given] if isinstance(given, str | int) else given)]
    if len(names) == 1 and names[0].isdigit():
        count = int(names[0])
        _check(1 <= count <= len(known), f"{key} must be 1 to {len(known)}, got {count}")
        return tuple(known[:count])
    for name in names:
        _check(name in known, f"no {_one(key)} '{name}'{suggest(name, known)}: {', '.join(known)}")
    _check(bool(names), f"{key}: name at least one of {', '.join(known)}")
    _check(len({*names}) == len(names), f"{key}: each only once, got {', '.join(names)}")
    return tuple(names)


def _one(key: str) -> str:
    return "class" if key == "classes" else key.removesuffix("s")


def _check(good: bool, sentence: str) -> None:
    if not good:
        raise ValueError(sentence)


SIZES = ("small", "medium", "large")
COUNTS = ("1", "2", "3", "4")
TURN = (
    "train",
    "train",
    "test",
    "train",
    "val",
    "train",
    "train",
    "test",
    "train",
    "train",
)  # 70, 10, 20 %
BY_SUBCLASS = (
    "train",
    "train",
    "val",
    "test",
    "test",
)  # as 002 splits the five sub-classes of CIFAR-100
CHOICES = {
    "colour": tuple(COLOURS),
    "size": SIZES,
    "count": COUNTS,
    "texture": TEXTURES,
    "shape": tuple(VARIANTS),
    "density": tuple(DENSITIES),
}


@dataclass(frozen=True)
class Plan:
    family: str
    subclass: str
    label: str
    split: str
    domain: str
    scene: str
    colour: str
    size: str
    count: str
    texture: str
    shape: str
    density: str

    @property
    def attributes(self) -> dict[str, str]:
        names = ("family", "subclass", "scene", *CHOICES)
        return {name: getattr(self, name) for name in names}

    @property
    def caption(self) -> str:
        return caption(self.family, self.subclass, self.attributes)

    def changed(self, changes: dict[str, str]) -> Plan:
        """The same with other attributes."""
        from .scenes import SCENES

        choices = {
            **CHOICES,
            "scene": tuple(SCENES),
            "subclass": tuple(SHAPES[self.family].subclasses),
        }
        for key, value in changes.items():
            if key not in choices:
                raise ValueError(f"'{key}' cannot be changed: {', '.join(choices)}")
            if value not in choices[key]:
                raise ValueError(f"no {key} '{value}': {', '.join(choices[key])}")
        return replace(self, **changes)


def labels(settings: Settings) -> list[str]:
    """All labels in order. The last classes of a collage are the shared ones and no labels."""
    names = settings.classes[: -SHARED if settings.collage else None]
    if settings.fine:
        return [f"{name}/{subclass}" for name in names for subclass in SHAPES[name].subclasses]
    return list(names)


def make_plan(settings: Settings, i: int) -> Plan:
    """A function of the settings and i alone, whatever `images` is: a world can grow."""
    names = labels(settings)
    block, place = divmod(i, len(names))
    number = _order(settings.seed, block, len(names))[place]
    label, dice = names[number], Dice(settings.seed, i, "plan")
    family, _, subclass = label.partition("/")
    split = TURN[block % len(TURN)]
    subclasses = SHAPES[family].subclasses
    if settings.unseen:
        split = dict(_shares(settings.seed, family))[subclasses.index(subclass)]
    subclass = subclass or dice.pick(subclasses)
    bias = settings.test_bias if split == "test" else settings.bias
    home = home_scenes(settings)[number]
    scene = home if dice.random() < bias else dice.pick(settings.scenes)
    chosen = {key: dice.pick(values) for key, values in CHOICES.items()}
    chosen["size"] = SIZES[dice.weighted(settings.sizes)]
    chosen["count"] = COUNTS[dice.weighted(settings.counts)]
    return Plan(family, subclass, label, split, dice.pick(settings.domains), scene, **chosen)


def subclasses_in(settings: Settings, family: str, split: str) -> list[str]:
    """Of a world whose splits share none."""
    return [
        SHAPES[family].subclasses[k]
        for k, share in _shares(settings.seed, family)
        if share == split
    ]


def home_scenes(settings: Settings) -> list[str]:
    """For each label the scene it is at home in; the scenes share the labels evenly."""
    return _homes(settings.seed, settings.scenes, len(labels(settings)))


@lru_cache(64)
def _homes(seed: int, scenes: tuple[str, ...], count: int) -> list[str]:
    order = Dice(seed, "homes").shuffled(range(count))
    places = Dice(seed, "scenes").shuffled(scenes)
    return [places[k % len(places)] for k in order]


@lru_cache(1024)
def _order(seed: int, block: int, count: int) -> list[int]:
    """Each label once in every block."""
    return Dice(seed, "block", block).shuffled(range(count))


@lru_cache(1024)
def _shares(seed: int, family: str) -> tuple[tuple[int, str], ...]:
    """Each subclass with the split it belongs to."""
    return tuple(
        zip(Dice(seed, "subclasses", family).shuffled(range(SUBCLASSES)), BY_SUBCLASS, strict=True)
    )
