"""DeepFashion's In-Shop Clothes Retrieval: 52,712 images of 7,982 items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Box, Record
from .parsing import corners, parse_lines
from .registry import benchmark

SPLITS = ("train", "query", "gallery")
CLOTHES = {"1": "upper body", "2": "lower body", "3": "full body"}
POSES = {"1": "front", "2": "side", "3": "back", "4": "zoom out", "5": "zoom in", "6": "flat"}


class Seen(NamedTuple):
    """What the table of boxes says of an image."""

    box: Box
    clothes: str
    pose: str


@benchmark(
    "inshop",
    "In-Shop Clothes: train, query and gallery, boxes where there are some",
    "Eval/list_eval_partition.txt (or list_eval_partition.txt)\nimg/WOMEN/Dresses/id_00000002/02_1_front.jpg\n"
    "Anno/list_bbox_inshop.txt (or list_bbox_inshop.txt; if there: boxes, poses)",
    "DeepFashion, In-shop Clothes Retrieval Benchmark",
)
def read_inshop(root: Path) -> Dataset:
    check_layout(
        root,
        "In-Shop Clothes",
        "img/|Img/img/",
        "Eval/list_eval_partition.txt|list_eval_partition.txt",
    )
    return pack(_records(root, "" if (root / "img").is_dir() else "Img/"), root, "inshop")


def _records(root: Path, prefix: str) -> Iterator[Record]:
    known = _seen(root)

    def record(path: str, item: str, split: str) -> Record:
        if split not in SPLITS:
            raise ValueError(f"{split} is none of {', '.join(SPLITS)}")
        attributes = {
            "category": "/".join(path.split("/")[1:-2])
        }  # img/WOMEN/Dresses/id_00000002/02_1_front.jpg
        boxes: tuple[Box, ...] = ()
        if path in known:
            seen = known[path]
            boxes, attributes = (
                (seen.box,),
                {**attributes, "clothes": seen.clothes, "pose": seen.pose},
            )
        return Record(f"{prefix}{path}", item, split, boxes, attributes=attributes)

    # A number of images and the names of the columns come first.
    yield from parse_lines(_either(root, "Eval", "list_eval_partition.txt"), record, 3, skip=2)


def _seen(root: Path) -> dict[str, Seen]:
    path = _either(root, "Anno", "list_bbox_inshop.txt")
    if not path.is_file():
        return {}

    def row(
        image: str, clothes: str, pose: str, x1: str, y1: str, x2: str, y2: str
    ) -> tuple[str, Seen]:
        return image, Seen(corners(x1, y1, x2, y2), CLOTHES[clothes], POSES[pose])

    return dict(parse_lines(path, row, 7, skip=2))


def _either(root: Path, folder: str, name: str) -> Path:
    return root / folder / name if (root / folder / name).is_file() else root / name
