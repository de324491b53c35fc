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
# Classes that the protocol merges.
MERGED = {
    **dict.fromkeys(("denseresidential", "sparseresidential"), "residential"),
    **dict.fromkeys(("closedroad", "intersection"), "road"),
    **dict.fromkeys(("bridge", "overpass"), "roadpass"),
    **dict.fromkeys(("ferryterminal", "harbor"), "pier"),
    **dict.fromkeys(("parkingspace", "parkinglot"), "parking"),
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
    """Yield, for every listed image, a query for every other value that its class has."""
    targets: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for image, value in rows:
        targets[_class(image)][value].append(positions[image])
    for image, image_value in rows:
        for value, images in targets[_class(image)].items():
            if value != image_value:
                truth = {"targets": tuple(images)}
                yield RetrievalQuery(positions[image], truth, value, group=attribute)


def _class(image: str) -> str:
    """Return the file name up to the first digit, merged."""
    name = re.split(r"\d", image, maxsplit=1)[0]
    return MERGED.get(name, name)
