"""Linear segmentation: how much of every pixel's class a linear layer reads off frozen patch features."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ..backbones import Backbone
from ..data import Dataset
from ..metrics import Confusion
from ..models import PooledModel
from ..predict.distributed import gathered, processes, rank
from ..predict.feature_cache import (
    CachedFeatures,
    FeatureCache,
    cache_folder,
    cached_features,
    weights_digest,
)
from .config import OptimizationConfig
from .engine import Engine
from .fit import fingerprint
from .pixel_labels import IGNORE, Kind, PixelLabels
from .segmenting import Segmenting, Side
from .splits import Splits

SEGMENT = OptimizationConfig(
    epochs=20, batch=16, lr=1e-3, weight_decay=1e-4, schedule="poly", warmup=1
)
LARGEST_CACHE = 10 << 30  # bytes; and half of what the disk has left
Say = Callable[[str], None]


class Segmented(NamedTuple):
    """`scores`: mIoU in percent of each test image alone, by its position in the test split."""

    report: dict[str, Any]
    scores: dict[int, float]
    names: list[str]
    predict: Callable[
        [Dataset, Sequence[int]], dict[int, npt.NDArray[np.int64]]
    ]  # class maps, (size, size) each


def segment(
    backbone: Backbone | PooledModel,
    train: Dataset,
    test: Dataset,
    folder: Path,
    settings: OptimizationConfig = SEGMENT,
    size: int = 512,
    kind: Kind = "auto",
    norm: bool = False,
    cache: FeatureCache | None = None,
    largest_cache: int = LARGEST_CACHE,
    resume: bool = False,
    say: Say = print,
) -> Segmented:
    """Train on `train`, score on `test`, all at size x size. `folder` is where the run lies, to be resumed."""
    found = backbone.backbone if isinstance(backbone, PooledModel) else backbone
    started = time.monotonic()
    with processes() as device:
        labels = PixelLabels(train, size, kind)
        sides = [
            _side(
                found.to(device).eval(),
                labels.usable(part),
                settings,
                size,
                cache,
                largest_cache,
                shuffle,
            )
            for part, shuffle in ((train, True), (test, False))
        ]
        task = Segmenting(found, labels, sides[0], settings, norm, device)
        identity = {
            "size": size,
            "kind": labels.kind,
            "norm": norm,
            "data": fingerprint(Splits(train, test, None)),
        }
        identity |= {"backbone": found.name, "weights": weights_digest(found)}
        Engine(task, settings, folder, identity).run(resume)
        module = task.states[0].module.eval()
        confusion, scores = _score(task, module, sides[1])
        positions = np.flatnonzero(np.isin(test.rows, sides[1].dataset.rows))
        result = confusion.result()
        report = {
            "miou": 100 * result.miou,
            "macc": 100 * result.macc,
            "aacc": 100 * result.aacc,
            "iou": {
                n: None if np.isnan(v) else 100 * v
                for n, v in zip(labels.names, result.iou, strict=True)
            },
            "classes": len(labels.names),
            "images": len(sides[1].dataset),
            "trained_on": len(sides[0].dataset),
            "size": size,
            "unreadable": sorted({*sides[0].bad, *sides[1].bad, *labels.unread.values()}),
            "cached": sides[0].cached,
            "settings": dataclasses.asdict(settings),
            "seconds": time.monotonic() - started,
        }

    def predict(dataset: Dataset, which: Sequence[int]) -> dict[int, npt.NDArray[np.int64]]:
        return _predict(found, module, size, dataset, which)

    return Segmented(
        report, {int(positions[i]): score for i, score in scores.items()}, labels.names, predict
    )


def _side(
    backbone: Backbone,
    dataset: Dataset,
    settings: OptimizationConfig,
    size: int,
    cache: FeatureCache | None,
    largest: int,
    shuffle: bool,
) -> Side:
    own = dataclasses.replace(backbone.preprocessing, size=size)
    with torch.inference_mode():
        device = next(backbone.parameters()).device
        tokens, _, cls = backbone(torch.zeros(1, 3, size, size, device=device))
    needed = (
        len(dataset) * (tokens.shape[1] + (cls is not None)) * tokens.shape[2] * 2
    )  # as float16
    place = cache.folder if cache else cache_folder()
    place.mkdir(parents=True, exist_ok=True)
    if needed > min(largest, shutil.disk_usage(place).free // 2):
        return Side(dataset, own.whole(), settings, shuffle)
    return Side(
        dataset, _cached(backbone, dataset, own, cache, settings.workers), settings, shuffle
    )


def _cached(
    backbone: Backbone, dataset: Dataset, own: Any, cache: FeatureCache | None, workers: int
) -> CachedFeatures:
    from tqdm import tqdm

    with tqdm(unit="image", desc=f"features of {dataset.name}", disable=None, leave=False) as bar:

        def progress(done: int, of: int) -> None:
            bar.total = of
            bar.update(done - bar.n)

        return cached_features(
            backbone, dataset, own, cache, "whole", workers=workers, progress=progress
        )


@torch.inference_mode()
def _score(task: Segmenting, module: nn.Module, side: Side) -> tuple[Confusion, dict[int, float]]:
    """Of all processes' images together, and of each image alone."""
    classes = len(task.labels.names)
    confusion, scores = Confusion(classes, IGNORE), {}
    for batch in side.loader:
        side.bad += [bad.message for bad in getattr(batch, "bad", ())]
        part = task.part(batch, side.dataset)
        if part is None:
            continue
        guesses = module(part.features, task.labels.size).argmax(1).cpu()
        for i, guess, truth in zip(batch.indices, guesses, part.labels.cpu(), strict=True):
            alone = Confusion(classes, IGNORE)
            alone.add(guess, truth, str(side.dataset.path(int(i))))
            confusion.merge(alone)
            if alone.pixels.any():
                scores[int(i)] = 100 * alone.result().miou
    for other, more in [
        pair for place, pair in enumerate(gathered((confusion, scores))) if place != rank()
    ]:
        confusion.merge(other)
        scores |= more
    return confusion, scores


@torch.inference_mode()
def _predict(
    backbone: Backbone, module: nn.Module, size: int, dataset: Dataset, which: Sequence[int]
) -> dict[int, npt.NDArray[np.int64]]:
    transform = dataclasses.replace(backbone.preprocessing, size=size).whole()
    device = next(backbone.parameters()).device
    return {
        i: module(backbone(transform(dataset.image(i))[None].to(device)), size)
        .argmax(1)[0]
        .cpu()
        .numpy()
        for i in which
    }
