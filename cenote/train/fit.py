"""`cenote fit`: labelled images in, a saved model out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import Dataset
from ..data.splits import Splits, split
from ..evaluate.validators import localization_on_test
from ..models import PooledModel, save_model
from ..models.frozen import FrozenBackbone
from ..predict.distributed import processes, rank
from ..predict.feature_batches import FeatureBatches
from ..predict.feature_cache import FeatureCache
from .checkpoint import NAME as CHECKPOINT
from .checkpoint import can_resume
from .choices import PROBE_RATES, Choices
from .config import OptimizationConfig
from .engine import Engine
from .extraction import Extraction, SplitFeatures
from .log import write_results
from .state import TrainState
from .tasks.probe import Probe
from .tasks.supervised import Supervised

Say = Callable[[str], None]


def fit(
    data: Dataset,
    folder: Path,
    choices: Choices,
    cache: FeatureCache | None = None,
    resume: bool = False,
    say: Say = print,
) -> dict[str, Any]:
    """Train as chosen, save the best model on validation in `folder`, and report."""
    settings = choices.training()
    if not resume and (folder / CHECKPOINT).exists():
        raise ValueError(f"{folder} holds a run already: resume it, or choose another folder")
    resume = resume and can_resume(folder)
    splits = split(data, seed=settings.seed)
    if choices.freeze:
        return _fit_frozen(splits, folder, choices, settings, cache, resume, say)
    return _fit_all(splits, folder, choices, settings, resume, say)


def _fit_frozen(
    splits: Splits,
    folder: Path,
    choices: Choices,
    settings: OptimizationConfig,
    cache: FeatureCache | None,
    resume: bool,
    say: Say,
) -> dict[str, Any]:
    """Pool and head on cached features, one contender for each rate."""
    with processes() as device:
        started = time.monotonic()
        frozen = FrozenBackbone(choices.frozen_backbone().to(device), choices.stride)
        cached = SplitFeatures(Extraction(frozen, cache, settings, folder), splits)
        extracted = time.monotonic()
        classes = splits.train.classes

        def make() -> nn.Module:
            return frozen.create_head(
                choices.pool, len(classes), choices.tokens, pool_options=choices.pool_options
            )

        wanted = [(f"{choices.pool}@{lr:g}", make, lr) for lr in choices.rates or PROBE_RATES]
        probe = Probe(cached.train, cached.val, settings, wanted, device)
        Engine(probe, settings, folder, identity(choices, splits)).run(resume)
        winner = probe.best_state()
        head = probe.best_head(winner)
        model = frozen.create_model(head, classes)
        report = {
            "pool": choices.pool,
            "backbone": choices.backbone,
            "lr": winner.lr,
            "epoch": winner.best_epoch + 1,
            "val": {"accuracy": winner.best_score, "images": len(cached.val)},
            "test": None if cached.test is None else {
                "accuracy": probe.accuracies([head], FeatureBatches(cached.test, 256))[0],
                "images": len(cached.test),
            },
            "rates": {f"{c.lr:g}": c.best_score if c.failed is None else c.failed for c in probe.states},
            "seconds": {"features": extracted - started, "training": time.monotonic() - extracted},
            "settings": asdict(settings),
            "data": splits.fingerprint(),
        }  # fmt: skip
        if rank() == 0:
            save_model(model, folder)
            write_results(folder, report)
        return report


def _fit_all(
    splits: Splits,
    folder: Path,
    choices: Choices,
    settings: OptimizationConfig,
    resume: bool,
    say: Say,
) -> dict[str, Any]:
    """Every weight of the model."""
    with processes() as device:
        started = time.monotonic()
        model = choices.model(len(splits.train.classes))
        model.class_names = splits.train.classes
        transform = choices.augmentation(model)
        task = choices.task(model, splits.train, splits.val, transform, device)
        Engine(task, settings, folder, identity(choices, splits)).run(resume)
        (winner,) = task.states
        model.load_state_dict(winner.best)
        choices.finish(model)
        report: dict[str, Any] = {
            "pool": model.config["pool"],
            "backbone": model.config["backbone"],
            "epoch": winner.best_epoch + 1,
            "val": {**val_metrics(winner), "images": len(splits.val)},
            "test": None,
            "seconds": {"training": time.monotonic() - started},
            "settings": asdict(settings),
            "data": splits.fingerprint(),
        }
        if splits.test is not None:
            report["test"] = judge_once(model, splits, settings, device, say)
        if rank() == 0:
            save_model(model, folder)
            write_results(folder, report)
        return report


def judge_once(
    model: PooledModel,
    splits: Splits,
    settings: OptimizationConfig,
    device: torch.device,
    say: Say | None = None,
) -> dict[str, Any]:
    """A finished model on the test split."""
    assert splits.test is not None
    plain = replace(settings, ema=None, select="accuracy")
    transform = model.backbone.preprocessing.transform()
    judge = Supervised(model, splits.test, splits.test, plain, transform, device=device)
    found = judge.validate()["model"]
    del found["score"]
    located = localization_on_test(
        model, splits.val, splits.test, settings.select, settings.batch, settings.workers
    )
    return {**found, "images": len(splits.test), **located}


def val_metrics(state: TrainState) -> dict[str, float]:
    """Return what the best epoch reached on validation."""
    return {key: value for key, value in state.best_metrics.items() if key not in ("score", "loss")}


def identity(choices: Choices, splits: Splits) -> dict[str, Any]:
    """What besides the settings makes a run this run."""
    asked = {
        key: value
        for key, value in asdict(choices).items()
        if key not in ("settings", "rates", "recipe")
    }
    return {**asked, "weights": str(choices.weights), "data": splits.fingerprint()}
