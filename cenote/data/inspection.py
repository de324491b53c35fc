"""Inspect a data set: counts, class balance, image sizes, and a list of problems per file."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from .dataset import Dataset, images_are_files
from .digests import digests
from .images import BadImage
from .processes import available_cores, map_in_processes
from .table import Categories, Strings

MAX_OPENED = 20_000  # images; of a larger data set a sample is opened
MIN_FOR_WORKERS = 64  # images that are opened sooner than processes are started
EXTREMES = 5  # classes named at each end of the balance
NO_SPLIT = "(no split)"
DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
TRANSPARENT_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
SAME_FORMAT = {"MPO": "JPEG", "DIB": "BMP"}

Ints = npt.NDArray[np.int64]


@dataclass
class Balance:
    """Number of images (or boxes) per class; the extremes are of classes that have any."""

    classes: int
    least: int
    median: float
    most: int
    ratio: float
    smallest: list[tuple[str, int]]
    largest: list[tuple[str, int]]
    empty: list[str]


@dataclass
class SplitCounts:
    """Counts of one split."""

    images: int
    classes: int
    not_in_train: int  # classes of this split without training images


@dataclass
class ImageSizes:
    """Sizes (width, height) of the upright images: median of each side, extremes by area."""

    smallest: tuple[int, int]
    median: tuple[int, int]
    largest: tuple[int, int]


@dataclass
class FileProblem:
    """What is wrong with one file."""

    file: str
    reason: str


@dataclass
class Duplicates:
    """Files with the same bytes."""

    files: list[str]
    splits: list[str]
    labels: list[str]


@dataclass
class DatasetReport:
    """Result of `inspect_dataset`; the field names are the keys of the JSON report."""

    name: str
    root: str
    images: int
    unlabelled: int
    splits: dict[str, SplitCounts]
    balance: Balance | None
    box_balance: Balance | None  # of boxes with a class of their own
    with_boxes: int
    boxes: int
    with_masks: int
    with_captions: int
    domains: dict[str, int]
    attributes: dict[str, dict[str, int]]
    queries: dict[str, int]
    problems: list[str]  # of the reader
    opened: int = 0
    readable: int = 0
    sizes: ImageSizes | None = None
    formats: dict[str, int] = field(default_factory=dict)
    odd: dict[str, list[str]] = field(default_factory=dict)  # unusual but handled -> files
    broken: list[FileProblem] = field(default_factory=list)
    mask_faults: list[FileProblem] = field(default_factory=list)
    box_faults: list[FileProblem] = field(default_factory=list)
    twins: list[Duplicates] = field(default_factory=list)
    # Positions of images that can be read; not in the JSON report.
    good: Ints = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)

    @property
    def across_splits(self) -> list[Duplicates]:
        """Duplicates in more than one split."""
        return [twins for twins in self.twins if len(set(twins.splits)) > 1]

    @property
    def two_labels(self) -> list[Duplicates]:
        """Duplicates with different labels."""
        return [twins for twins in self.twins if len({*twins.labels} - {""}) > 1]

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        fields = {key: value for key, value in asdict(self).items() if key != "good"}
        extra = {"across_splits": len(self.across_splits), "two_labels": len(self.two_labels)}
        return {**fields, **extra, "sampled": self.opened < self.images}


def inspect_dataset(
    dataset: Dataset, all: bool = False, workers: int | None = None, progress: bool = False
) -> DatasetReport:
    """Count everything and open every image; unless `all`, of more than 20,000 a fixed sample."""
    from tqdm import tqdm

    report = _count(dataset)
    positions = sample_positions(len(dataset), None if all else MAX_OPENED)
    inspections = tqdm(
        inspect_images(dataset, positions, workers),
        total=len(positions),
        unit="image",
        disable=None if progress else True,
        delay=1,
        leave=False,
        file=sys.stderr,
    )
    _add_inspections(report, list(inspections), dataset)
    return report


def sample_positions(n: int, limit: int | None) -> list[int]:
    """Return all positions, or a random sample of `limit`, always the same."""
    if limit is None or n <= limit:
        return list(range(n))
    return [int(p) for p in np.sort(np.random.default_rng(0).choice(n, limit, replace=False))]


# Counts: read from the columns, without opening images.


def _count(dataset: Dataset) -> DatasetReport:
    table, labels = dataset.table, dataset.labels
    box_labels, boxes_per_image = _count_boxes(dataset)
    return DatasetReport(
        name=dataset.name,
        root=str(dataset.root),
        images=len(dataset),
        unlabelled=int((labels < 0).sum()),
        splits=_count_splits(dataset, labels),
        balance=class_balance(labels, dataset.classes),
        box_balance=class_balance(box_labels, dataset.classes),
        with_boxes=int((boxes_per_image > 0).sum()),
        boxes=int(boxes_per_image.sum()),
        with_masks=int(dataset.has_masks.sum()),
        with_captions=_count_present(table.caption, dataset.rows),
        domains=_count_names(dataset.domains),
        attributes={key: _count_names(dataset.attribute(key)) for key in table.attributes},
        queries=_count_queries(dataset),
        problems=list(dataset.problems),
    )


def class_balance(labels: Ints, classes: list[str]) -> Balance | None:
    """Return the class balance of labels, None if there is no label."""
    counts = np.bincount(labels[labels >= 0], minlength=len(classes))
    present = np.flatnonzero(counts)
    if not len(present):
        return None
    order = present[np.argsort(counts[present], kind="stable")]
    named = [(classes[c], int(counts[c])) for c in order]
    least, most = named[0][1], named[-1][1]
    return Balance(
        classes=len(present),
        least=least,
        median=float(np.median(counts[present])),
        most=most,
        ratio=most / least,
        smallest=named[:EXTREMES],
        largest=named[::-1][:EXTREMES],
        empty=[classes[c] for c in np.flatnonzero(counts == 0)],
    )


def _count_splits(dataset: Dataset, labels: Ints) -> dict[str, SplitCounts]:
    splits = dataset.table.split.select(dataset.rows)
    codes = {name: code for code, name in enumerate(splits.names)}
    classes = {name: np.unique(labels[splits.codes == code]) for name, code in codes.items()}
    train = classes.get("train", np.zeros(0, np.int64))
    counts = {}
    for split, images in dataset.splits.items():
        present = np.unique(labels[splits.codes == codes.get(split or "", -1)])
        present = present[present >= 0]
        unseen = len(np.setdiff1d(present, train)) if (train >= 0).any() else 0
        counts[split or NO_SPLIT] = SplitCounts(images, len(present), unseen)
    return counts


def _count_boxes(dataset: Dataset) -> tuple[Ints, Ints]:
    """Return the classes of the boxes that have one, and the number of boxes per image."""
    if dataset.table.boxes is None:
        return np.zeros(0, np.int64), np.zeros(len(dataset), np.int64)
    ends, _, labels, _ = dataset.table.boxes
    per_row = np.diff(ends, prepend=0)
    selected = np.isin(np.repeat(np.arange(len(ends)), per_row), dataset.rows)
    return labels.codes[selected].astype(np.int64), per_row[dataset.rows]


def _count_names(column: Categories) -> dict[str, int]:
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.names))
    return {name: int(n) for name, n in zip(column.names, counts, strict=True) if n}


def _count_present(column: Strings | None, rows: Ints) -> int:
    if column is None:
        return 0
    return len(rows) if column.present is None else int(column.present[rows].sum())


def _count_queries(dataset: Dataset) -> dict[str, int]:
    """Return the number of queries and of correct answers of each kind."""
    if not dataset.queries:
        return {}
    kinds: Counter[str] = Counter()
    for query in dataset.queries:
        kinds.update({kind: len(answers) for kind, answers in query.truth.items()})
    texts = sum(query.text is not None for query in dataset.queries)
    return {"queries": len(dataset.queries), "with text": texts, **kinds}


# Inspections: every image is opened once.


class ImageInspection(NamedTuple):
    """Facts about one image; if `reason` says why it cannot be read, nothing else is known."""

    position: int
    reason: str | None = None
    size: tuple[int, int] = (0, 0)  # upright
    content: int | str = 0  # bytes of the file, or the hash of the pixels without a file
    format: str | None = None
    odd: tuple[str, ...] = ()  # unusual but handled
    mask_problem: str | None = None
    has_mask: bool = False
    box_problems: tuple[str, ...] = ()


def inspect_images(
    dataset: Dataset, positions: Sequence[int], workers: int | None = None
) -> Iterator[ImageInspection]:
    """Inspect images in order, in `workers` processes (default: one per core)."""
    if len(positions) <= MIN_FOR_WORKERS:
        workers = 0
    elif workers is None:
        workers = available_cores()
    return map_in_processes(_inspect, dataset, positions, workers)


def find_duplicates(dataset: Dataset, inspections: Iterable[ImageInspection]) -> list[list[int]]:
    """Return groups of images with the same bytes; only files of equal length are read again."""
    groups = _group((i.content, i.position) for i in inspections if i.reason is None)
    if not images_are_files(dataset.pixels):
        return sorted(groups)
    candidates = sorted(position for group in groups for position in group)
    hashed = zip(digests(dataset.select(candidates)), candidates, strict=True)
    return sorted(_group((digest, position) for digest, position in hashed if digest))


def _group(items: Iterable[tuple[Any, int]]) -> list[list[int]]:
    """Return the positions that share a key with another position."""
    groups: dict[Any, list[int]] = {}
    for key, position in items:
        groups.setdefault(key, []).append(position)
    return [group for group in groups.values() if len(group) > 1]


def _inspect(dataset: Dataset, position: int) -> ImageInspection:
    try:
        image = dataset.image(position)
    except BadImage as error:
        return ImageInspection(position, error.reason)
    has_mask, mask_problem = _check_mask(dataset, position, image.size)
    inspection = ImageInspection(
        position,
        size=image.size,
        mask_problem=mask_problem,
        has_mask=has_mask,
        box_problems=tuple(_check_boxes(dataset, position, image.size)),
    )
    if not images_are_files(dataset.pixels):
        content = hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()
        return inspection._replace(content=content)
    path = dataset.path(position)
    file_format, odd = _inspect_header(path)
    return inspection._replace(content=path.stat().st_size, format=file_format, odd=odd)


def _inspect_header(path: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the format by content, and what read_image had to handle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path) as image:
            file_format = SAME_FORMAT.get(image.format or "", image.format)
            by_suffix = Image.registered_extensions().get(path.suffix.lower())
            frames, mode = getattr(image, "n_frames", 1), image.mode
            try:
                rotated, malformed = image.getexif().get(0x0112, 1) in range(2, 9), False
            except Exception:  # malformed EXIF: the image was read without it
                rotated, malformed = False, True
    transparent = mode in TRANSPARENT_MODES or "transparency" in image.info
    renamed = by_suffix is not None and SAME_FORMAT.get(by_suffix, by_suffix) != file_format
    checks = {
        f"{file_format} named {path.suffix}": renamed,
        "CMYK": mode == "CMYK",
        "16 bits or more": mode in DEEP_MODES,
        "palette": mode in ("P", "PA"),
        "greyscale": mode in ("1", "L", "LA"),
        "transparent": transparent,
        "animated": frames > 1 and file_format != "JPEG",  # phones add a small preview
        "turned by EXIF": rotated,
        "malformed EXIF": malformed,
    }
    return file_format, tuple(name for name, applies in checks.items() if applies)


def _check_mask(dataset: Dataset, position: int, size: tuple[int, int]) -> tuple[bool, str | None]:
    """Return whether there is a mask, and what is wrong with it."""
    try:
        mask = dataset.mask(position)
    except BadImage as error:
        return True, str(error)
    if mask is None or mask.shape == size[::-1]:
        return mask is not None, None
    height, width = mask.shape
    return True, f"the mask is {width} x {height} pixels, the image {size[0]} x {size[1]}"


def _check_boxes(dataset: Dataset, position: int, size: tuple[int, int]) -> Iterator[str]:
    """Yield what is wrong with the boxes; a pixel beyond the border is rounding, more is not."""
    for x1, y1, x2, y2, *_ in dataset[position].boxes:
        box = f"box {x1:g}, {y1:g}, {x2:g}, {y2:g}"
        if not (x1 < x2 and y1 < y2):
            yield f"{box} is empty"
        elif x1 < -1 or y1 < -1 or x2 > size[0] + 1 or y2 > size[1] + 1:
            yield f"{box} is partly outside the image of {size[0]} x {size[1]} pixels"


def _add_inspections(
    report: DatasetReport, inspections: list[ImageInspection], dataset: Dataset
) -> None:
    def name(position: int) -> str:
        return dataset[position].image or f"image {position}"

    readable = [inspection for inspection in inspections if inspection.reason is None]
    report.opened, report.readable = len(inspections), len(readable)
    report.good = np.array([i.position for i in readable], np.int64)
    report.formats = dict(Counter(i.format for i in readable if i.format).most_common())
    if dataset.pixels:  # only now it is known which images have one
        report.with_masks = sum(i.has_mask for i in readable)
    if readable:
        width, height = (int(side) for side in np.median([i.size for i in readable], 0))
        by_area = sorted((i.size for i in readable), key=lambda size: (size[0] * size[1], size))
        report.sizes = ImageSizes(by_area[0], (width, height), by_area[-1])
    for inspection in inspections:
        file = name(inspection.position)
        if inspection.reason is not None:
            report.broken.append(FileProblem(file, inspection.reason))
        for kind in inspection.odd:
            report.odd.setdefault(kind, []).append(file)
        if inspection.mask_problem is not None:
            report.mask_faults.append(FileProblem(file, inspection.mask_problem))
        report.box_faults += [FileProblem(file, reason) for reason in inspection.box_problems]
    for group in find_duplicates(dataset, readable):
        records = [dataset[position] for position in group]
        splits, labels = [r.split or NO_SPLIT for r in records], [r.label or "" for r in records]
        report.twins.append(Duplicates([name(position) for position in group], splits, labels))
