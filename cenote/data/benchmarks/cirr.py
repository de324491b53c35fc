"""CIRR: real-life photographs, and sentences that change one into another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..checks import LayoutError, check_layout, read_entries, read_json
from ..dataset import Dataset, pack
from ..record import Record, RetrievalQuery
from .parsing import layout_error
from .registry import benchmark

SPLITS = {"train": "train", "val": "val", "test1": "test"}
IMAGE_FOLDERS = ("train", "dev", "test1")


@benchmark(
    "cirr",
    "CIRR: train, val and test; the test queries have no public ground truth",
    """\
captions/cap.rc2.val.json (also train, test1)
image_splits/split.rc2.val.json (also train, test1)
img_raw/dev/*.png (also train/NUMBER/*.png, test1/*.png), or these folders beside captions/ or \
above it""",
    "GitHub, Cuberick-Orion/CIRR, branch cirr_dataset; images from NLVR2",
)
def read_cirr(root: Path) -> Dataset:
    """Read CIRR; a query's truth is `targets`, the correct image, and `subset`, its group.

    The group is five other images. The query's image is in the database but not to be ranked.
    """
    lists = root / "cirr" if (root / "cirr" / "captions").is_dir() else root
    check_layout(lists, "CIRR", "captions/", "image_splits/")
    captions, image_lists = _files(lists, "captions/cap"), _files(lists, "image_splits/split")
    splits = [split for split in SPLITS if split in captions and split in image_lists]
    if not splits:
        expected = "cap.rc2.val.json, and its image_splits beside it"
        raise layout_error(lists / "captions", "CIRR's", expected)
    positions: dict[str, int] = {}
    records: list[Record] = []
    for split in splits:
        for name, path in _image_paths(image_lists[split]).items():
            if positions.setdefault(name, len(positions)) == len(records):
                records.append(Record(path.removeprefix("./"), split=SPLITS[split]))
    dataset = pack(records, _find_images(lists), "cirr")
    for split in splits:
        dataset.queries += _queries(captions[split], positions, dataset.problems)
    return dataset


def _files(root: Path, start: str) -> dict[str, Path]:
    """Return the files by split, of any version: captions/cap.rc2.val.json."""
    paths = sorted(root.glob(f"{start}.*.*.json"), reverse=True)
    return {path.name.split(".")[-2]: path for path in paths}


def _find_images(lists: Path) -> Path:
    for folder in (lists / "img_raw", lists, lists.parent):
        if any((folder / name).is_dir() for name in IMAGE_FOLDERS):
            return folder
    raise LayoutError(
        f"{lists} lacks CIRR's images: expected train/, dev/ or test1/ in img_raw/, "
        "beside captions/ or above it"
    )


def _image_paths(path: Path) -> dict[str, str]:
    paths = read_json(path)
    if not isinstance(paths, dict) or not all(isinstance(value, str) for value in paths.values()):
        raise ValueError(f"{path}: expected image paths by name, found {str(paths)[:80]}")
    return paths


def _queries(
    path: Path, positions: Mapping[str, int], problems: list[str]
) -> Iterator[RetrievalQuery]:
    for number, entry in enumerate(read_entries(path, "reference", "caption", "img_set"), 1):
        try:
            yield _query(entry, positions)
        except (KeyError, TypeError) as error:
            problems.append(
                f"{path}: entry {number} names {error}, which is not in its image_splits"
            )


def _query(entry: Mapping[str, Any], positions: Mapping[str, int]) -> RetrievalQuery:
    members = [name for name in entry["img_set"]["members"] if name != entry["reference"]]
    truth = {"subset": tuple(positions[name] for name in members)}
    if entry.get("target_hard"):
        truth["targets"] = (positions[entry["target_hard"]],)
    name = str(entry["pairid"]) if "pairid" in entry else None
    image = positions[entry["reference"]]
    return RetrievalQuery(image, truth, str(entry["caption"]), name=name)
