"""DeepFashion's In-Shop Clothes Retrieval: 52,712 images of 7,982 items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Box, Record
from .parsing import make_box, parse_lines
from .registry import benchmark

SPLITS = ("train", "query", "gallery")
CLOTHES = {"1": "upper body", "2": "lower body", "3": "full body"}
POSES = {"1": "front", "2": "side", "3": "back", "4": "zoom out", "5": "zoom in", "6": "flat"}
BoxAndAttributes = tuple[Box, dict[str, str]]


@benchmark(
    "inshop",
    "In-Shop Clothes: train, query and gallery, boxes if available",
    "Eval/list_eval_partition.txt (or list_eval_partition.txt)\n"
    "img/WOMEN/Dresses/id_00000002/02_1_front.jpg\n"
    "Anno/list_bbox_inshop.txt (or list_bbox_inshop.txt; optional: boxes, poses)",
    "DeepFashion, In-shop Clothes Retrieval Benchmark",
)
def read_inshop(root: Path) -> Dataset:
    lists = "Eval/list_eval_partition.txt|list_eval_partition.txt"
    check_layout(root, "In-Shop Clothes", "img/|Img/img/", lists)
    return pack(_records(root, "" if (root / "img").is_dir() else "Img/"), root, "inshop")


def _records(root: Path, prefix: str) -> Iterator[Record]:
    annotations = _annotations(root)

    def record(path: str, item: str, split: str) -> Record:
        check(split in SPLITS, f"{split} is not one of {', '.join(SPLITS)}")
        # img/WOMEN/Dresses/id_00000002/02_1_front.jpg
        attributes = {"category": "/".join(path.split("/")[1:-2])}
        if path not in annotations:
            return Record(f"{prefix}{path}", item, split, attributes=attributes)
        box, details = annotations[path]
        return Record(f"{prefix}{path}", item, split, (box,), attributes={**attributes, **details})

    # The number of images and the names of the columns come first.
    yield from parse_lines(_either(root, "Eval", "list_eval_partition.txt"), record, 3, skip=2)


def _annotations(root: Path) -> dict[str, BoxAndAttributes]:
    path = _either(root, "Anno", "list_bbox_inshop.txt")
    if not path.is_file():
        return {}

    def row(image: str, clothes: str, pose: str, *corners: str) -> tuple[str, BoxAndAttributes]:
        return image, (make_box(*corners), {"clothes": CLOTHES[clothes], "pose": POSES[pose]})

    return dict(parse_lines(path, row, 7, skip=2))


def _either(root: Path, folder: str, name: str) -> Path:
    return root / folder / name if (root / folder / name).is_file() else root / name
