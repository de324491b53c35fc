"""`cenote fit`: parse, train, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from ._fit_options import FitOptions

NAMES = {"boxes": "MaxBoxAccV2", "pixels": "PxAP"}


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    options: Annotated[FitOptions, tyro.conf.arg(name="")] = FitOptions(),  # noqa: B008  # frozen
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Train a model on labelled images and save it.

    With --freeze only pool and head learn, on features that are computed once: 30 epochs, four rates, minutes.
    Otherwise every weight does: 20 epochs from trained weights, 100 from scratch. A validation split is made if there
    is none, and the best epoch on it is kept. RUN holds the model (config.json, model.safetensors), results.json and
    metrics.jsonl. Killed at any moment, a run ends with the same weights if it is resumed.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER, world/small: see cenote data.
        out: where the run lies.
        resume: go on with the run in RUN.
    """
    from cenote.data import open_dataset
    from cenote.train.engine import Stopped
    from cenote.train.fit import fit

    choices = options.choices()
    try:
        report = fit(open_dataset(data), out, choices, resume=resume)
    except Stopped as stop:
        print(f"cenote fit: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    judged = "test" if report["test"] else "val"
    found = report[judged]
    for key in (key for key in NAMES if key in found):
        how = " with the thresholds that val chose" if key == "boxes" and judged == "test" else ""
        print(f"{NAMES[key]} {found[key]:.2f} on {judged}{how}")
    print(f"{found['accuracy']:.2f}% of {found['images']} {judged} images right: saved in {out}")
