"""`cenote fit`: parse, train, print. Its options are the fields of train/config.py with `flag`."""

from __future__ import annotations

from typing import Annotated, Any

import tyro

from ._training import Data, Flag, Out, config_of, exit_if_stopped, options_type

METRICS = {"boxes": "MaxBoxAccV2", "pixels": "PxAP"}
FitOptions = options_type("fit")
Options = Annotated[Any, tyro.conf.arg(name="", constructor=FitOptions)]


def run(
    data: Data,
    out: Out,
    options: Options = FitOptions(),  # noqa: B008
    resume: Flag = False,
) -> None:
    """Train a model on labelled images and save it.

    With --freeze only pool and head learn, on features that are computed once: 30 epochs with four
    learning rates take minutes. Otherwise all weights learn. A validation split is held out if
    there is none, and its best epoch is saved. RUN contains the model (config.json,
    model.safetensors), results.json and metrics.jsonl. A run that is killed and resumed ends with
    the same weights.

    Args:
        data: a folder of class folders, a list, NAME:FOLDER, world/small: see cenote data.
        out: folder of the run.
        resume: resume the run in RUN.
    """
    from cenote.data import open_dataset
    from cenote.train.fit import fit

    config = config_of("fit", options)
    with exit_if_stopped("fit"):
        report = fit(open_dataset(data), out, config, resume=resume)
    split, scores, how = "val", report.val, ""
    if report.test:
        split, scores, how = "test", report.test, " with the thresholds chosen on val"
    if "boxes" in scores:
        print(f"{METRICS['boxes']} {scores['boxes']:.2f} on {split}{how}")
    if "pixels" in scores:
        print(f"{METRICS['pixels']} {scores['pixels']:.2f} on {split}")
    print(f"{scores['accuracy']:.2f}% of {scores['images']} {split} images correct: saved in {out}")
