"""All classes, and the shapes that are no class."""

from __future__ import annotations

from .animals import ANIMALS
from .distractors import DISTRACTORS
from .gardens import BUILDINGS, PLANTS
from .shape import Shape
from .swimmers import AIR_AND_WATER
from .things import THINGS
from .vehicles import VEHICLES

GROUPS = (ANIMALS, AIR_AND_WATER, VEHICLES, THINGS, PLANTS, BUILDINGS)
# One of each group in turn: a world of few classes has some of every kind.
_ROWS = [[group[k] for group in GROUPS if k < len(group)] for k in range(max(map(len, GROUPS)))]
SHAPES: dict[str, Shape] = {shape.name: shape for row in _ROWS for shape in row}

__all__ = ["DISTRACTORS", "SHAPES"]
