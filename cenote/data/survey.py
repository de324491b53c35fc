"""What is in a data set: counts, balance, sizes, and what is wrong with which file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import Categories, Strings
from .dataset import Dataset
from .inspection import Look, inspect, same_content

MOST_OPENED = 20_000
SHOWN = 5  # classes named at each end
NO_SPLIT = "(no split)"

Ints = npt.NDArray[np.int64]
Progress = Callable[[Iterable[Look], int], Iterable[Look]]


@dataclass
class Balance:
    """How many each class has; the extremes are of classes that have any."""

    classes: int
    least: int
    median: float
    most: int
    ratio: float
    smallest: list[tuple[str, int]]
    largest: list[tuple[str, int]]
    empty: list[str]


@dataclass
class Split:
    images: int
    classes: int
    not_in_train: int  # classes of this split that train lacks


@dataclass
class Sizes:
    """Pixels of the upright images; the median is of each side alone, the smallest and largest by area."""

    smallest: tuple[int, int]
    median: tuple[int, int]
    largest: tuple[int, int]


@dataclass
class Fault:
    file: str
    reason: str


@dataclass
class Twins:
    """Files with the same bytes."""

    files: list[str]
    splits: list[str]
    labels: list[str]


@dataclass
class Survey:
    name: str
    root: str
    images: int
    unlabelled: int
    splits: dict[str, Split]
    balance: Balance | None
    box_balance: Balance | None  # of boxes with a class of their own
    with_boxes: int
    boxes: int
    with_masks: int
    with_captions: int
    domains: dict[str, int]
    attributes: dict[str, dict[str, int]]
    queries: dict[str, int]
    problems: list[str]  # the reader's
    opened: int = 0
    readable: int = 0
    sizes: Sizes | None = None
    formats: dict[str, int] = field(default_factory=dict)
    odd: dict[str, list[str]] = field(default_factory=dict)  # what was dealt with -> files
    broken: list[Fault] = field(default_factory=list)
    mask_faults: list[Fault] = field(default_factory=list)
    box_faults: list[Fault] = field(default_factory=list)
    twins: list[Twins] = field(default_factory=list)
    good: Ints = field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False
    )  # positions that can be read

    @property
    def across_splits(self) -> list[Twins]:
        return [twins for twins in self.twins if len(set(twins.splits)) > 1]

    @property
    def two_labels(self) -> list[Twins]:
        return [
            twins for twins in self.twins if len({label for label in twins.labels if label}) > 1
        ]

    def report(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        fields = {key: value for key, value in asdict(self).items() if key != "good"}
        extra = {"across_splits": len(self.across_splits), "two_labels": len(self.two_labels)}
        return {**fields, **extra, "sampled": self.opened < self.images}


def survey(
    dataset: Dataset,
    all: bool = False,
    workers: int | None = None,
    progress: Progress = lambda looks, n: looks,
) -> Survey:
    """Count everything, and open every image; of more than 20,000 a sample, the same each time, unless `all`."""
    found = _count(dataset)
    positions = sample(len(dataset), None if all else MOST_OPENED)
    looks = list(progress(inspect(dataset, positions, workers), len(positions)))
    good = [look for look in looks if look.reason is None]
    found.opened, found.readable = len(looks), len(good)
    found.good = np.array([look.position for look in good], np.int64)
    _add_looks(found, looks, lambda position: _name(dataset, position))
    for group in same_content(dataset, good):
        records = [dataset[position] for position in group]
        splits, labels = [r.split or NO_SPLIT for r in records], [r.label or "" for r in records]
        found.twins.append(Twins([_name(dataset, position) for position in group], splits, labels))
    if dataset.pixels:  # only a look tells which have one
        found.with_masks = sum(look.has_mask for look in good)
    return found


def sample(n: int, most: int | None) -> list[int]:
    """All positions, or `most` of them spread at random, always the same ones."""
    if most is None or n <= most:
        return list(range(n))
    return [int(p) for p in np.sort(np.random.default_rng(0).choice(n, most, replace=False))]


def balance(labels: Ints, classes: list[str]) -> Balance | None:
    """None if nothing has a class."""
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
        smallest=named[:SHOWN],
        largest=named[::-1][:SHOWN],
        empty=[classes[c] for c in np.flatnonzero(counts == 0)],
    )


def _count(dataset: Dataset) -> Survey:
    """What the columns say, without opening anything."""
    columns, rows, labels = dataset.columns, dataset.rows, dataset.labels
    box_labels, with_boxes, boxes = _boxes(dataset)
    return Survey(
        name=dataset.name,
        root=str(dataset.root),
        images=len(dataset),
        unlabelled=int((labels < 0).sum()),
        splits=_splits(dataset, labels),
        balance=balance(labels, dataset.classes),
        box_balance=balance(box_labels, dataset.classes),
        with_boxes=with_boxes,
        boxes=boxes,
        with_masks=int(dataset.has_masks.sum()),
        with_captions=_known(columns["caption"], rows),
        domains=_counts(dataset.domains),
        attributes={key: _counts(dataset.attribute(key)) for key in columns["attributes"]},
        queries=_queries(dataset),
        problems=list(dataset.problems),
    )


def _add_looks(found: Survey, looks: list[Look], name: Callable[[int], str]) -> None:
    good = [look for look in looks if look.reason is None]
    found.formats = dict(Counter(look.format for look in good if look.format).most_common())
    if good:
        sides = np.array([look.size for look in good])
        width, height = (int(side) for side in np.median(sides, 0))
        by_area = sorted((look.size for look in good), key=lambda size: (size[0] * size[1], size))
        found.sizes = Sizes(by_area[0], (width, height), by_area[-1])
    for look in looks:
        if look.reason is not None:
            found.broken.append(Fault(name(look.position), look.reason))
        for kind in look.odd:
            found.odd.setdefault(kind, []).append(name(look.position))
        if look.mask is not None:
            found.mask_faults.append(Fault(name(look.position), look.mask))
        found.box_faults += [Fault(name(look.position), fault) for fault in look.boxes]


def _name(dataset: Dataset, position: int) -> str:
    return dataset[position].image or f"image {position}"


def _splits(dataset: Dataset, labels: Ints) -> dict[str, Split]:
    column = dataset.columns["split"]
    codes = column.codes[dataset.rows]
    classes = {
        code: {int(c) for c in np.unique(labels[codes == code]) if c >= 0}
        for code in np.unique(codes)
    }
    train = classes.get(column.names.index("train")) if "train" in column.names else None
    found = {}
    for split in dataset.splits:
        code = -1 if split is None else column.names.index(split)
        unseen = len(classes[code] - train) if train else 0
        found[split or NO_SPLIT] = Split(int((codes == code).sum()), len(classes[code]), unseen)
    return found


def _boxes(dataset: Dataset) -> tuple[Ints, int, int]:
    """Classes of the boxes that have their own, images with boxes, boxes."""
    if dataset.columns["boxes"] is None:
        return np.zeros(0, np.int64), 0, 0
    ends, _, labels, _ = dataset.columns["boxes"]
    each = np.diff(ends, prepend=0)
    chosen = np.isin(np.repeat(np.arange(len(ends)), each), dataset.rows)
    mine = each[dataset.rows]
    return labels.codes[chosen].astype(np.int64), int((mine > 0).sum()), int(mine.sum())


def _counts(column: Categories) -> dict[str, int]:
    counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.names))
    return {name: int(n) for name, n in zip(column.names, counts, strict=True) if n}


def _known(column: Strings | None, rows: Ints) -> int:
    if column is None:
        return 0
    return len(rows) if column.known is None else int(column.known[rows].sum())


def _queries(dataset: Dataset) -> dict[str, int]:
    """How many, and the right answers of each kind."""
    if not dataset.queries:
        return {}
    kinds: Counter[str] = Counter()
    for query in dataset.queries:
        kinds.update({kind: len(found) for kind, found in query.truth.items()})
    texts = sum(query.text is not None for query in dataset.queries)
    return {"queries": len(dataset.queries), "with text": texts, **kinds}
