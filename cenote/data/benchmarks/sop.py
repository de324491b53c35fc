"""Stanford Online Products: 120,053 images of 22,634 products."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .parsing import parse_lines
from .registry import benchmark


@benchmark(
    "sop",
    "Stanford Online Products, retrieval: 11,318 products train, 11,316 others test",
    "Ebay_train.txt\nEbay_test.txt\nbicycle_final/111085122871_0.JPG",
    "cvgl.stanford.edu/projects/lifted_struct (Stanford_Online_Products.zip)",
)
def read_sop(root: Path) -> Dataset:
    check_layout(root, "Stanford Online Products", "Ebay_train.txt", "Ebay_test.txt")
    return pack(_records(root), root, "sop")


def _records(root: Path) -> Iterator[Record]:
    for split in ("train", "test"):
        for record in parse_lines(root / f"Ebay_{split}.txt", _record, 4, skip=1):
            yield record._replace(split=split)


def _record(image: str, product: str, superclass: str, path: str) -> Record:
    folder = path.partition("/")[0].removesuffix("_final")
    return Record(path, str(int(product)), attributes={"superclass": folder})
