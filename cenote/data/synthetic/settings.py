"""Settings and presets of a world, and the plan of image number i."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from ...options import suggest
from ..checks import check
from .canvas import DENSITIES
from .classes import SHAPES, caption
from .domains import DOMAINS
from .paint import COLOURS, STRETCHES, TEXTURES
from .rng import PortableRng
from .scenes import SCENES
from .shapes import SUBCLASSES

SHARED_CLASSES = 4  # classes of a collage that every image may show, as distraction
SIZES = ("small", "medium", "large")
COUNTS = ("1", "2", "3", "4")
# 70, 10 and 20 % of the images; of subclasses, two, one and two.
SPLIT_CYCLE = ["train", "train", "test", "train", "val", "train", "train", "test", "train", "train"]
SPLIT_OF_SUBCLASS = ("train", "train", "val", "test", "test")
ATTRIBUTES = {
    "colour": tuple(COLOURS),
    "size": SIZES,
    "count": COUNTS,
    "texture": TEXTURES,
    "shape": tuple(STRETCHES),
    "density": tuple(DENSITIES),
}


@dataclass(frozen=True)
class WorldSettings:
    """What a world contains; all its images are functions of the settings."""

    images: int = 4000
    size: int = 128  # pixels of a side
    seed: int = 0
    classes: tuple[str, ...] = tuple(SHAPES)  # a number takes the first ones
    fine: bool = False  # the labels are subclasses: bird/crested
    unseen: bool = False  # with fine: test has other subclasses than train
    collage: bool = False  # with unseen: one tile of the class among three of shared classes
    scenes: tuple[str, ...] = tuple(SCENES)  # a number takes the first ones
    # Train and val: P(the scene is the label's home scene) = bias + (1 - bias) / scenes.
    bias: float = 0.5
    test_bias: float = 0.0  # the same for test
    domains: tuple[str, ...] = ("photo",)
    sizes: tuple[float, ...] = (1.0, 1.0, 1.0)  # weights of small, medium and large
    counts: tuple[float, ...] = (5.0, 2.0, 1.0, 1.0)  # weights of one to four objects
    distractors: int = 2  # maximum number of objects without a class
    occlusion: float = 0.0  # share of objects with something in front of them

    def __post_init__(self) -> None:
        for key, names in (("classes", SHAPES), ("scenes", SCENES), ("domains", DOMAINS)):
            object.__setattr__(self, key, _select(key, getattr(self, key), list(names)))
        for key, n in (("sizes", 3), ("counts", 4)):
            weights = tuple(float(value) for value in getattr(self, key))
            object.__setattr__(self, key, weights)
            valid = len(weights) == n and all(0 <= w < 1e9 for w in weights) and sum(weights) > 0
            check(valid, f"{key} must be {n} weights that are not all zero, got {weights}")
        for key in ("bias", "test_bias", "occlusion"):
            value = getattr(self, key)
            check(0 <= value <= 1, f"{key} must be between 0 and 1, got {value}")
        check(self.images >= 1, f"images must be at least 1, got {self.images}")
        low = 64 if self.collage else 32
        check(low <= self.size <= 1024, f"size must be {low} to 1024 pixels, got {self.size}")
        check(self.size % 2 == 0, f"size must be even, got {self.size}")
        check(0 <= self.distractors <= 20, f"distractors must be 0 to 20, got {self.distractors}")
        check(self.fine or not self.unseen, "unseen=True requires fine=True")
        check(
            self.unseen or not self.collage,
            "collage=True requires unseen=True (a world of an older version: generate it again)",
        )
        check(
            not self.collage or len(self.classes) > SHARED_CLASSES,
            f"a collage needs more than {SHARED_CLASSES} classes",
        )

    def as_json(self) -> dict[str, Any]:
        """Return the settings with lists in place of tuples."""
        items = asdict(self).items()
        return {key: list(v) if isinstance(v, tuple) else v for key, v in items}


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(images=96, size=64, classes=6, scenes=4, bias=0.0, distractors=1, sizes=(0, 1, 2)),
    "small": dict(images=4000, size=128),
    "hard": dict(
        images=8000, classes=8, fine=True, bias=0.7, sizes=(2, 3, 3), distractors=4, occlusion=0.25
    ),
    "retrieval": dict(images=8000, classes=20, fine=True, unseen=True, distractors=4),
    "collage": dict(
        **dict(images=6000, classes=20, fine=True, unseen=True, collage=True),
        **dict(bias=0.0, counts=(1, 0, 0, 0), sizes=(0, 1, 2)),
    ),
    "domains": dict(images=6000, domains=tuple(DOMAINS), bias=0.0),
}


def make_settings(preset: str | None, **changes: Any) -> WorldSettings:
    """Return a preset (`small` or `world/small`) with some settings changed."""
    name = (preset or "").removeprefix("world/")
    if preset is not None:
        presets = ", ".join(f"world/{preset}" for preset in PRESETS)
        check(name in PRESETS, f"no world '{preset}'{suggest(name, PRESETS)}: {presets}")
    names = sorted(field.name for field in fields(WorldSettings))
    for key in changes:
        message = f"a world has no setting '{key}'{suggest(key, names)}: {', '.join(names)}"
        check(key in names, message)
    return WorldSettings(**{**PRESETS.get(name, {}), **changes})


def _select(key: str, value: Any, available: list[str]) -> tuple[str, ...]:
    """Return names as they are, or the first n of a number n."""
    names = [str(name) for name in ([value] if isinstance(value, str | int) else value)]
    if len(names) == 1 and names[0].isdigit():
        count = int(names[0])
        check(1 <= count <= len(available), f"{key} must be 1 to {len(available)}, got {count}")
        return tuple(available[:count])
    singular = "class" if key == "classes" else key.removesuffix("s")
    for name in names:
        hint = suggest(name, available)
        check(name in available, f"no {singular} '{name}'{hint}: {', '.join(available)}")
    check(bool(names), f"{key}: give at least one of {', '.join(available)}")
    check(len({*names}) == len(names), f"{key}: give each only once, got {', '.join(names)}")
    return tuple(names)


@dataclass(frozen=True)
class ImagePlan:
    """The contents of one image."""

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
        names = ("family", "subclass", "scene", *ATTRIBUTES)
        return {name: getattr(self, name) for name in names}

    @property
    def caption(self) -> str:
        return caption(self.family, self.subclass, self.attributes)

    def changed(self, changes: dict[str, str]) -> ImagePlan:
        """Return the same plan with other attributes."""
        subclasses = tuple(SHAPES[self.family].subclasses)
        choices = {**ATTRIBUTES, "scene": tuple(SCENES), "subclass": subclasses}
        for key, value in changes.items():
            check(key in choices, f"'{key}' cannot be changed: {', '.join(choices)}")
            check(value in choices[key], f"no {key} '{value}': {', '.join(choices[key])}")
        return replace(self, **changes)


def labels(settings: WorldSettings) -> list[str]:
    """Return all labels in order, without the shared classes of a collage, which come last."""
    names = settings.classes[: -SHARED_CLASSES if settings.collage else None]
    if settings.fine:
        return [f"{name}/{subclass}" for name in names for subclass in SHAPES[name].subclasses]
    return list(names)


def make_plan(settings: WorldSettings, i: int) -> ImagePlan:
    """Plan image i; the plan does not depend on `images`, so that a world can grow."""
    names = labels(settings)
    block, position = divmod(i, len(names))
    number = _block_order(settings.seed, block, len(names))[position]
    label, rng = names[number], PortableRng(settings.seed, i, "plan")
    family, _, subclass = label.partition("/")
    split = SPLIT_CYCLE[block % len(SPLIT_CYCLE)]
    subclasses = SHAPES[family].subclasses
    if settings.unseen:
        split = dict(_subclass_splits(settings.seed, family))[subclasses.index(subclass)]
    subclass = subclass or rng.choice(subclasses)
    bias = settings.test_bias if split == "test" else settings.bias
    home = home_scenes(settings)[number]
    scene = home if rng.random() < bias else rng.choice(settings.scenes)
    values = {key: rng.choice(choices) for key, choices in ATTRIBUTES.items()}
    values["size"] = SIZES[rng.weighted_index(settings.sizes)]
    values["count"] = COUNTS[rng.weighted_index(settings.counts)]
    return ImagePlan(family, subclass, label, split, rng.choice(settings.domains), scene, **values)


def subclasses_in(settings: WorldSettings, family: str, split: str) -> list[str]:
    """Return the subclasses of a split in a world whose splits have none in common."""
    splits = _subclass_splits(settings.seed, family)
    return [SHAPES[family].subclasses[k] for k, name in splits if name == split]


def home_scenes(settings: WorldSettings) -> list[str]:
    """Return the home scene of each label; every scene is home to equally many labels."""
    return _home_scenes(settings.seed, settings.scenes, len(labels(settings)))


@lru_cache(64)
def _home_scenes(seed: int, scenes: tuple[str, ...], count: int) -> list[str]:
    order = PortableRng(seed, "homes").shuffled(range(count))
    shuffled = PortableRng(seed, "scenes").shuffled(scenes)
    return [shuffled[k % len(shuffled)] for k in order]


@lru_cache(1024)
def _block_order(seed: int, block: int, count: int) -> list[int]:
    """Return the order of labels in a block, which contains each label once."""
    return PortableRng(seed, "block", block).shuffled(range(count))


@lru_cache(1024)
def _subclass_splits(seed: int, family: str) -> tuple[tuple[int, str], ...]:
    """Return each subclass with its split."""
    order = PortableRng(seed, "subclasses", family).shuffled(range(SUBCLASSES))
    return tuple(zip(order, SPLIT_OF_SUBCLASS, strict=True))
