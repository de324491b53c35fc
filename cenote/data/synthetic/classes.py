"""All classes and distractors, read from shapes.txt, and captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from . import shapes
from .scenes import SCENES
from .shapes import SUBCLASSES, ObjectShape, Polygons, badges, mirrored

DISTRACTOR_GROUP = "distractors"
NUMBERS = {"2": "two", "3": "three", "4": "four"}
SURROUNDINGS = {"sparse": ", with little around", "medium": "", "dense": ", with much around"}


def _read_shapes() -> dict[str, list[ObjectShape]]:
    """Read the shapes of each group; the file's first lines describe its format."""
    text = (files(__package__) / "shapes.txt").read_text("utf-8")
    groups: dict[str, list[ObjectShape]] = {}
    for section in text.partition("\n\n")[2].split("[")[1:]:
        title, _, paragraphs = section.partition("]\n\n")
        groups[title] = [_parse_shape(text) for text in paragraphs.strip().split("\n\n")]
    return groups


def _parse_shape(text: str) -> ObjectShape:
    body, *marks = text.split("\n  + ")
    header, _, lines = body.partition("\n")
    name, _, options = header.partition(":")
    words = options.split()
    subclasses = {}
    for mark in marks:
        key, _, polygons = mark.partition("\n")
        subclasses[key] = tuple(_parse_polygons(polygons.splitlines()))
    if "spot" in words:
        x, y, radius = map(int, words[1:4])
        for key, badge in badges(x, y, radius).items():
            if len(subclasses) < SUBCLASSES - 1:
                subclasses[key] = badge
    plural = words[words.index("plural") + 1] if "plural" in words else f"{name}s"
    outline = tuple(_parse_polygons(lines.splitlines()))
    return ObjectShape(name, outline, subclasses, "any-orientation" not in words, plural)


def _parse_polygons(lines: list[str]) -> Iterator[Any]:
    mirrored_polygons: Polygons = ()
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        word, *values = line.split()
        if word == "mirrored":
            continue
        polygons = getattr(shapes, word)(*map(_number, values))
        if isinstance(polygons, shapes.RolePolygon):
            polygons = (polygons,)
        if not line.startswith("      "):
            yield from polygons
            continue
        mirrored_polygons += polygons
        if not following.startswith("      "):
            yield from mirrored(*mirrored_polygons)
            mirrored_polygons = ()


def _number(text: str) -> int | float | str:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


_groups = _read_shapes()
DISTRACTORS = _groups.pop(DISTRACTOR_GROUP)
# One of each group in turn: a world of few classes has some of every kind.
_rows = zip_longest(*_groups.values())
SHAPES = {shape.name: shape for row in _rows for shape in row if shape is not None}


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
