"""PatternNet, and PatternCom: its images asked for with another attribute."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ..dataset import Dataset, pack
from ..folders import walk
from ..layout import LayoutError, check_layout
from ..record import Record, RetrievalQuery
from .registry import benchmark

ATTRIBUTES = ("color", "context", "density", "existence", "quantity", "shape")
# Classes that the protocol takes for one.
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
    "images/airplane/airplane001.jpg, ...",
    "the PatternNet page of Weixun Zhou",
)
def read_patternnet(root: Path) -> Dataset:
    return _images(root, "patternnet", {})


@benchmark(
    "patterncom",
    "PatternCom: PatternNet with queries of an image and another value of an attribute",
    "\n".join(
        ("images/airplane/airplane001.jpg, ...", *(f"PatternCom/{name}.csv" for name in ATTRIBUTES))
    ),
    "the PatternNet page of Weixun Zhou, and GitHub, billpsomas/rscir (PatternCom)",
)
def read_patterncom(root: Path) -> Dataset:
    """A query's truth is called by its attribute, since results are averaged by attribute first."""
    check_layout(
        root,
        "PatternNet with PatternCom",
        "images/",
        *(f"PatternCom/{name}.csv" for name in ATTRIBUTES),
    )
    tables = {name: list(_rows(root / "PatternCom" / f"{name}.csv", name)) for name in ATTRIBUTES}
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for attribute, rows in tables.items():
        for image, value in rows:
            values[image][attribute] = value
    dataset = _images(root, "patterncom", values)
    places = {Path(record.image).name: place for place, record in enumerate(dataset)}
    for attribute, rows in tables.items():
        known = [(image, value) for image, value in rows if image in places]
        dataset.problems += [
            f"{root / 'PatternCom' / attribute}.csv: {image} is not among the images"
            for image, _ in rows
            if image not in places
        ]
        dataset.queries += _queries(attribute, known, places)
    return dataset


def _images(root: Path, name: str, values: dict[str, dict[str, str]]) -> Dataset:
    check_layout(root, "PatternNet", "images/")
    records = (
        Record(path, path.split("/")[1], attributes=values.get(Path(path).name, {}))
        for path in walk(root, "images/")
        if path.count("/") > 1
    )
    dataset = pack(records, root, name)
    if not len(dataset):
        raise LayoutError(
            f"{root} is not PatternNet: expected images in images/CLASS/*.jpg, found none in {root / 'images'}"
        )
    return dataset


def _rows(path: Path, attribute: str) -> Iterator[tuple[str, str]]:
    """Lines `file name, attribute, value`, without a header."""
    with open(path, encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            if len(row) != 3:
                raise ValueError(
                    f"{path}, line {line}: expected FILE,{attribute},VALUE, found {','.join(row)[:80]!r}"
                )
            yield row[0].strip(), row[2].strip()


def _queries(
    attribute: str, rows: list[tuple[str, str]], places: dict[str, int]
) -> Iterator[RetrievalQuery]:
    """Every listed image asks for every other value that its class has, under this attribute."""
    right: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for image, value in rows:
        right[_class(image)][value].append(places[image])
    shared = {
        kind: {value: tuple(found) for value, found in by_value.items()}
        for kind, by_value in right.items()
    }
    for image, own in rows:
        for value, targets in shared[_class(image)].items():
            if value != own:
                yield RetrievalQuery(places[image], {"targets": targets}, value, group=attribute)


def _class(image: str) -> str:
    """The file name up to the first digit, merged."""
    name = re.split(r"\d", image, maxsplit=1)[0]
    return MERGED.get(name, name)
