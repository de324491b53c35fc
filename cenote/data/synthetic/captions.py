"""Attributes in plain English."""

from __future__ import annotations

from collections.abc import Mapping

from .catalogue import SHAPES
from .scenes import SCENES

NUMBERS = {"2": "two", "3": "three", "4": "four"}
SURROUNDINGS = {"sparse": ", with little around", "medium": "", "dense": ", with much around"}


def caption(family: str, subclass: str, attributes: Mapping[str, str]) -> str:
    """Two small slim red striped crested birds in a meadow. What is usual goes unsaid: medium, regular, plain."""
    said = {"medium", "regular", "plain"}
    values = (
        attributes["size"],
        attributes["shape"],
        attributes["colour"],
        attributes["texture"],
        subclass,
    )
    words = [value for value in values if value not in said]
    count, shape = attributes["count"], SHAPES[family]
    noun = shape.name if count == "1" else shape.plural
    number = ("an" if words[0][0] in "aeiou" else "a") if count == "1" else NUMBERS[count]
    return f"{number} {' '.join([*words, noun])} {SCENES[attributes['scene']][0]}{SURROUNDINGS[attributes['density']]}"
