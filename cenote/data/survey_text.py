"""A survey of a data set as a page of text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from .benchmarks import Benchmark
from .survey import Balance, Fault, Survey, Twins

T = TypeVar("T")
WIDTH, COLUMN = 100, 12
FIRST = 8  # of each list of faults; the report has all


def survey_text(survey: Survey) -> str:
    """Facts first, then warnings, then what is wrong with which file."""
    lines = [f"{survey.name}: {_n(survey.images, 'image')} in {survey.root}", ""]
    for head, text in _facts(survey):
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=f"  {head.ljust(COLUMN)}", subsequent_indent=" " * 14
        )
    for section in (_warnings(survey), _faults(survey)):
        lines += section
    return "\n".join(lines)


def benchmarks_text(known: Mapping[str, Benchmark]) -> str:
    """The published sets: what each is, the tree it expects, and where to get it."""
    blocks = ["`cenote data NAME:FOLDER` reads one of these, where FOLDER holds its tree."]
    for name, benchmark in known.items():
        tree = "\n".join(f"      {line}" for line in benchmark.tree.splitlines())
        blocks.append(f"{name}\n    {benchmark.title}\n{tree}\n    from {benchmark.source}")
    return "\n\n".join(blocks)


def _facts(survey: Survey) -> Iterator[tuple[str, str]]:
    if set(survey.splits) != {"(no split)"}:
        yield "splits", " · ".join(_splits(survey))
    if survey.balance is not None:
        yield "classes", _balance(survey.balance, "image")
        yield from _ends(survey.balance)
    if survey.unlabelled:
        yield "no class", _n(survey.unlabelled, "image")
    if survey.sizes is not None:
        small, middle, large = ("{} x {}".format(*size) for size in vars(survey.sizes).values())
        sizes = f"all {small}" if small == large else f"{small} to {large}, median {middle}"
        yield (
            "sizes",
            " · ".join(
                [f"{sizes} pixels", *(f"{name} {n:,}" for name, n in survey.formats.items())]
            ),
        )
    if survey.boxes:
        yield "boxes", f"{survey.boxes:,} on {_of(survey.with_boxes, survey.images)}"
    if survey.box_balance is not None:
        yield "", _balance(survey.box_balance, "box")
        yield from _ends(survey.box_balance)
    for head, count in (("masks", survey.with_masks), ("captions", survey.with_captions)):
        if count:
            yield head, f"on {_of(count, survey.images)}"
    if survey.domains:
        yield "domains", _counts(survey.domains)
    for i, (key, values) in enumerate(survey.attributes.items()):
        yield "attributes" * (i == 0), f"{key}: {_counts(values)}"
    if survey.queries:
        yield "queries", ", ".join(f"{n:,} {kind}" for kind, n in survey.queries.items() if n)
    yield "opened", _opened(survey)
    if survey.odd:
        yield (
            "dealt with",
            ", ".join(f"{kind} {len(files):,}" for kind, files in survey.odd.items()),
        )


def _opened(survey: Survey) -> str:
    bad = survey.opened - survey.readable
    told = f"{bad:,} cannot be read" if bad else "every one can be read"
    if survey.opened < survey.images:
        return f"a sample of {survey.opened:,} of {survey.images:,} (--all opens every one): {told}"
    return f"all {survey.opened:,}: {told}"


def _splits(survey: Survey) -> Iterator[str]:
    for name, split in survey.splits.items():
        unseen = f", {split.not_in_train} of them not in train" if split.not_in_train else ""
        yield f"{name} {split.images:,}" + (
            f" ({_n(split.classes, 'class')}{unseen})" if split.classes else ""
        )


def _balance(balance: Balance, what: str) -> str:
    if balance.least == balance.most:
        return f"{_n(balance.classes, 'class')}, {_n(balance.least, what)} each"
    spread = f"{balance.least:,} to {_n(balance.most, what)} each, median {balance.median:g}"
    return f"{_n(balance.classes, 'class')}, {spread}, the largest {balance.ratio:.3g} times the smallest"


def _ends(balance: Balance) -> Iterator[tuple[str, str]]:
    if balance.least != balance.most:
        few = balance.classes <= len(balance.largest)
        yield (
            "",
            ("" if few else "most: ") + ", ".join(f"{name} {n:,}" for name, n in balance.largest),
        )
        if not few:
            yield "", "fewest: " + ", ".join(f"{name} {n:,}" for name, n in balance.smallest)
    if balance.empty:
        more = f" and {len(balance.empty) - FIRST} more" if balance.empty[FIRST:] else ""
        yield (
            "",
            f"{_n(len(balance.empty), 'class')} without any: {', '.join(balance.empty[:FIRST])}{more}",
        )


def _warnings(survey: Survey) -> list[str]:
    lines = []
    if survey.across_splits:
        images = _n(len(survey.across_splits), "image")
        lines += ["", f"WARNING: {images} in more than one split: what is tested was trained on"]
        lines += _listed(survey.across_splits, lambda t: _twins(t, t.splits))
    if survey.two_labels:
        lines += ["", f"WARNING: {_n(len(survey.two_labels), 'image')} with two different labels"]
        lines += _listed(survey.two_labels, lambda t: _twins(t, t.labels))
    return lines


def _faults(survey: Survey) -> list[str]:
    lines = []
    for head, faults in [
        (f"{_n(len(survey.broken), 'file')} that cannot be read", survey.broken),
        (f"{_n(len(survey.mask_faults), 'mask')} that cannot be used", survey.mask_faults),
        (f"{_n(len(survey.box_faults), 'box')} out of place", survey.box_faults),
    ]:
        if faults:
            lines += ["", f"{head}:", *_listed(faults, _fault)]
    if survey.problems:
        count = _n(len(survey.problems), "line or file", "lines or files")
        lines += ["", f"{count} that the reader left out:", *_listed(survey.problems, str)]
    rest = [t for t in survey.twins if len(set(t.splits)) == 1 and t not in survey.two_labels]
    if rest:
        lines += [
            "",
            f"{_n(len(rest), 'image')} more than once:",
            *_listed(rest, lambda t: " = ".join(t.files)),
        ]
    return lines


def _fault(fault: Fault) -> str:
    return f"{fault.file}: {fault.reason}"


def _twins(twins: Twins, notes: Sequence[str]) -> str:
    return " = ".join(f"{file} [{note}]" for file, note in zip(twins.files, notes, strict=True))


def _listed(items: Sequence[T], tell: Callable[[T], str]) -> list[str]:
    lines = [f"  {tell(item)}" for item in items[:FIRST]]
    return lines + [f"  and {len(items) - FIRST:,} more: --json or --out tells all"] * (
        len(items) > FIRST
    )


def _counts(values: Mapping[str, int]) -> str:
    if len(values) > FIRST:
        first = ", ".join(list(values)[:3])
        return f"{len(values):,} values ({first}, ...)"
    return ", ".join(f"{name} {n:,}" for name, n in values.items())


def _of(count: int, images: int) -> str:
    return f"all {images:,} images" if count == images else f"{count:,} of {images:,} images"


def _n(count: int, one: str, many: str | None = None) -> str:
    many = many or (f"{one}es" if one.endswith(("s", "x")) else f"{one}s")
    return f"{count:,} {one if count == 1 else many}"
