"""Composed retrieval: an image and a text ask for another image. FashionIQ, CIRR, CIRCO, i-CIR."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..checks import LayoutError, check, check_entries, errors_in, read_json
from ..dataset import Dataset, pack
from ..record import Record, RetrievalQuery
from .parsing import parse_lines
from .registry import benchmark

Entry = Mapping[str, Any]
NAMES, PATHS = TypeAdapter(list[str]), TypeAdapter(dict[str, str])  # of images

GARMENTS = ("dress", "shirt", "toptee")
GARMENT_SPLITS = [(garment, split) for garment in GARMENTS for split in ("train", "val", "test")]
GARMENT_FILES = ("captions/cap", "image_splits/split")
CIRR_SPLITS = {"train": "train", "val": "val", "test1": "test"}
CIRCO_INFO = "COCO2017_unlabeled/annotations/image_info_unlabeled2017.json"
CIRCO_IMAGES = "COCO2017_unlabeled/unlabeled2017/"
CIRCO_SOURCE = (
    "GitHub, miccunifi/CIRCO (annotations), and cocodataset.org (2017 Unlabeled images and their "
    "image info)"
)


def _add_queries(
    dataset: Dataset, path: Path, keys: tuple[str, ...], make: Callable[[Entry], RetrievalQuery]
) -> None:
    """Add the queries of a JSON file; one that names an unknown image becomes a problem."""
    for number, entry in enumerate(check_entries(path, read_json(path), *keys), 1):
        try:
            dataset.queries.append(make(entry))
        except (KeyError, TypeError) as error:
            message = f"{path}: entry {number} names {error}, which is not among the listed images"
            dataset.problems.append(message)


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
    [
        *(f"{k}.{g}.{s}.json" for g, s in GARMENT_SPLITS if s != "test" for k in GARMENT_FILES),
        "images/",
    ],
)
def read_fashioniq(root: Path) -> Dataset:
    """Read FashionIQ; a query searches among the images of its garment (the class) and split.

    An image that is listed for two garments is two records.
    """
    records: list[Record] = []
    positions: dict[tuple[str, str], dict[str, int]] = {}  # by garment and split
    for garment, split in GARMENT_SPLITS:
        captions, listed = (root / f"{kind}.{garment}.{split}.json" for kind in GARMENT_FILES)
        if captions.is_file() and listed.is_file():
            with errors_in(listed):
                names = dict.fromkeys(NAMES.validate_json(listed.read_bytes()))
            positions[garment, split] = {name: len(records) + i for i, name in enumerate(names)}
            records += [Record(f"images/{name}.jpg", garment, split) for name in names]
    dataset = pack(records, root, "FashionIQ", list(GARMENTS))
    for (garment, split), of_split in positions.items():

        def query(
            entry: Entry, garment: str = garment, of_split: Mapping[str, int] = of_split
        ) -> RetrievalQuery:
            targets = (of_split[entry["target"]],) if entry.get("target") else ()
            # The sentences are joined by "and", as usual.
            text = " and ".join(str(caption).strip(" .?,") for caption in entry["captions"])
            truth = {"targets": targets} if targets else {}
            return RetrievalQuery(of_split[entry["candidate"]], truth, text, group=garment)

        path = root / f"captions/cap.{garment}.{split}.json"
        _add_queries(dataset, path, ("candidate", "captions"), query)
    return dataset


@benchmark(
    "cirr",
    "CIRR: train, val and test; the test queries have no public ground truth",
    """\
captions/cap.rc2.val.json (also train, test1)
image_splits/split.rc2.val.json (also train, test1)
img_raw/dev/*.png (also train/NUMBER/*.png, test1/*.png), or these folders beside captions/ or \
above it""",
    "GitHub, Cuberick-Orion/CIRR, branch cirr_dataset; images from NLVR2",
    ("captions/", "image_splits/"),
    inside=["cirr"],
)
def read_cirr(root: Path) -> Dataset:
    """Read CIRR; a query's truth is `targets`, the correct image, and `subset`, its group.

    The group is five other images. The query's image is in the database but not to be ranked.
    """
    captions, lists = (_by_split(root, start) for start in ("captions/cap", "image_splits/split"))
    splits = [split for split in CIRR_SPLITS if split in captions and split in lists]
    records: dict[str, Record] = {}  # by name
    for split in splits:
        with errors_in(lists[split]):
            paths = PATHS.validate_json(lists[split].read_bytes())
        for name, path in paths.items():
            records.setdefault(name, Record(path.removeprefix("./"), split=CIRR_SPLITS[split]))
    positions = {name: position for position, name in enumerate(records)}

    def query(entry: Entry) -> RetrievalQuery:
        members = [name for name in entry["img_set"]["members"] if name != entry["reference"]]
        truth = {"subset": tuple(positions[name] for name in members)}
        if entry.get("target_hard"):
            truth["targets"] = (positions[entry["target_hard"]],)
        image, text = positions[entry["reference"]], str(entry["caption"])
        return RetrievalQuery(image, truth, text, name=_id(entry, "pairid"))

    dataset = pack(records.values(), _cirr_images(root), "CIRR")
    for split in splits:
        _add_queries(dataset, captions[split], ("reference", "caption", "img_set"), query)
    return dataset


def _by_split(root: Path, start: str) -> dict[str, Path]:
    """Return the files by split, of any version: captions/cap.rc2.val.json."""
    paths = sorted(root.glob(f"{start}.*.*.json"), reverse=True)
    return {path.name.split(".")[-2]: path for path in paths}


def _cirr_images(root: Path) -> Path:
    for folder in (root / "img_raw", root, root.parent):
        if any((folder / name).is_dir() for name in ("train", "dev", "test1")):
            return folder
    raise LayoutError(
        f"{root} lacks CIRR's images: expected train/, dev/ or test1/ in img_raw/, "
        "beside captions/ or above it"
    )


def _id(entry: Entry, key: str) -> str | None:
    return str(entry[key]) if key in entry else None


@benchmark(
    "circo",
    "CIRCO, validation: 220 queries with 4.5 correct answers on average among 123,403 images",
    f"annotations/val.json\n{CIRCO_INFO}\n{CIRCO_IMAGES}*.jpg",
    CIRCO_SOURCE,
    ("annotations/val.json", CIRCO_INFO, CIRCO_IMAGES),
    file="annotations/val.json",
    truth=("gt_img_ids",),
)
@benchmark(
    "circo-test",
    "CIRCO, test: 800 queries without public ground truth, in the order of their ids",
    f"annotations/test.json\n{CIRCO_INFO}\n{CIRCO_IMAGES}*.jpg",
    CIRCO_SOURCE,
    ("annotations/test.json", CIRCO_INFO, CIRCO_IMAGES),
    file="annotations/test.json",
    truth=(),
)
def read_circo(root: Path, file: str, truth: tuple[str, ...]) -> Dataset:
    """Read a split; the first target of a query is the one that its sentence was written for."""
    info = read_json(root / CIRCO_INFO)
    listed = info.get("images") if isinstance(info, dict) else info
    images = check_entries(root / CIRCO_INFO, listed, "id", "file_name")
    positions = {image["id"]: position for position, image in enumerate(images)}

    def query(entry: Entry) -> RetrievalQuery:
        targets = tuple(positions[image] for image in entry.get("gt_img_ids", ()))
        image, text = positions[entry["reference_img_id"]], str(entry["relative_caption"])
        truth = {"targets": targets} if targets else {}
        return RetrievalQuery(image, truth, text, name=_id(entry, "id"))

    records = (Record(f"{CIRCO_IMAGES}{image['file_name']}") for image in images)
    dataset = pack(records, root, "CIRCO")
    keys = ("reference_img_id", "relative_caption", *truth)
    _add_queries(dataset, root / file, keys, query)
    return dataset


@benchmark(
    "icir",
    "i-CIR: 202 objects, each with its own queries of an image and a text, and its own database",
    "query_files.csv\ndatabase_files.csv\nquery/\ndatabase/",
    "vrg.fel.cvut.cz/icir (icir_v1.0.0.tar.gz; the WebDataset shards of Hugging Face are not read)",
    ("query_files.csv", "database_files.csv", "query/", "database/"),
    inside=["icir"],
)
def read_icir(root: Path) -> Dataset:
    """Read i-CIR; a query's targets have its object (the class) and its text.

    Every line of the database is a record; a query image that is listed with several texts is one.
    """
    records: list[Record] = []
    targets: defaultdict[tuple[str, str], list[int]] = defaultdict(list)  # by object and text
    for image, text, instance in parse_lines(root / "database_files.csv", _icir_line, 3, ","):
        targets[instance, text].append(len(records))
        records.append(Record(image, instance, "gallery"))
    positions: dict[tuple[str, str], int] = {}  # of query images
    queries: list[RetrievalQuery] = []
    for image, text, instance in parse_lines(root / "query_files.csv", _icir_line, 3, ","):
        position = positions.setdefault((image, instance), len(records))
        if position == len(records):
            records.append(Record(image, instance, "query"))
        truth = {"targets": tuple(targets[instance, text])}
        queries.append(RetrievalQuery(position, truth, text, group=instance))
    dataset = pack(records, root, "i-CIR")
    dataset.queries = queries
    return dataset


def _icir_line(path: str, text: str, instance: str) -> tuple[str, str, str]:
    """Return image, text and object; paths begin with the name of the set's folder."""
    image = path if path.startswith(("query/", "database/")) else path.partition("/")[2]
    check(
        image.startswith(("query/", "database/")),
        "expected icir/query/IMAGE or icir/database/IMAGE, a text and the name of an object",
    )
    return image, text, instance.partition(",")[0]  # further values are ignored, as by its authors
