"""CIRR: real-life photographs, and sentences that change one into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..dataset import Dataset, pack
from ..json_files import read_entries, read_json
from ..layout import LayoutError, check_layout, list_contents
from ..record import Record, RetrievalQuery
from .registry import benchmark

SPLITS = {"train": "train", "val": "val", "test1": "test"}
FOLDERS = ("train", "dev", "test1")  # of the images


@benchmark(
    "cirr",
    "CIRR: train, val and test; the test queries have no public truth",
    """\
captions/cap.rc2.val.json (also train, test1)
image_splits/split.rc2.val.json (also train, test1)
img_raw/dev/*.png (also train/NUMBER/*.png, test1/*.png), or these folders beside captions/ or above it""",
    "GitHub, Cuberick-Orion/CIRR, branch cirr_dataset; images from NLVR2",
)
def read_cirr(root: Path) -> Dataset:
    """A query's truth: `targets`, the one right image, and `subset`, the five other images of its group.

    Its own image is in the database but is not to be counted when ranking.
    """
    lists = root / "cirr" if (root / "cirr" / "captions").is_dir() else root
    check_layout(lists, "CIRR", "captions/", "image_splits/")
    splits = [
        split
        for split in SPLITS
        if _file(lists, "captions/cap", split) and _file(lists, "image_splits/split", split)
    ]
    if not splits:
        found = list_contents(lists / "captions")
        raise LayoutError(
            f"{lists} is not CIRR: expected captions/cap.rc2.val.json and its image_splits, found {found}"
        )
    images = _images_folder(lists)
    places: dict[str, int] = {}
    records: list[Record] = []
    for split in splits:
        for name, path in _paths(_file(lists, "image_splits/split", split)).items():
            if places.setdefault(name, len(places)) == len(records):
                records.append(Record(path.removeprefix("./"), split=SPLITS[split]))
    dataset = pack(records, images, "cirr")
    for split in splits:
        dataset.queries += _queries(_file(lists, "captions/cap", split), places, dataset.problems)
    return dataset


def _file(root: Path, start: str, split: str) -> Path | None:
    """Of whatever version: cap.rc2.val.json."""
    return next(iter(sorted(root.glob(f"{start}.*.{split}.json"))), None)


def _images_folder(lists: Path) -> Path:
    places = (lists / "img_raw", lists, lists.parent)
    found = next(
        (place for place in places if any((place / name).is_dir() for name in FOLDERS)), None
    )
    if found is None:
        raise LayoutError(
            f"{lists} lacks CIRR's images: expected train/, dev/ or test1/ in img_raw/, beside captions/ or above it; "
            f"found {list_contents(lists)}"
        )
    return found


def _paths(path: Path | None) -> dict[str, str]:
    assert path is not None
    paths = read_json(path)
    if not isinstance(paths, dict) or not all(isinstance(value, str) for value in paths.values()):
        raise ValueError(
            f"{path}: expected the path of each image by its name, found {str(paths)[:80]}"
        )
    return paths


def _queries(
    path: Path | None, places: Mapping[str, int], problems: list[str]
) -> Iterator[RetrievalQuery]:
    assert path is not None
    for number, entry in enumerate(read_entries(path, "reference", "caption", "img_set"), 1):
        try:
            yield _query(entry, places)
        except (KeyError, TypeError) as error:
            problems.append(
                f"{path}: entry {number} names {error}, which is not in its image_splits"
            )


def _query(entry: Mapping[str, Any], places: Mapping[str, int]) -> RetrievalQuery:
    reference = entry["reference"]
    truth = {
        "subset": tuple(places[name] for name in entry["img_set"]["members"] if name != reference)
    }
    if entry.get("target_hard"):
        truth["targets"] = (places[entry["target_hard"]],)
    name = str(entry["pairid"]) if "pairid" in entry else None
    return RetrievalQuery(places[reference], truth, str(entry["caption"]), name=name)
