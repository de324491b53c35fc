"""What a world is made of, and the presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ...options import suggest
from .catalogue import SHAPES
from .domains import DOMAINS
from .scenes import SCENES

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
