"""`cenote dino`: parse, train, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ._unlabelled import UnlabelledOptions, train


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    local_size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 3/7 of a large one's)")
    ] = None,
    local: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: 6)")
    ] = None,
    given: Annotated[UnlabelledOptions, tyro.conf.arg(name="")] = UnlabelledOptions(),  # noqa: B008  # frozen
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Train a model without labels (DINO): small crops learn to say what a slow copy of the model says of large ones.

    Any backbone, any pool. Labels are used only to judge: k nearest neighbours in every epoch, and a linear probe at
    the end. RUN holds the teacher of the best epoch. Killed at any moment, a run ends with the same weights if it is
    resumed; torchrun spreads it over processes.

    Args:
        data: images, as for cenote fit; they need no classes.
        out: where the run lies.
        local_size: pixels of a small crop's side.
        local: small crops of an image, beside two large ones.
        resume: go on with the run in RUN.
    """
    train("dino", data, out, given, resume, local_size=local_size, local=local)
