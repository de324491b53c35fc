"""Oxford-IIIT Pets: 37 breeds, trimaps, boxes of heads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check_layout
from ..dataset import Dataset, pack
from ..record import Box, Record
from ..voc import read_annotation
from .parsing import parse_lines
from .registry import benchmark

LISTS = {"train": "annotations/trainval.txt", "test": "annotations/test.txt"}
SPECIES = {"1": "cat", "2": "dog"}
Row = tuple[str, str, int, str]  # image, breed, its number, species


@benchmark(
    "pets",
    "Oxford-IIIT Pets: trainval as train, and test; trimaps; boxes of heads, which only some of "
    "train have",
    "images/Abyssinian_1.jpg\nannotations/trainval.txt\nannotations/test.txt\n"
    "annotations/trimaps/Abyssinian_1.png\nannotations/xmls/Abyssinian_1.xml (optional: boxes)",
    "robots.ox.ac.uk/~vgg/data/pets (images.tar.gz, annotations.tar.gz)",
)
def read_pets(root: Path) -> Dataset:
    check_layout(root, "Oxford-IIIT Pets", "images/", *LISTS.values(), "annotations/trimaps/")
    rows = {split: list(parse_lines(root / path, _row, 4)) for split, path in LISTS.items()}
    numbers = {breed: k for listed in rows.values() for _, breed, k, _ in listed}
    classes = sorted(numbers, key=numbers.__getitem__)
    return pack(_records(root, rows), root, "pets", classes, "trimap")


def _row(image: str, number: str, species: str, _: str) -> Row:
    return image, image.rpartition("_")[0].replace("_", " "), int(number), SPECIES[species]


def _records(root: Path, rows: dict[str, list[Row]]) -> Iterator[Record]:
    for split, listed in rows.items():
        for image, breed, _, species in listed:
            masks = (f"annotations/trimaps/{image}.png",)
            boxes = _head_boxes(root / "annotations" / "xmls" / f"{image}.xml")
            attributes = {"species": species}
            path = f"images/{image}.jpg"
            yield Record(path, breed, split, boxes, masks, attributes=attributes)


def _head_boxes(path: Path) -> tuple[Box, ...]:
    """Return the boxes without their label, cat or dog: the image's class is more specific."""
    if not path.is_file():
        return ()
    boxes = read_annotation(path)
    return tuple(b._replace(x1=max(b.x1, 0), y1=max(b.y1, 0), label=None) for b in boxes)
