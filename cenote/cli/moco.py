"""`cenote moco`: parse, train, print. Its options are the fields of train/config.py with `flag`."""

from __future__ import annotations

from typing import Annotated, Any

import tyro

from ._training import Data, Flag, Out, options_type
from .dino import train

MocoOptions = options_type("moco")
Options = Annotated[Any, tyro.conf.arg(name="", constructor=MocoOptions)]


def run(
    data: Data,
    out: Out,
    options: Options = MocoOptions(),  # noqa: B008
    resume: Flag = False,
) -> None:
    """Train a model without labels (MoCo-v3): a view of an image is found among those of a batch.

    Any backbone, any pool. Labels are used for evaluation only: k nearest neighbours after every
    epoch, and a linear probe at the end. Without --lr the paper's learning rate grows with batches
    above 256. RUN contains the teacher of the best epoch. A run that is killed and resumed ends
    with the same weights; torchrun spreads it over processes.

    Args:
        data: images, as for cenote fit; they need no classes.
        out: folder of the run.
        resume: resume the run in RUN.
    """
    train("moco", data, out, options, resume)
