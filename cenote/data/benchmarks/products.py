"""Products in shops: Stanford Online Products and DeepFashion's In-Shop Clothes Retrieval."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check
from ..record import Box, Record
from .parsing import make_box, parse_lines
from .registry import benchmark

INSHOP_SPLITS = ("train", "query", "gallery")
CLOTHES = {"1": "upper body", "2": "lower body", "3": "full body"}
POSES = {"1": "front", "2": "side", "3": "back", "4": "zoom out", "5": "zoom in", "6": "flat"}


@benchmark(
    "sop",
    "Stanford Online Products, retrieval: 11,318 products train, 11,316 others test",
    "Ebay_train.txt\nEbay_test.txt\nbicycle_final/111085122871_0.JPG",
    "cvgl.stanford.edu/projects/lifted_struct (Stanford_Online_Products.zip)",
    ("Ebay_train.txt", "Ebay_test.txt"),
)
def read_sop(root: Path) -> Iterator[Record]:
    def record(image: str, product: str, superclass: str, path: str) -> Record:
        folder = path.partition("/")[0].removesuffix("_final")
        return Record(path, str(int(product)), attributes={"superclass": folder})

    for split in ("train", "test"):
        for parsed in parse_lines(root / f"Ebay_{split}.txt", record, 4, skip=1):
            yield parsed._replace(split=split)


@benchmark(
    "inshop",
    "In-Shop Clothes: train, query and gallery, boxes if available",
    "Eval/list_eval_partition.txt (or list_eval_partition.txt)\n"
    "img/WOMEN/Dresses/id_00000002/02_1_front.jpg\n"
    "Anno/list_bbox_inshop.txt (or list_bbox_inshop.txt; optional: boxes, poses)",
    "DeepFashion, In-shop Clothes Retrieval Benchmark",
    ("img/|Img/img/", "Eval/list_eval_partition.txt|list_eval_partition.txt"),
)
def read_inshop(root: Path) -> Iterator[Record]:
    prefix = "" if (root / "img").is_dir() else "Img/"
    annotations = _inshop_annotations(root)

    def record(path: str, item: str, split: str) -> Record:
        check(split in INSHOP_SPLITS, f"{split} is not one of {', '.join(INSHOP_SPLITS)}")
        boxes, details = annotations.get(path, ((), {}))
        # img/WOMEN/Dresses/id_00000002/02_1_front.jpg
        attributes = {"category": "/".join(path.split("/")[1:-2]), **details}
        return Record(f"{prefix}{path}", item, split, boxes, attributes=attributes)

    # The number of images and the names of the columns come first.
    yield from parse_lines(_either(root, "Eval", "list_eval_partition.txt"), record, 3, skip=2)


def _inshop_annotations(root: Path) -> dict[str, tuple[tuple[Box, ...], dict[str, str]]]:
    """Return boxes and attributes by image, if there are any."""
    path = _either(root, "Anno", "list_bbox_inshop.txt")
    if not path.is_file():
        return {}

    def row(
        image: str, clothes: str, pose: str, *corners: str
    ) -> tuple[str, tuple[tuple[Box, ...], dict[str, str]]]:
        return image, ((make_box(*corners),), {"clothes": CLOTHES[clothes], "pose": POSES[pose]})

    return dict(parse_lines(path, row, 7, skip=2))


def _either(root: Path, folder: str, name: str) -> Path:
    return root / folder / name if (root / folder / name).is_file() else root / name
