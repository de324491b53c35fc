"""Inspect a data set: counts, class balance, image sizes, and a list of problems per file."""

from __future__ import annotations

import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..progress import progress_bar
from .dataset import Dataset, images_are_files
from .digests import digest_of
from .ground_truth import mask_of
from .images import BadImage
from .processes import available_cores, map_in_processes
from .table import Categories
from .video import is_video_name

MAX_OPENED = 20_000  # images; of a larger data set a sample is opened
MIN_FOR_WORKERS = 64  # images that are opened sooner than processes are started
EXTREMES = 5  # classes named at each end of the balance
NO_SPLIT = "(no split)"
DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
TRANSPARENT_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
SAME_FORMAT = {"MPO": "JPEG", "DIB": "BMP"}
WIDTH, INDENT = 100, 14  # of the text, in characters
MAX_LISTED = 8  # items of a list in the text; the JSON report has all

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
    several_classes: int = 0  # images with more than one class
    classes_per_image: float | None = None  # the mean, if images may have several
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

    def as_json(self) -> dict[str, object]:
        """Return the report as JSON values."""
        fields = {key: value for key, value in asdict(self).items() if key != "good"}
        extra = {"across_splits": len(self.across_splits), "two_labels": len(self.two_labels)}
        return {**fields, **extra, "sampled": self.opened < self.images}


def inspect_dataset(
    dataset: Dataset, all: bool = False, workers: int | None = None
) -> DatasetReport:
    """Count everything and open every image; unless `all`, of more than 20,000 a fixed sample.

    Images are opened in `workers` processes, by default one per core.
    """
    report = _count(dataset)
    positions = list(range(len(dataset)))
    if len(positions) > MAX_OPENED and not all:
        sample = np.random.default_rng(0).choice(len(positions), MAX_OPENED, replace=False)
        positions = np.sort(sample).tolist()
    if len(positions) <= MIN_FOR_WORKERS:
        workers = 0
    elif workers is None:
        workers = available_cores()
    inspections = map_in_processes(_inspect, dataset, positions, workers)
    bar = progress_bar("opening", len(positions), iterable=inspections, delay=1)
    _add_inspections(report, list(bar), dataset)
    return report


# Counts: read from the columns, without opening images.


def _count(dataset: Dataset) -> DatasetReport:
    table = dataset.table
    box_labels, boxes_per_image = _count_boxes(dataset)
    report = DatasetReport(
        name=dataset.name,
        root=str(dataset.root),
        images=len(dataset),
        unlabelled=int((~dataset.labelled).sum()),
        splits=_count_splits(dataset),
        balance=class_balance(_labels(dataset), dataset.classes),
        box_balance=class_balance(box_labels, dataset.classes),
        with_boxes=int((boxes_per_image > 0).sum()),
        boxes=int(boxes_per_image.sum()),
        with_masks=int(dataset.has_masks.sum()),
        with_captions=int(table.caption.present[dataset.rows].sum()),
        domains=_count_names(dataset.domains),
        attributes={key: _count_names(dataset.attribute(key)) for key in table.attributes},
        queries=_count_queries(dataset),
        problems=list(dataset.problems),
    )
    if dataset.multi_label:
        per_image = dataset.class_matrix[dataset.labelled].sum(1)
        report.several_classes = int((per_image > 1).sum())
        report.classes_per_image = float(per_image.mean()) if len(per_image) else None
    return report


def _labels(dataset: Dataset) -> Ints:
    """Return the classes of all images: an image with several contributes each."""
    return np.nonzero(dataset.class_matrix)[1] if dataset.multi_label else dataset.labels


def class_balance(labels: Ints, classes: list[str]) -> Balance | None:
    """Return the class balance of labels, None without labels."""
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


def _count_splits(dataset: Dataset) -> dict[str, SplitCounts]:
    column = dataset.table.split.select(dataset.rows)
    names = np.array([*column.names, NO_SPLIT])[column.codes]  # code -1 is the last name
    train = {*_labels(dataset.select(names == "train")).tolist()} - {-1}
    counts = {}
    for name, images in dataset.splits.items():
        split = name or NO_SPLIT
        classes = {*_labels(dataset.select(names == split)).tolist()} - {-1}
        unseen = classes - (train or classes)
        counts[split] = SplitCounts(images, len(classes), len(unseen))
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


def _count_queries(dataset: Dataset) -> dict[str, int]:
    if not dataset.queries:
        return {}
    kinds: Counter[str] = Counter()
    for query in dataset.queries:
        kinds.update({kind: len(answers) for kind, answers in query.truth.items()})
    texts = sum(query.text is not None for query in dataset.queries)
    return {"queries": len(dataset.queries), "with text": texts, **kinds}


# Inspections: every image is opened once.


class ImageInspection(NamedTuple):
    """Facts about one image."""

    position: int
    size: tuple[int, int] | None = None  # upright; None: it cannot be read
    digest: bytes = b""  # of the file, or of the pixels without a file
    format: str | None = None
    odd: tuple[str, ...] = ()  # unusual but handled
    has_mask: bool = False
    problems: tuple[tuple[str, str], ...] = ()  # a list of the report, and the reason


def _inspect(dataset: Dataset, position: int) -> ImageInspection:
    try:
        image = dataset.image(position)
    except BadImage as error:
        return ImageInspection(position, problems=(("broken", error.reason),))
    problems = [("box_faults", text) for text in _check_boxes(dataset, position, image.size)]
    has_mask = True
    try:
        has_mask = mask_of(dataset, position, image.size) is not None
    except BadImage as error:
        reason = error.reason if error.path == dataset.path(position) else str(error)
        problems.append(("mask_faults", reason))
    inspection = ImageInspection(position, image.size, has_mask=has_mask, problems=tuple(problems))
    path = dataset.path(position)
    if not images_are_files(dataset.pixels) or is_video_name(path):
        return inspection._replace(digest=digest_of(image.tobytes()))
    file_format, odd = _inspect_header(path)
    digest = digest_of(path.read_bytes())
    return inspection._replace(digest=digest, format=file_format, odd=odd)


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

    readable = [inspection for inspection in inspections if inspection.size]
    report.opened, report.readable = len(inspections), len(readable)
    report.good = np.array([i.position for i in readable], np.int64)
    report.formats = dict(Counter(i.format for i in readable if i.format).most_common())
    if dataset.pixels:  # only now it is known which images have one
        report.with_masks = sum(i.has_mask for i in readable)
    sizes = sorted((i.size for i in readable if i.size), key=lambda size: (size[0] * size[1], size))
    if sizes:
        width, height = (int(side) for side in np.median(sizes, 0))
        report.sizes = ImageSizes(sizes[0], (width, height), sizes[-1])
    for inspection in inspections:
        file = name(inspection.position)
        for kind in inspection.odd:
            report.odd.setdefault(kind, []).append(file)
        for key, reason in inspection.problems:
            getattr(report, key).append(FileProblem(file, reason))
    copies: dict[bytes, list[int]] = {}
    for inspection in readable:
        copies.setdefault(inspection.digest, []).append(inspection.position)
    for group in sorted(group for group in copies.values() if len(group) > 1):
        records = [dataset[position] for position in group]
        splits = [r.split or NO_SPLIT for r in records]
        labels = [" + ".join(sorted(r.labels or ())) or r.label or "" for r in records]
        report.twins.append(Duplicates([name(position) for position in group], splits, labels))


# The report as text.


def report_text(report: DatasetReport) -> str:
    """Format a report: facts, warnings, then problems per file."""
    lines = [f"{report.name}: {_plural(report.images, 'image')} in {report.root}", ""]
    for heading, text in _facts(report):
        first = f"  {heading}".ljust(INDENT)
        lines += textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * INDENT)
    for heading, items in _sections(report):
        if items:
            lines += ["", heading, *(f"  {item}" for item in items[:MAX_LISTED])]
        if len(items) > MAX_LISTED:
            lines.append(f"  and {len(items) - MAX_LISTED:,} more: see --json or --out")
    return "\n".join(lines)


def _facts(report: DatasetReport) -> Iterator[tuple[str, str]]:
    if set(report.splits) != {NO_SPLIT}:
        yield "splits", " · ".join(_split_text(*item) for item in report.splits.items())
    if report.balance is not None:
        yield from _balance_text("classes", report.balance, "image")
    if report.classes_per_image is not None:
        several = f"several classes on {_share(report.several_classes, report.images)}"
        yield "", f"{several}: {report.classes_per_image:.1f} per image on average"
    if report.unlabelled:
        yield "no class", _plural(report.unlabelled, "image")
    if report.sizes is not None:
        small, median, large = ("{} x {}".format(*size) for size in vars(report.sizes).values())
        sizes = f"all {small}" if small == large else f"{small} to {large}, median {median}"
        yield "sizes", " · ".join([f"{sizes} pixels", *_counted(report.formats)])
    if report.boxes:
        yield "boxes", f"{report.boxes:,} on {_share(report.with_boxes, report.images)}"
    if report.box_balance is not None:
        yield from _balance_text("", report.box_balance, "box")
    for heading, count in (("masks", report.with_masks), ("captions", report.with_captions)):
        if count:
            yield heading, f"on {_share(count, report.images)}"
    if report.domains:
        yield "domains", _values_text(report.domains)
    for i, (key, values) in enumerate(report.attributes.items()):
        yield "" if i else "attributes", f"{key}: {_values_text(values)}"
    if report.queries:
        yield "queries", ", ".join(f"{n:,} {kind}" for kind, n in report.queries.items() if n)
    yield "opened", _opened_text(report)
    if report.odd:
        yield "handled", ", ".join(_counted({k: len(files) for k, files in report.odd.items()}))


def _sections(report: DatasetReport) -> Iterator[tuple[str, list[str]]]:
    across, relabelled = report.across_splits, report.two_labels
    yield (
        f"WARNING: {_plural(len(across), 'image')} in more than one split: "
        "the test images include training images",
        [_annotated(twins.files, twins.splits) for twins in across],
    )
    yield (
        f"WARNING: {_plural(len(relabelled), 'image')} with two different labels",
        [_annotated(twins.files, twins.labels) for twins in relabelled],
    )
    for problems, noun, what in (
        (report.broken, "file", "that cannot be read"),
        (report.mask_faults, "mask", "that cannot be used"),
        (report.box_faults, "box", "outside the image or empty"),
    ):
        heading = f"{_plural(len(problems), noun)} {what}:"
        yield heading, [f"{problem.file}: {problem.reason}" for problem in problems]
    skipped = _plural(len(report.problems), "line or file", "lines or files")
    yield f"{skipped} that the reader skipped:", report.problems
    copies = [t for t in report.twins if len(set(t.splits)) == 1 and t not in relabelled]
    heading = f"{_plural(len(copies), 'image')} more than once:"
    yield heading, [" = ".join(twins.files) for twins in copies]


def _annotated(files: Sequence[str], notes: Sequence[str]) -> str:
    return " = ".join(f"{file} [{note}]" for file, note in zip(files, notes, strict=True))


def _opened_text(report: DatasetReport) -> str:
    result = "all can be read"
    if unreadable := report.opened - report.readable:
        result = f"{unreadable:,} cannot be read"
    if report.opened < report.images:
        sample = f"a sample of {report.opened:,} of {report.images:,}"
        return f"{sample} (--all opens every image): {result}"
    return f"all {report.opened:,}: {result}"


def _split_text(name: str, split: SplitCounts) -> str:
    if not split.classes:
        return f"{name} {split.images:,}"
    unseen = f", {split.not_in_train} of them not in train" if split.not_in_train else ""
    return f"{name} {split.images:,} ({_plural(split.classes, 'class')}{unseen})"


def _balance_text(heading: str, balance: Balance, noun: str) -> Iterator[tuple[str, str]]:
    classes, largest = _plural(balance.classes, "class"), ", ".join(_counted(balance.largest))
    if balance.least == balance.most:
        yield heading, f"{classes}, {_plural(balance.least, noun)} each"
    else:
        spread = f"{balance.least:,} to {_plural(balance.most, noun)} each"
        ratio = f"the largest {balance.ratio:.3g} times the smallest"
        yield heading, f"{classes}, {spread}, median {balance.median:g}, {ratio}"
        if balance.classes <= EXTREMES:
            yield "", largest
        else:
            yield "", f"most: {largest}"
            yield "", f"fewest: {', '.join(_counted(balance.smallest))}"
    if balance.empty:
        names = ", ".join(balance.empty[:MAX_LISTED])
        unlisted = len(balance.empty) - MAX_LISTED
        names += f" and {unlisted} more" * (unlisted > 0)
        yield "", f"{_plural(len(balance.empty), 'class')} without any: {names}"


def _counted(counts: Mapping[str, int] | Sequence[tuple[str, int]]) -> list[str]:
    return [f"{name} {n:,}" for name, n in dict(counts).items()]


def _values_text(values: Mapping[str, int]) -> str:
    if len(values) > MAX_LISTED:
        return f"{len(values):,} values ({', '.join(list(values)[:3])}, ...)"
    return ", ".join(_counted(values))


def _share(count: int, images: int) -> str:
    if count == images:
        return f"all {images:,} images"
    return f"{count:,} of {images:,} images"


def _plural(count: int, singular: str, plural: str | None = None) -> str:
    if count == 1:
        return f"1 {singular}"
    suffix = "es" if singular.endswith(("s", "x")) else "s"
    return f"{count:,} {plural or singular + suffix}"
