"""CIRCO: queries with several correct answers over COCO's unlabelled photographs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..checks import check_entries, check_layout, read_entries, read_json
from ..dataset import Dataset, pack
from ..record import Record, RetrievalQuery
from .registry import benchmark

INFO = "COCO2017_unlabeled/annotations/image_info_unlabeled2017.json"
IMAGES = "COCO2017_unlabeled/unlabeled2017/"
SOURCE = (
    "GitHub, miccunifi/CIRCO (annotations), and cocodataset.org (2017 Unlabeled images and their "
    "image info)"
)


@benchmark(
    "circo",
    "CIRCO, validation: 220 queries with 4.5 correct answers on average among 123,403 images",
    f"annotations/val.json\n{INFO}\n{IMAGES}*.jpg",
    SOURCE,
)
def read_circo(root: Path) -> Dataset:
    return _read(root, "circo", "val", "gt_img_ids")


@benchmark(
    "circo-test",
    "CIRCO, test: 800 queries without public ground truth, in the order of their ids",
    f"annotations/test.json\n{INFO}\n{IMAGES}*.jpg",
    SOURCE,
)
def read_circo_test(root: Path) -> Dataset:
    return _read(root, "circo-test", "test")


def _read(root: Path, name: str, split: str, *keys: str) -> Dataset:
    """Read a split; the first target of a query is the one that its sentence was written for."""
    check_layout(root, "CIRCO", f"annotations/{split}.json", INFO, IMAGES)
    info = read_json(root / INFO)
    listed = info.get("images") if isinstance(info, dict) else info
    images = check_entries(root / INFO, listed, "id", "file_name")
    positions = {image["id"]: position for position, image in enumerate(images)}
    dataset = pack((Record(f"{IMAGES}{image['file_name']}") for image in images), root, name)
    path = root / "annotations" / f"{split}.json"
    entries = read_entries(path, "reference_img_id", "relative_caption", *keys)
    dataset.queries += _queries(path, entries, positions, dataset.problems)
    return dataset


def _queries(
    path: Path, entries: list[Mapping[str, Any]], positions: Mapping[int, int], problems: list[str]
) -> Iterator[RetrievalQuery]:
    for number, entry in enumerate(entries, 1):
        try:
            targets = tuple(positions[image] for image in entry.get("gt_img_ids", ()))
            image = positions[entry["reference_img_id"]]
        except (KeyError, TypeError) as error:
            problems.append(f"{path}: entry {number} names image {error}, which is not in {INFO}")
            continue
        name = str(entry["id"]) if "id" in entry else None
        truth = {"targets": targets} if targets else {}
        yield RetrievalQuery(image, truth, str(entry["relative_caption"]), name=name)
