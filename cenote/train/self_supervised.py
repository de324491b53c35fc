"""`cenote dino` and `cenote moco`: train a model without labels and save its teacher."""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data import Dataset
from ..data.splits import TRAIN, VAL
from ..models import save_model
from ..predict.distributed import processes, rank
from .build import build_augmentation, build_model
from .config import DinoConfig, MocoConfig, RunConfig
from .engine import Engine
from .fit import check_folder
from .reports import SelfSupervisedReport, write_report
from .tasks.dino import Dino
from .tasks.moco import Moco

logger = logging.getLogger(__name__)
FEW_IMAGES = 100_000
FEW_STEPS = 10_000
TASK_OF = {"dino": Dino, "moco": Moco}


def train_without_labels(
    data: Dataset, folder: Path, config: RunConfig, resume: bool = False
) -> SelfSupervisedReport:
    """Train, save the teacher of the best epoch in `folder`, and report."""
    resume = check_folder(folder, resume)
    train, val = unlabelled_splits(data)
    with processes() as device:
        started = time.monotonic()
        model = build_model(config)
        options = adapted_options(config, len(train))
        transform = build_augmentation(config, model)
        task = TASK_OF[config.task](model, train, val, config.train, transform, options, device)
        _log_adapted(config.options, options)
        untrained = None  # the accuracy that learning is compared with
        if task.knn is not None and not resume:
            untrained = task.knn(task.teacher)
            if rank() == 0:
                scores = "  ".join(f"{name} {value:.4g}" for name, value in untrained.items())
                logger.info("before training  %s", scores)
        identity = {**config.identity(), "images": len(train)}
        Engine(task, config.train, folder, identity).run(resume)
        if task.knn is not None and untrained is None:
            untrained = task.knn(build_model(config).to(device))
        (winner,) = task.states
        task.module.load_state_dict(winner.best)
        report = SelfSupervisedReport(
            method=config.task,
            backbone=config.model.backbone,
            pool=config.model.pool,
            epoch=winner.best_epoch + 1,
            knn=None if val is None else winner.best_score,
            knn_untrained=None if untrained is None else next(iter(untrained.values())),
            images=len(train),
            options=asdict(options),
            seconds={"training": time.monotonic() - started},
            settings=asdict(config.train),
        )
        if rank() == 0:
            save_model(task.teacher, folder)
            write_report(folder, report)
        return report


def adapted_options(config: RunConfig, images: int) -> DinoConfig | MocoConfig:
    """Return the options of the method; those of DINO are adapted to a small run.

    Options that are set explicitly stay. The temperature warms up in at most a third of the epochs.
    Few images need fewer than 65,536 outputs and a narrower head. In a short run the teacher
    averages over at most a tenth of it, its temperature stays low, the last layer is frozen for a
    hundredth of the epochs, and the head learns quickly: 256 outputs and BatchNorm (without both,
    `vit_micro` hardly improves in ten epochs of world/small).
    """
    options, epochs = config.options, config.train.epochs
    if not isinstance(options, DinoConfig):
        assert isinstance(options, MocoConfig)
        return options
    smaller: dict[str, Any] = {"warmup_t_epochs": min(options.warmup_t_epochs, epochs / 3)}
    if images < FEW_IMAGES:
        smaller |= {"out": 4096, "hidden": 512}
    if (steps := epochs * (images // config.train.batch)) < FEW_STEPS:
        smaller |= {"out": 256, "bottleneck": 64, "batch_norm": True, "teacher_t": options.warmup_t}
        smaller["momentum"] = min(options.momentum, 1 - 1 / max(steps / 10, 2))
        smaller["freeze_last"] = min(options.freeze_last, epochs / 100)
    adapted = {name: v for name, v in smaller.items() if name not in config.explicit_options}
    return dataclasses.replace(options, **adapted)


def _log_adapted(before: Any, options: Any) -> None:
    old, new = asdict(before), asdict(options)
    changes = [f"{k} {_short(new[k])} for {_short(old[k])}" for k in new if new[k] != old[k]]
    if changes and rank() == 0:
        logger.info("a small run: %s", ", ".join(changes))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def unlabelled_splits(data: Dataset) -> tuple[Dataset, Dataset | None]:
    """Return the images to train on, and labelled images to validate on where there are any."""
    names = data.splits
    train = next((data.split(name) for name in TRAIN if name in names), data)
    val = next((data.split(name) for name in (*VAL, "test") if name in names), None)
    if val is None or not (val.labels >= 0).any() or not (train.labels >= 0).any():
        return train, None
    return train, val
