"""`cenote fit`: train a classifier on labelled images and save it."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from ..backbones import Backbone
from ..data import Dataset
from ..data.splits import Splits, split
from ..evaluate.validators import localization_on_test
from ..models import PooledModel, save_model
from ..models.frozen import PooledHead
from ..models.layers import Layers
from ..predict.distributed import rank
from ..predict.embedding import EmbeddingSource
from ..predict.feature_cache import FeatureBatches, FeatureCache
from ..predict.novelty import store_class_means
from ..predict.object_map import store_object_map
from .augment import build_augmentation
from .build import (
    build_frozen,
    build_head,
    build_model,
    freeze_all_but_head,
    load_start,
    start_from_shares,
)
from .checkpoint import can_resume, run_processes
from .config import PROBE_RATES, OptimizationConfig, Options, RunConfig
from .engine import CPU, Engine
from .extraction import Extraction, SplitFeatures
from .reports import FitReport, Scores
from .tasks.probe import LearningRates, Probe
from .tasks.supervised import Jsd, Supervised, finish
from .whitening import fit_whitening
from .wsol import check_classes, choose_percentile


def fit(
    data: Dataset | Splits,
    folder: Path,
    config: RunConfig,
    cache: FeatureCache | None = None,
    resume: bool = False,
    object_map: bool = True,
) -> FitReport:
    """Train a model, save the best epoch on validation in `folder`, and test it.

    `object_map`: also store the object map of the training images, for boxes of new photographs.
    """
    resume = can_resume(folder, resume)
    splits = data if isinstance(data, Splits) else split(data, seed=config.train.seed)
    sources: tuple[EmbeddingSource, EmbeddingSource]
    check_classes(config.model.wsol, splits.train)
    with run_processes(folder, resume, splits.train, splits.val) as device:
        if config.model.freeze:
            model, report, sources = _fit_frozen(splits, folder, config, cache, resume, device)
        else:
            model, report = _fit_all(splits, folder, config, resume, device)
            sources = splits.train, splits.val
        model.multi_label = splits.train.multi_label
        if rank() == 0:
            save_model(model, folder)
            report.write(folder)
            store_class_means(model, *sources, folder, config.train.readers)
            if object_map:
                store_object_map(model, splits.train, folder, config.train.readers)
    return report


def _fit_frozen(
    splits: Splits,
    folder: Path,
    config: RunConfig,
    cache: FeatureCache | None,
    resume: bool,
    device: torch.device,
) -> tuple[PooledModel, FitReport, tuple[EmbeddingSource, EmbeddingSource]]:
    """Train pool and head on cached features, one of each for every learning rate."""
    started = time.monotonic()
    train, classes = config.train, splits.train.classes
    frozen = build_frozen(config, device)
    features = SplitFeatures(Extraction(frozen, cache, train, folder), splits)
    extracted = time.monotonic()
    build = partial(build_head, config, frozen, len(classes))
    rates = config.options.rates or PROBE_RATES
    name = build().label
    candidates = [
        (f"{name}@{lr:g}", build, LearningRates(lr, train.pool_lr_factor)) for lr in rates
    ]
    probe = Probe(features.train, features.val, train, candidates, device)
    winner = Engine(probe, train, folder, identity(config, splits)).run(resume)
    head = probe.best_head(winner)
    test = None
    if features.test is not None:
        (score,) = probe.scores([head], FeatureBatches(features.test, 256))
        test = {probe.metric: score, "images": len(features.test)}
    report = FitReport(
        pool=config.model.pool,
        backbone=config.model.backbone,
        lr=winner.lr,
        epoch=winner.best_epoch + 1,
        val={probe.metric: winner.best_score, "images": len(features.val)},
        test=test,
        rates={f"{state.lr:g}": state.failed or state.best_score for state in probe.states},
        layers=layer_attention(frozen.backbone, probe, head),
        seconds={"features": extracted - started, "training": time.monotonic() - extracted},
        settings=asdict(train),
        data=splits.fingerprint(),
    )
    model = frozen.create_model(head, classes)
    choose_percentile(model, splits.val, train)
    return model, report, (features.train, features.val)


def layer_attention(backbone: Backbone, probe: Probe, head: PooledHead) -> dict[str, Scores] | None:
    """Return the attention to CLS and mean of each layer, None without summary tokens or a map."""
    if head.tokens != "summary" or head.pool is None or head.pool.no_attention:
        return None
    assert isinstance(backbone, Layers)
    weights = probe.mean_map(head, probe.val_loader)  # (layers, 2), or (layers, 1) without CLS
    kinds = ("cls", "mean")[-weights.shape[1] :]
    rows = (weights / weights.sum()).tolist()
    return {
        str(layer): dict(zip(kinds, row, strict=True))
        for layer, row in zip(backbone.layers, rows, strict=True)
    }


def build_classifier(config: RunConfig, classes: int) -> PooledModel:
    """Build the model with the weights that it starts from."""
    model = build_model(config, classes)
    if config.model.start is not None:
        load_start(model, config.model.start)
    if config.task == "head":
        freeze_all_but_head(model)
    return model


def build_task(
    config: RunConfig, model: PooledModel, splits: Splits, device: torch.device = CPU
) -> Supervised:
    """Build what the engine trains."""
    kind = {"jsd": Jsd}.get(config.task, Supervised)
    transform = build_augmentation(config, model)
    return kind(model, splits.train, splits.val, config.train, transform, device)


def _fit_all(
    splits: Splits, folder: Path, config: RunConfig, resume: bool, device: torch.device
) -> tuple[PooledModel, FitReport]:
    """Train every weight of the model."""
    started = time.monotonic()
    model = build_classifier(config, len(splits.train.classes))
    model.class_names, model.multi_label = splits.train.classes, splits.train.multi_label
    if model.multi_label:
        start_from_shares(model, splits.train)
    if config.model.start is None and not config.model.from_scratch:
        fit_whitening(model.to(device), splits.train, config.train.readers)
    task = build_task(config, model, splits, device)
    winner = Engine(task, config.train, folder, identity(config, splits)).run(resume)
    winner.load_best()
    finish(model)
    choose_percentile(model, splits.val, config.train)
    scores = {k: v for k, v in winner.best_metrics.items() if k not in ("score", "loss")}
    seconds, test = time.monotonic() - started, None
    if splits.test is not None:
        test = evaluate_on_test(model, splits, config.train, device)
    report = FitReport(
        pool=model.config["pool"],
        backbone=model.config["backbone"],
        epoch=winner.best_epoch + 1,
        val={**scores, "images": len(splits.val)},
        test=test,
        seconds={"training": seconds},
        settings=asdict(config.train),
        data=splits.fingerprint(),
    )
    return model, report


def evaluate_on_test(
    model: PooledModel, splits: Splits, settings: OptimizationConfig, device: torch.device
) -> Scores:
    """Evaluate a trained model on the test split."""
    assert splits.test is not None
    plain = replace(settings, ema=None, select="accuracy", drloc=0.0)
    transform = model.backbone.preprocessing.transform()
    task = Supervised(model, splits.test, splits.test, plain, transform, device)
    scores = task.validate()["model"]
    del scores["score"]
    boxes = localization_on_test(
        model, splits.val, splits.test, settings.select, settings.batch, settings.readers
    )
    return {**scores, "images": len(splits.test), **boxes}


def identity(config: RunConfig, splits: Splits) -> Options:
    """Return what a resumed run must share with its beginning, except the settings."""
    return {**config.identity(), "data": splits.fingerprint()}
