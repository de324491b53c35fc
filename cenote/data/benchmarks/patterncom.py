"""PatternNet, and PatternCom: queries for its images with another attribute."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..checks import check
from ..dataset import Dataset, pack
from ..images import walk
from ..record import Record, RetrievalQuery
from .registry import benchmark

ATTRIBUTES = ("color", "context", "density", "existence", "quantity", "shape")
TABLES = {name: f"PatternCom/{name}.csv" for name in ATTRIBUTES}
IMAGES = "images/airplane/airplane001.jpg, ..."
# Classes that the protocol merges: always for the relevant images, and for the values to ask for
# only where the attribute is that of MERGED_TO_ASK.
MERGED = {
    **dict.fromkeys(("denseresidential", "sparseresidential"), "residential"),
    **dict.fromkeys(("closedroad", "intersection"), "road"),
    **dict.fromkeys(("bridge", "overpass"), "roadpass"),
    **dict.fromkeys(("ferryterminal", "harbor"), "pier"),
    **dict.fromkeys(("parkingspace", "parkinglot"), "parking"),
}
MERGED_TO_ASK = {
    "residential": "density",
    "road": "shape",
    "roadpass": "context",
    "pier": "existence",
    "parking": "existence",
}


@benchmark(
    "patternnet",
    "PatternNet: 30,400 aerial images of 38 classes",
    IMAGES,
    "the PatternNet page of Weixun Zhou",
    ["images/"],
)
def read_patternnet(
    root: Path, attributes: Mapping[str, Mapping[str, str]] | None = None
) -> Iterator[Record]:
    """Read images in images/CLASS/, with the attributes of some of them by file name."""
    for path in walk(root, "images/"):
        if path.count("/") > 1:
            values = (attributes or {}).get(Path(path).name, {})
            yield Record(path, path.split("/")[1], attributes=values)


@benchmark(
    "patterncom",
    "PatternCom: PatternNet with queries of an image and another value of an attribute",
    "\n".join((IMAGES, *TABLES.values())),
    "the PatternNet page of Weixun Zhou, and GitHub, billpsomas/rscir (PatternCom)",
    ("images/", *TABLES.values()),
)
def read_patterncom(root: Path) -> Dataset:
    """Read PatternCom; the group of a query is its attribute."""
    tables = {name: list(_rows(root / path)) for name, path in TABLES.items()}
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for attribute, rows in tables.items():
        for image, value in rows:
            values[image][attribute] = value
    dataset = pack(read_patternnet(root, values), root, "PatternCom")
    positions = {Path(record.image).name: i for i, record in enumerate(dataset)}
    for attribute, rows in tables.items():
        missing = [image for image, _ in rows if image not in positions]
        path = root / TABLES[attribute]
        dataset.problems += [f"{path}: {image} is not among the images" for image in missing]
        present = [(image, value) for image, value in rows if image in positions]
        dataset.queries += _queries(attribute, present, positions)
    return dataset


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """Yield image and value of lines FILE,ATTRIBUTE,VALUE, without a header."""
    with open(path, encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.reader(file), 1):
            if row:
                expected = f"expected FILE,{path.stem},VALUE, found {','.join(row)[:80]!r}"
                check(len(row) == 3, f"{path}, line {line}: {expected}")
                yield row[0].strip(), row[2].strip()


def _queries(
    attribute: str, rows: list[tuple[str, str]], positions: Mapping[str, int]
) -> Iterator[RetrievalQuery]:
    """Yield, for every listed image, a query for every other value that its class has.

    An image that is listed twice asks twice, and has the value of its last row.
    """
    targets: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for image, value in dict(rows).items():
        targets[_merged_class(image), value].append(positions[image])
    values: defaultdict[str, dict[str, None]] = defaultdict(dict)  # in order, each once
    for image, value in rows:
        values[_asking_class(image, attribute)][value] = None
    for image, image_value in rows:
        for value in values[_asking_class(image, attribute)]:
            if value != image_value:
                truth = {"targets": tuple(targets[_merged_class(image), value])}
                yield RetrievalQuery(positions[image], truth, value, group=attribute)


def _class(image: str) -> str:
    """Return the file name up to the first digit."""
    return re.split(r"\d", image, maxsplit=1)[0]


def _merged_class(image: str) -> str:
    return MERGED.get(_class(image), _class(image))


def _asking_class(image: str, attribute: str) -> str:
    merged = _merged_class(image)
    return merged if MERGED_TO_ASK.get(merged) == attribute else _class(image)
