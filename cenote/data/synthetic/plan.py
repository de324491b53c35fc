"""What is in image number i, before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from .captions import caption
from .catalogue import SHAPES
from .dice import Dice
from .family import SUBCLASSES
from .paint import COLOURS, TEXTURES, VARIANTS
from .plate import DENSITIES
from .settings import SHARED, Settings

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
