"""`cenote metric`: parse, train, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from ._arguments import pluralize
from ._metric_options import MetricArguments


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    given: Annotated[MetricArguments, tyro.conf.arg(name="")] = MetricArguments(),  # noqa: B008  # frozen
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Train vectors that tell classes apart, also classes that were never seen, and judge them on such.

    The first half of the classes trains and the second tests, unless the data says itself which are unseen. Images of
    a class draw together and those of others apart, by any loss, with Metrix's mixed examples, GSP's zero-shot loss
    or a memory of earlier steps. A quarter of the training classes is held out to choose the epoch. RUN holds the
    model, results.json and metrics.jsonl; cenote evaluate RUN DATA --on retrieve reads it. Killed at any moment, a
    run ends with the same weights if it is resumed; torchrun spreads it over processes, whose images are compared
    with each other's.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER (cub-retrieval, cars-retrieval, sop, inshop), world/small.
        out: where the run lies.
        resume: go on with the run in RUN.
    """
    from cenote.data import open_dataset
    from cenote.predict.distributed import leads
    from cenote.train.engine import Stopped
    from cenote.train.metric_fit import learn_metric

    choices = given.choices(data)
    try:
        report = learn_metric(open_dataset(data), out, choices, resume=resume)
    except Stopped as stop:
        print(f"cenote metric: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    if leads():
        print(told(report))
        print(f"saved in {out}")


def told(report: dict[str, Any]) -> str:
    """A table: one row for a model, or the mean of four and their concatenation."""
    from cenote.evaluate.retrieve import ONE_CLASS

    rows = [("the model", report["test"])]
    if "concatenated" in report:
        rows = [("mean of 4", report["test"]), ("concatenated", report["concatenated"])]
    if "deviation" in report:
        rows = [
            row
            for one, by in zip(rows, report["deviation"].values(), strict=True)
            for row in (one, ("±", by))
        ]
    names = [name for name in report["test"] if name not in ("images", "queries", "without_match")]
    heads = [_title(name) for name in names]
    classes = len(report["classes"]["test"])
    lines = [
        f"{report['test']['images']:.0f} images of {classes} classes that were not trained on, in percent:"
    ]
    width = max(len(name) for name, _ in rows)
    lines.append("  ".join([" " * width, *heads]))
    for name, found in rows:
        cells = [
            f"{found[key]:.2f}".rjust(len(head)) for key, head in zip(names, heads, strict=True)
        ]
        lines.append("  ".join([name.ljust(width), *cells]))
    if "deviation" in report:
        lines.append(
            f"the mean of all {report['collections']} collections of four models, ± their standard deviation"
        )
    if lone := report["test"]["without_match"]:
        how = (
            "left out"
            if report["test"]["queries"] < report["test"]["images"]
            else "counted as misses"
        )
        lines.append(f"{how}: {pluralize(lone, 'query', 'queries')} with nothing to find")
    if classes == 1:
        lines.append(ONE_CLASS)
    return "\n".join(lines)


def _title(name: str) -> str:
    known = {"p@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}
    return known.get(name, name.replace("recall", "R")).rjust(6)
