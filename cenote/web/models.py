"""The served models: saved ones, and the candidates of tournaments. Runs in the worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cachetools import LRUCache
from starlette.exceptions import HTTPException
from torch import Tensor

from ..backbones import Features
from ..data import read_image
from ..models import PooledModel, load
from ..predict.maps import MapPredictor
from ..predict.open_model import class_names
from ..predict.thresholds import FILE, Threshold, threshold_for
from ..train.tournament.load import finished_passes, load_candidates, read_plan
from .photos import PhotoRequired
from .schemas import ModelInfo
from .sources import Sources, strip_directories

MAX_SAVED_MODELS = 4  # in memory; candidates share one backbone and stay
MAX_FEATURES = 48  # photographs whose features are cached


class ServedModel(NamedTuple):
    model: PooledModel
    folder: Path  # of a calibrated threshold, if there is one
    family: str  # models of one family share their backbone
    threshold: Threshold | None = None  # of a candidate, from the tournament's report


class FeatureKey(NamedTuple):
    family: str
    size: int
    photo: str  # digest


class PhotoFeatures(NamedTuple):
    """A photograph and its features, both with a batch dimension of 1."""

    images: Tensor
    size: tuple[int, int]  # (width, height) of the photograph
    features: Features


class ServedModels:
    """Saved models are opened when they are needed; candidates when they have been trained."""

    def __init__(self, sources: Sources) -> None:
        self.tournaments = sources.tournaments
        self.folders: dict[str, Path] = {}  # of saved models, by name
        self.saved: LRUCache[str, ServedModel] = LRUCache(MAX_SAVED_MODELS)
        self.candidates: dict[str, ServedModel] = {}
        self.trained: list[Path] | None = None  # files of the candidates
        self.thresholds: dict[tuple[str, str, bool], Threshold] = {}
        self.features: LRUCache[FeatureKey, PhotoFeatures] = LRUCache(MAX_FEATURES)
        self.saved_rows: list[ModelInfo] = []
        for folder in sources.models:
            name = _unique(folder.resolve().name, self.saved_rows)
            self.folders[name] = folder
            row = _model_info(name, self.get(name).model, _accuracy(folder))
            self.saved_rows.append(row)
        self.rows = self.saved_rows
        self.refresh()

    def refresh(self) -> None:
        """Open the models that tournaments have trained since."""
        trained = [path for folder in self.tournaments for path in _trained_files(folder)]
        if trained == self.trained:
            return
        rows, candidates = list(self.saved_rows), {}
        for folder in self.tournaments:
            report = _read_report(folder)
            standings = {row["name"]: row for row in report.get("standings", ())}
            for title, model in _load_candidates(folder).items():
                name, row = _unique(title, rows), standings.get(title, {})
                recommended = title == report.get("recommended")
                place = folder if recommended else finished_passes(folder, read_plan(folder))[0]
                threshold = _tournament_threshold(row, model, place)
                candidates[name] = ServedModel(model, place, str(folder), threshold)
                accuracy = (row.get("accuracy") or [None])[0]  # of the first seed, as is the model
                rows.append(_model_info(name, model, accuracy, recommended))
        self.rows, self.candidates, self.trained = rows, candidates, trained
        self.thresholds.clear()

    def get(self, name: str) -> ServedModel:
        if name in self.candidates:
            return self.candidates[name]
        if name not in self.folders:
            raise HTTPException(
                404, f"there is no model '{name[:80]}': /api/about lists the models"
            )
        if name not in self.saved:
            folder = self.folders[name]
            self.saved[name] = ServedModel(load(folder).eval(), folder, name)
        return self.saved[name]

    def threshold(self, name: str, kind: str, value: float | None) -> Threshold:
        """Return the threshold as `cenote localize` chooses it.

        Cached, because choosing the kind of map runs the model on an empty image.
        """
        served = self.get(name)
        default = served.threshold
        if default is not None and value is None and kind in ("auto", default.kind):
            return default
        key = name, kind, value is None
        if key not in self.thresholds:
            threshold = threshold_for(served.model, served.folder, value, kind)
            source = strip_directories(threshold.source)
            self.thresholds[key] = threshold._replace(source=source)
        if value is None:
            return self.thresholds[key]
        return self.thresholds[key]._replace(value=value)

    def photo_features(
        self, wanted: Mapping[FeatureKey, tuple[MapPredictor, bytes | None]]
    ) -> dict[FeatureKey, PhotoFeatures]:
        """Return features of photographs; those not in the cache are computed, in one batch.

        Raises PhotoRequired where a photograph is in the cache no more and its file is None.
        """
        available = {key: self.features[key] for key in wanted if key in self.features}
        batches = dict[tuple[str, int], list[FeatureKey]]()
        for key, (_, content) in wanted.items():
            if key not in available:
                if content is None:
                    raise PhotoRequired
                batches.setdefault((key.family, key.size), []).append(key)
        for keys in batches.values():
            predictor = wanted[keys[0]][0]
            computed = _compute_features(predictor, [wanted[key][1] for key in keys])
            available.update(zip(keys, computed, strict=True))
        self.features.update(available)
        return available


def _load_candidates(folder: Path) -> dict[str, PooledModel]:
    try:
        return load_candidates(folder)
    except (ValueError, OSError):
        if (folder / "config.json").is_file():  # finished, so the error will not go away
            raise
        return {}  # started from its own checkpoint: opened when it is finished


def _model_info(
    name: str, model: PooledModel, accuracy: float | None, recommended: bool = False
) -> ModelInfo:
    has_grad_cam = find_spec("pytorch_grad_cam") is not None
    return ModelInfo(
        id=name,
        name=name,
        pool="cls" if model.pool is None else model.pool.name,
        backbone=model.backbone.name,
        classes=len(class_names(model) or ()),
        maps=[kind for kind in model.map_kinds() if kind != "gradcam" or has_grad_cam],
        accuracy=accuracy,
        recommended=recommended,
    )


def _unique(name: str, rows: list[ModelInfo]) -> str:
    """Number models of the same name."""
    names = [name, *(f"{name} ({i})" for i in range(2, len(rows) + 2))]
    return next(name for name in names if name not in [row.id for row in rows])


def _compute_features(predictor: MapPredictor, contents: list[bytes | None]) -> list[PhotoFeatures]:
    transform = predictor.transform()
    loaded = [transform(read_image("the photograph", content=content)) for content in contents]
    images = torch.stack([image for image, _ in loaded])
    features = predictor.model.features(images)
    results = []
    for i, (_, size) in enumerate(loaded):
        width, height = size.tolist()
        cls = None if features.cls is None else _row(features.cls, i)
        single = Features(_row(features.tokens, i), features.grid, cls)
        results.append(PhotoFeatures(_row(images, i), (width, height), single))
    return results


def _row(batch: Tensor, i: int) -> Tensor:
    """Copy one row: a view would keep the whole batch in memory."""
    return batch[i : i + 1].clone()


def _trained_files(folder: Path) -> list[Path]:
    """List the files whose appearance means that models were trained."""
    ends = [folder / "config.json", folder / "results.json"]
    return [*finished_passes(folder, read_plan(folder)), *filter(Path.is_file, ends)]


def _accuracy(folder: Path) -> float | None:
    """Return the accuracy on test images, else on validation images, in percent."""
    report = _read_report(folder)
    scores = report.get("test") or report.get("val")
    return float(scores["accuracy"]) if isinstance(scores, dict) and "accuracy" in scores else None


def _tournament_threshold(
    row: dict[str, Any], model: PooledModel, folder: Path
) -> Threshold | None:
    """Return the threshold of a candidate's best boxes, if boxes were evaluated, not calibrated."""
    value, kind = row.get("threshold"), row.get("map")
    if value is None or kind not in model.map_kinds() or (folder / FILE).is_file():
        return None
    source = "the best on the images on which the tournament evaluated boxes, an oracle's"
    return Threshold(value, kind, model.backbone.preprocessing.size, source)


def _read_report(folder: Path) -> dict[str, Any]:
    try:
        report = json.loads((folder / "results.json").read_text())
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}
