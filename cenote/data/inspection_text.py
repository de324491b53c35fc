"""Format the report of a data set as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from .inspection import NO_SPLIT, Balance, DatasetReport, SplitCounts

WIDTH, INDENT = 100, 14  # in characters
MAX_LISTED = 8  # items of a list; the JSON report has all


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
        yield "classes", _balance_text(report.balance, "image")
        yield from _extremes(report.balance)
    if report.unlabelled:
        yield "no class", _plural(report.unlabelled, "image")
    if report.sizes is not None:
        small, median, large = ("{} x {}".format(*size) for size in vars(report.sizes).values())
        sizes = f"all {small}" if small == large else f"{small} to {large}, median {median}"
        formats = [f"{name} {n:,}" for name, n in report.formats.items()]
        yield "sizes", " · ".join([f"{sizes} pixels", *formats])
    if report.boxes:
        yield "boxes", f"{report.boxes:,} on {_share(report.with_boxes, report.images)}"
    if report.box_balance is not None:
        yield "", _balance_text(report.box_balance, "box")
        yield from _extremes(report.box_balance)
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
        yield "handled", ", ".join(f"{kind} {len(files):,}" for kind, files in report.odd.items())


def _sections(report: DatasetReport) -> Iterator[tuple[str, list[str]]]:
    """Yield the lists below the facts, each with its heading."""
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
    unreadable = report.opened - report.readable
    result = f"{unreadable:,} cannot be read" if unreadable else "all can be read"
    if report.opened < report.images:
        sample = f"a sample of {report.opened:,} of {report.images:,}"
        return f"{sample} (--all opens every image): {result}"
    return f"all {report.opened:,}: {result}"


def _split_text(name: str, split: SplitCounts) -> str:
    if not split.classes:
        return f"{name} {split.images:,}"
    unseen = f", {split.not_in_train} of them not in train" if split.not_in_train else ""
    return f"{name} {split.images:,} ({_plural(split.classes, 'class')}{unseen})"


def _balance_text(balance: Balance, noun: str) -> str:
    classes = _plural(balance.classes, "class")
    if balance.least == balance.most:
        return f"{classes}, {_plural(balance.least, noun)} each"
    spread = f"{balance.least:,} to {_plural(balance.most, noun)} each"
    ratio = f"the largest {balance.ratio:.3g} times the smallest"
    return f"{classes}, {spread}, median {balance.median:g}, {ratio}"


def _extremes(balance: Balance) -> Iterator[tuple[str, str]]:
    largest = ", ".join(f"{name} {n:,}" for name, n in balance.largest)
    if balance.least != balance.most and balance.classes <= len(balance.largest):
        yield "", largest
    elif balance.least != balance.most:
        yield "", f"most: {largest}"
        yield "", "fewest: " + ", ".join(f"{name} {n:,}" for name, n in balance.smallest)
    if balance.empty:
        names = ", ".join(balance.empty[:MAX_LISTED])
        more = len(balance.empty) - MAX_LISTED
        names += f" and {more} more" if more > 0 else ""
        yield "", f"{_plural(len(balance.empty), 'class')} without any: {names}"


def _values_text(values: Mapping[str, int]) -> str:
    if len(values) > MAX_LISTED:
        return f"{len(values):,} values ({', '.join(list(values)[:3])}, ...)"
    return ", ".join(f"{name} {n:,}" for name, n in values.items())


def _share(count: int, images: int) -> str:
    return f"all {images:,} images" if count == images else f"{count:,} of {images:,} images"


def _plural(count: int, singular: str, plural: str | None = None) -> str:
    if count == 1:
        return f"1 {singular}"
    suffix = "es" if singular.endswith(("s", "x")) else "s"
    return f"{count:,} {plural or singular + suffix}"
