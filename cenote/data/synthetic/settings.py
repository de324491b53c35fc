"""Settings and presets of a world, and the plan of image number i."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...options import suggest
from ..checks import check
from .domains import DOMAINS
from .paint import COLOURS, STRETCHES, TEXTURES
from .rng import PortableRng
from .scenes import DENSITIES, SCENES
from .shapes import SHAPES, SUBCLASSES

SHARED_CLASSES = 4  # classes of a collage that every image may show, as distraction
SIZES = ("small", "medium", "large")
COUNTS = ("1", "2", "3", "4")
# 70, 10 and 20 % of the images; of subclasses, two, one and two.
SPLIT_CYCLE = ["train", "train", "test", "train", "val", "train", "train", "test", "train", "train"]
SPLIT_OF_SUBCLASS = ("train", "train", "val", "test", "test")
LIMITS = {
    **dict.fromkeys(("bias", "test_bias", "occlusion"), (0, 1)),
    **{"images": (1, 10**9), "size": (32, 1024), "distractors": (0, 20)},
}
NUMBERS = {"2": "two", "3": "three", "4": "four"}
SURROUNDINGS = {"sparse": ", with little around", "medium": "", "dense": ", with much around"}
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
        for key, (low, high) in LIMITS.items():
            value = getattr(self, key)
            check(low <= value <= high, f"{key} must be {low} to {high}, got {value}")
        check(self.size % 2 == 0, f"size must be even, got {self.size}")
        check(self.fine or not self.unseen, "unseen=True requires fine=True")
        if self.collage:
            check(self.unseen, "collage=True requires unseen=True")
            check(self.size >= 64, f"a collage has at least 64 pixels, got size {self.size}")
            enough = len(self.classes) > SHARED_CLASSES
            check(enough, f"a collage needs more than {SHARED_CLASSES} classes")


PRESETS: dict[str, Mapping[str, Any]] = {
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


def preset_settings(preset: str) -> Mapping[str, Any]:
    """Return the settings of a preset: `small` or `world/small`."""
    name = preset.removeprefix("world/")
    names = ", ".join(f"world/{name}" for name in PRESETS)
    check(name in PRESETS, f"no world '{preset}'{suggest(name, PRESETS)}: {names}")
    return PRESETS[name]


def _select(key: str, value: Any, available: list[str]) -> tuple[str, ...]:
    """Return names as they are, or the first n of a number n."""
    names = [str(name) for name in ([value] if isinstance(value, str | int) else value)]
    if len(names) == 1 and names[0].isdigit():
        count = int(names[0])
        check(1 <= count <= len(available), f"{key} must be 1 to {len(available)}, got {count}")
        return tuple(available[:count])
    for name in names:
        hint = suggest(name, available)
        check(name in available, f"no '{name}' in {key}{hint}: {', '.join(available)}")
    different = 0 < len(names) == len({*names})
    check(different, f"{key} must be one or more different names, got {', '.join(names)}")
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
        """Caption like "two small slim red striped crested birds in a meadow".

        The usual values are omitted: medium, regular, plain.
        """
        values = (self.size, self.shape, self.colour, self.texture, self.subclass)
        words = [value for value in values if value not in ("medium", "regular", "plain")]
        shape = SHAPES[self.family]
        number, noun = NUMBERS.get(self.count), shape.plural
        if number is None:
            number, noun = "an" if words[0][0] in "aeiou" else "a", shape.name
        place = SCENES[self.scene][0] + SURROUNDINGS[self.density]
        return f"{number} {' '.join([*words, noun])} {place}"

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
    names = settings.classes
    if settings.collage:
        names = names[:-SHARED_CLASSES]
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
    bias = {"test": settings.test_bias}.get(split, settings.bias)
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


@lru_cache(64)
def home_scenes(settings: WorldSettings) -> list[str]:
    """Return the home scene of each label; every scene is home to equally many labels."""
    order = PortableRng(settings.seed, "homes").shuffled(range(len(labels(settings))))
    scenes = PortableRng(settings.seed, "scenes").shuffled(settings.scenes)
    return [scenes[k % len(scenes)] for k in order]


@lru_cache(1024)
def _block_order(seed: int, block: int, count: int) -> list[int]:
    """Return the order of labels in a block, which contains each label once."""
    return PortableRng(seed, "block", block).shuffled(range(count))


@lru_cache(1024)
def _subclass_splits(seed: int, family: str) -> tuple[tuple[int, str], ...]:
    order = PortableRng(seed, "subclasses", family).shuffled(range(SUBCLASSES))
    return tuple(zip(order, SPLIT_OF_SUBCLASS, strict=True))
