"""`cenote evaluate`: parse, judge, print."""

from __future__ import annotations

import json as to_json
from pathlib import Path
from typing import Annotated

import tyro


def run(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    split: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: see below)")] = None,
    knn: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    batch: int = 64,
    workers: int = 0,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """How well a saved model tells the classes of a data set.

    Args:
        folder: a saved model, for instance a run of cenote fit.
        data: as for cenote fit.
        split: which images are judged; by default test, or what was held out of the data that the run was trained on,
            or all.
        knn: also judge the vectors alone: 10 and 20 nearest neighbours among the training images.
        batch: images at a time.
        workers: processes that read images.
        json: print JSON.
    """
    from cenote.data import open_dataset
    from cenote.evaluate.classify import classify, neighbours
    from cenote.models import load
    from cenote.train.judged import parts_of

    model = load(folder)
    name, part, memory = parts_of(folder, open_dataset(data), split)
    report = {"split": name, **classify(model, part, batch=batch, workers=workers)}
    if knn:
        if memory is None:
            raise ValueError(f"--knn needs a training split in {data}, apart from what is judged")
        report |= neighbours(model, memory, part, batch=batch, workers=workers)
    if json:
        print(to_json.dumps(report, indent=2))
        return
    for sentence in report["unreadable"]:
        print(f"left out: {sentence}")
    if report["unknown_class"]:
        print(f"left out: {report['unknown_class']} images of classes that the model does not know")
    where = f"{report['images']} images of {name}"
    print(f"{where}: top-1 {report['accuracy']:.2f}, top-5 {report['top5']:.2f}")
    for key, value in report.items():
        if key.startswith("knn_"):
            print(f"{key.removeprefix('knn_')} nearest neighbours: {value:.2f}")
