"""FashionIQ: a garment, two sentences on how another differs, and that one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..dataset import Dataset, pack
from ..json_files import read_entries, read_json
from ..layout import check_layout
from ..record import Record, RetrievalQuery
from .registry import benchmark

KINDS, SPLITS = ("dress", "shirt", "toptee"), ("train", "val", "test")
_FILES = ("captions/cap", "image_splits/split")


@benchmark(
    "fashioniq",
    "FashionIQ: dress, shirt and toptee, each with its own images; the test queries have no public truth",
    """\
captions/cap.dress.train.json, cap.dress.val.json (also shirt, toptee; test optional)
image_splits/split.dress.train.json, split.dress.val.json (also shirt, toptee; test optional)
images/B008BHCT58.jpg, ...""",
    "GitHub, XiaoxiaoGuo/fashion-iq (captions, image_splits) and hongwang600/fashion-iq-metadata (images)",
)
def read_fashioniq(root: Path) -> Dataset:
    """The class of an image is its kind: a query looks among the images of its own kind and split.

    An image that is listed for two kinds is two records.
    """
    needed = [
        f"{what}.{kind}.{split}.json" for kind in KINDS for split in SPLITS[:2] for what in _FILES
    ]
    check_layout(root, "FashionIQ", *needed, "images/")
    parts = [
        (k, s)
        for k in KINDS
        for s in SPLITS
        if all((root / f"{what}.{k}.{s}.json").is_file() for what in _FILES)
    ]
    places: dict[tuple[str, str, str], int] = {}
    for kind, split in parts:
        for image in _names(root / f"image_splits/split.{kind}.{split}.json"):
            places.setdefault((kind, split, image), len(places))
    records = (Record(f"images/{image}.jpg", kind, split) for kind, split, image in places)
    dataset = pack(records, root, "fashioniq", list(KINDS))
    for kind, split in parts:
        for query in _queries(root / f"captions/cap.{kind}.{split}.json", kind, split, places):
            if isinstance(query, RetrievalQuery):
                dataset.queries.append(query)
            else:
                dataset.problems.append(query)
    return dataset


def _names(path: Path) -> list[str]:
    names = read_json(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: expected a list of names of images, found {str(names)[:80]}")
    return names


def _queries(
    path: Path, kind: str, split: str, places: dict[tuple[str, str, str], int]
) -> Iterator[RetrievalQuery | str]:
    """Or a sentence in the place of one."""
    for number, entry in enumerate(read_entries(path, "candidate", "captions"), 1):
        asked = [entry["candidate"], *([entry["target"]] if entry.get("target") else [])]
        found = [places.get((kind, split, name)) for name in asked]
        if None in found:
            yield f"{path}: entry {number} names {asked[found.index(None)]}, which is not in split.{kind}.{split}.json"
            continue
        image, *targets = (place for place in found if place is not None)
        truth = {"targets": tuple(targets)} if targets else {}
        yield RetrievalQuery(image, truth, _text(entry["captions"]), group=kind)


def _text(captions: Any) -> str:
    """Joined by "and", as is usual."""
    return " and ".join(str(caption).strip(" .?,") for caption in captions)
