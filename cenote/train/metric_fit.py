"""`cenote metric`: labelled images in, a model whose vectors tell classes it never saw out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..data.class_splits import class_splits, metric_splits
from ..predict.distributed import processes
from ..predict.feature_cache import FeatureCache
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import can_resume, check_run_exists
from .metric_choices import MetricChoices
from .metric_fair import learn_four
from .metric_run import Run


def learn_metric(
    data: Dataset,
    folder: Path,
    choices: MetricChoices,
    cache: FeatureCache | None = None,
    resume: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train as chosen, save the model of the chosen epoch in `folder`, judge it on unseen classes, and report."""
    choices.check()
    _refuse_another_run(folder, choices.options.protocol == "fair", resume)
    parts = class_splits(data)
    with processes() as device:
        if choices.options.protocol == "fair":
            return learn_four(parts, folder, choices, cache, resume, say, device)
        splits = metric_splits(parts, choices.options.validate)
        return Run(choices, splits, folder, device, say).train(
            cache, resume and can_resume(folder)
        )[0]


def _refuse_another_run(folder: Path, fair: bool, resume: bool) -> None:
    if resume:
        check_run_exists(folder)
    one, four = ((place / CHECKPOINT).exists() for place in (folder, folder / "fold-1"))
    if not resume and (one or four):
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")
    if one if fair else four:
        was, now = ("conventional", "fair") if fair else ("fair", "conventional")
        raise ValueError(
            f"{folder} holds a run of the {was} protocol: it does not go on with the {now} one"
        )
