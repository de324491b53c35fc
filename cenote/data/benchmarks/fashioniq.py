"""FashionIQ: a garment, two sentences on how another differs, and that other garment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..checks import check_layout, read_entries, read_json
from ..dataset import Dataset, pack
from ..record import Record, RetrievalQuery
from .registry import benchmark

GARMENTS, SPLITS = ("dress", "shirt", "toptee"), ("train", "val", "test")
FILES = ("captions/cap", "image_splits/split")
Positions = dict[tuple[str, str, str], int]  # by garment, split and image


@benchmark(
    "fashioniq",
    "FashionIQ: dress, shirt and toptee, each with its own images; the test queries have no public "
    "ground truth",
    """\
captions/cap.dress.train.json, cap.dress.val.json (also shirt, toptee; test optional)
image_splits/split.dress.train.json, split.dress.val.json (also shirt, toptee; test optional)
images/B008BHCT58.jpg, ...""",
    "GitHub, XiaoxiaoGuo/fashion-iq (captions, image_splits) and hongwang600/fashion-iq-metadata "
    "(images)",
)
def read_fashioniq(root: Path) -> Dataset:
    """Read FashionIQ; a query searches among the images of its garment (the class) and split.

    An image that is listed for two garments is two records.
    """
    subsets = [(garment, split) for garment in GARMENTS for split in SPLITS]
    files = {pair: [f"{file}.{pair[0]}.{pair[1]}.json" for file in FILES] for pair in subsets}
    required = [file for pair in subsets if pair[1] != "test" for file in files[pair]]
    check_layout(root, "FashionIQ", *required, "images/")
    subsets = [pair for pair in subsets if all((root / file).is_file() for file in files[pair])]
    positions: Positions = {}
    for garment, split in subsets:
        for image in _image_names(root / f"image_splits/split.{garment}.{split}.json"):
            positions.setdefault((garment, split, image), len(positions))
    records = (Record(f"images/{image}.jpg", garment, split) for garment, split, image in positions)
    dataset = pack(records, root, "fashioniq", list(GARMENTS))
    for garment, split in subsets:
        dataset.queries += _queries(root, garment, split, positions, dataset.problems)
    return dataset


def _image_names(path: Path) -> list[str]:
    names = read_json(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: expected a list of image names, found {str(names)[:80]}")
    return names


def _queries(
    root: Path, garment: str, split: str, positions: Positions, problems: list[str]
) -> Iterator[RetrievalQuery]:
    path = root / f"captions/cap.{garment}.{split}.json"
    for number, entry in enumerate(read_entries(path, "candidate", "captions"), 1):
        names = [entry["candidate"]]
        if entry.get("target"):
            names.append(entry["target"])
        unknown = [name for name in names if (garment, split, name) not in positions]
        if unknown:
            listed = f"split.{garment}.{split}.json"
            problems.append(f"{path}: entry {number} names {unknown[0]}, which is not in {listed}")
            continue
        image, *targets = (positions[garment, split, name] for name in names)
        truth = {"targets": tuple(targets)} if targets else {}
        # The sentences are joined by "and", as usual.
        text = " and ".join(str(caption).strip(" .?,") for caption in entry["captions"])
        yield RetrievalQuery(image, truth, text, group=garment)
