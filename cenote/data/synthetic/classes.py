"""All classes, the distractors, and captions."""

from __future__ import annotations

from collections.abc import Mapping

from .animals import AIR_AND_WATER, ANIMALS
from .objects import THINGS, VEHICLES
from .plants_and_buildings import BUILDINGS, PLANTS
from .scenes import SCENES
from .shapes import (
    Nested,
    ObjectShape,
    blob,
    box,
    eye,
    flatten,
    leaf,
    line,
    oval,
    poly,
    star,
    wheel,
    window,
)

GROUPS = (ANIMALS, AIR_AND_WATER, VEHICLES, THINGS, PLANTS, BUILDINGS)
# One of each group in turn: a world of few classes has some of every kind.
_ROWS = [[group[k] for group in GROUPS if k < len(group)] for k in range(max(map(len, GROUPS)))]
SHAPES: dict[str, ObjectShape] = {shape.name: shape for row in _ROWS for shape in row}
NUMBERS = {"2": "two", "3": "three", "4": "four"}
SURROUNDINGS = {"sparse": ", with little around", "medium": "", "dense": ", with much around"}


def _distractor(name: str, *polygons: Nested) -> ObjectShape:
    return ObjectShape(name, flatten(polygons))


# Objects without a class, with the details, colors and textures of the classes.
DISTRACTORS = [
    _distractor("ball", oval("main", 0, 0, 90), oval("light", -34, -36, 22, 16, -40)),
    _distractor(
        "crate",
        box("main", -80, -80, 80, 80),
        box("dark", -80, -80, 80, -60),
        box("dark", -80, 60, 80, 80),
        line("dark", 16, -70, 70, 70, -70),
    ),
    _distractor("stone", blob("main", "-90,40 -70,-20 -10,-56 60,-30 92,40 0,60")),
    _distractor("tyre", wheel(0, 0, 90)),
    _distractor(
        "cone",
        poly("main", 0, -96, 52, 70, -52, 70),
        poly("white", -17, -40, 17, -40, 27, -8, -27, -8),
        box("dark", -80, 66, 80, 86),
    ),
    _distractor(
        "kite",
        poly("main", 0, -96, 66, -20, 0, 90, -66, -20),
        line("ink", 5, 0, -96, 0, 90),
        line("ink", 5, -66, -20, 66, -20),
    ),
    _distractor(
        "sign",
        box("accent", -7, 0, 7, 96),
        poly("main", "-80,-80 50,-80 92,-44 50,-8 -80,-8"),
    ),
    _distractor("star", star("main", 0, 0, 96)),
    _distractor(
        "sprig",
        line("accent", 8, 0, 96, 0, -60),
        leaf(28, -20, 34, -35),
        leaf(-28, 10, 34, 215),
        leaf(0, -70, 28, 90, "main"),
    ),
    _distractor(
        "jar",
        blob("main", "-60,-30 -40,-60 40,-60 60,-30 60,80 -60,80"),
        box("accent", -44, -90, 44, -60),
    ),
    _distractor(
        "mask",
        blob("main", "-90,-20 0,-40 90,-20 60,40 0,16 -60,40"),
        eye(-42, -2, 17),
        eye(42, -2, 17),
    ),
    _distractor(
        "pane",
        box("main", -84, -84, 84, 84),
        window(-70, -70, -8, -8),
        window(8, -70, 70, -8),
        window(-70, 8, -8, 70),
        window(8, 8, 70, 70),
    ),
]


def caption(family: str, subclass: str, attributes: Mapping[str, str]) -> str:
    """Return a caption like "two small slim red striped crested birds in a meadow".

    The usual values are omitted: medium, regular, plain.
    """
    values = [attributes[key] for key in ("size", "shape", "colour", "texture")]
    words = [value for value in [*values, subclass] if value not in ("medium", "regular", "plain")]
    shape = SHAPES[family]
    if attributes["count"] == "1":
        article, noun = "an" if words[0][0] in "aeiou" else "a", shape.name
    else:
        article, noun = NUMBERS[attributes["count"]], shape.plural
    place = SCENES[attributes["scene"]][0] + SURROUNDINGS[attributes["density"]]
    return f"{article} {' '.join([*words, noun])} {place}"
