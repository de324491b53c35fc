"""Oxford-IIIT Pets: 37 breeds, trimaps, boxes of heads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Box, Record
from ..voc import read_annotation
from .parsing import parse_lines
from .registry import benchmark

SPLITS = {"train": "trainval", "test": "test"}
SPECIES = {"1": "cat", "2": "dog"}
Row = tuple[str, str, int, str]  # image, breed, its number, species


@benchmark(
    "pets",
    "Oxford-IIIT Pets: trainval as train, and test; trimaps; boxes of heads, which only some of train have",
    "images/Abyssinian_1.jpg\nannotations/trainval.txt\nannotations/test.txt\n"
    "annotations/trimaps/Abyssinian_1.png\nannotations/xmls/Abyssinian_1.xml (if there: boxes)",
    "robots.ox.ac.uk/~vgg/data/pets (images.tar.gz, annotations.tar.gz)",
)
def read_pets(root: Path) -> Dataset:
    lists = [f"annotations/{name}.txt" for name in SPLITS.values()]
    check_layout(root, "Oxford-IIIT Pets", "images/", *lists, "annotations/trimaps/")
    rows = {split: list(_rows(root / list_)) for split, list_ in zip(SPLITS, lists, strict=True)}
    numbers = {breed: number for found in rows.values() for _, breed, number, _ in found}
    classes = sorted(numbers, key=numbers.__getitem__)
    return pack(_records(root, rows), root, "pets", classes, "trimap")


def _rows(path: Path) -> Iterator[Row]:
    def row(image: str, number: str, species: str, _: str) -> Row:
        return image, image.rpartition("_")[0].replace("_", " "), int(number), SPECIES[species]

    return parse_lines(path, row, 4)


def _records(root: Path, rows: dict[str, list[Row]]) -> Iterator[Record]:
    for split, found in rows.items():
        for image, breed, _, species in found:
            masks = (f"annotations/trimaps/{image}.png",)
            boxes = _head(root / "annotations" / "xmls" / f"{image}.xml")
            yield Record(
                f"images/{image}.jpg", breed, split, boxes, masks, attributes={"species": species}
            )


def _head(path: Path) -> tuple[Box, ...]:
    """The file calls the object cat or dog; the image's class says more."""
    if not path.is_file():
        return ()
    return tuple(
        b._replace(x1=max(b.x1, 0), y1=max(b.y1, 0), label=None) for b in read_annotation(path)
    )
