"""`cenote moco`: parse, train, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ._unlabelled import UnlabelledOptions, train


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    given: Annotated[UnlabelledOptions, tyro.conf.arg(name="")] = UnlabelledOptions(),  # noqa: B008  # frozen
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Train a model without labels (MoCo-v3): a view of an image finds its other view among all images of a batch.

    Any backbone, any pool. Labels are used only to judge: k nearest neighbours in every epoch, and a linear probe at
    the end. RUN holds the slow copy of the best epoch. Killed at any moment, a run ends with the same weights if it
    is resumed; torchrun spreads it over processes.

    Args:
        data: images, as for cenote fit; they need no classes.
        out: where the run lies.
        resume: go on with the run in RUN.
    """
    train("moco", data, out, given, resume)
