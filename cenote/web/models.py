"""The served models: saved ones, and the candidates of tournaments. Runs in the worker."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from cachetools import LRUCache
from PIL import Image
from starlette.exceptions import HTTPException
from torch import Tensor

from ..backbones import Features
from ..data import read_image
from ..data.images import full_size
from ..device import default_device
from ..evaluate.splits import read_run
from ..metrics.arrays import Array
from ..metrics.score_maps import quantise
from ..models import PooledModel, load
from ..models.cam import map_of_features, minmax
from ..models.class_map import ForwardPass, depends_on_class
from ..predict.boxes import MapPrediction, boxes_from_map
from ..predict.distributed import device_of
from ..predict.maps import MapPredictor
from ..predict.novelty import ClassMeans, read_class_means
from ..predict.object_map import FILE as OBJECT_MAP
from ..predict.object_map import ObjectMapper, object_of_class, read_direction
from ..predict.open_model import class_names
from ..predict.openvino_engine import run_frozen
from ..predict.thresholds import FILE, Threshold, threshold_for
from ..train.tournament.load import finished_passes, load_candidates, read_plan
from .look import (
    AttentionMap,
    ClassProbability,
    LookRequest,
    LookResponse,
    MapThreshold,
    PixelBox,
    ScoreMap,
)
from .schemas import MAX_PHOTOS, FileNeeded, ModelInfo
from .sources import Sources, strip_directories

MAX_SAVED_MODELS = 4  # in memory; candidates share one backbone and stay
SPLITS = {"test": "test", "val": "validation"}  # in the order of preference
MAX_SCORE_SIDE = 64  # of the scores that the page thresholds by itself
TOP_CLASSES = 5


class ServedModel(NamedTuple):
    model: PooledModel
    folder: Path  # of a calibrated threshold, if there is one
    run: Path  # the models of a tournament share their backbone


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
        self.mappers: LRUCache[Path, ObjectMapper | None] = LRUCache(MAX_SAVED_MODELS)  # by run
        self.direction_times: dict[Path, int] = {}  # when the stored directions were written
        # By run, image size, and digest of the photograph.
        self.features: LRUCache[tuple[Path, int, str], PhotoFeatures] = LRUCache(MAX_PHOTOS)
        self.object_maps: LRUCache[tuple[Path, int, str], Tensor] = LRUCache(MAX_PHOTOS)
        self.class_means: dict[Path, ClassMeans | None] = {}  # by folder
        self.saved_rows: list[ModelInfo] = []
        for folder in sources.models:
            name = _unique(folder.resolve().name, self.saved_rows)
            self.folders[name] = folder
            with sources.leave_out(folder):
                self.saved_rows.append(self._info(name, self.get(name), *_accuracy(folder)))
        self.rows = self.saved_rows
        with sources.leave_out("a tournament"):
            self.refresh()

    def refresh(self) -> None:
        """Open the models that tournaments have trained since."""
        trained = [path for folder in self.tournaments for path in _trained_files(folder)]
        if trained == self.trained:
            return
        rows, candidates = list(self.saved_rows), {}
        self.thresholds.clear()
        self.class_means.clear()
        self.object_maps.clear()
        for folder in self.tournaments:
            self.mappers.pop(folder, None)
            report = read_run(folder)
            standings = {row["name"]: row for row in report.get("standings", ())}
            for title, model in _load_candidates(folder).items():
                name, row = _unique(title, rows), standings.get(title, {})
                recommended = title == report.get("recommended")
                place = folder if recommended else finished_passes(folder, read_plan(folder))[0]
                candidates[name] = ServedModel(_on_device(model), place, folder)
                if threshold := _tournament_threshold(row, model, place):
                    self.thresholds[name, threshold.kind, True] = threshold
                accuracy = (row.get("accuracy") or [None])[0]  # of the first seed, as is the model
                images = "" if accuracy is None else _images(report["images"], report["judged"])
                rows.append(self._info(name, candidates[name], accuracy, images, recommended))
        self.rows, self.candidates, self.trained = rows, candidates, trained

    def get(self, name: str) -> ServedModel:
        if name not in self.folders:
            with suppress(ValueError, OSError):  # the tournament may have been removed
                self.refresh()
        if name in self.candidates:
            return self.candidates[name]
        if name not in self.folders:
            message = f"there is no model '{name[:80]}': /api/about lists the models"
            raise HTTPException(404, message)
        if name not in self.saved:
            folder = self.folders[name]
            self.saved[name] = ServedModel(_on_device(load(folder)), folder, folder)
        return self.saved[name]

    def class_names(self) -> list[str]:
        """Return the classes of the first model."""
        if not self.rows:
            return []
        return class_names(self.get(self.rows[0].id).model) or []

    def object_mapper(self, served: ServedModel) -> ObjectMapper | None:
        """Return the mapper of a run, None if its backbone has too few positions.

        A direction that was stored since is read.
        """
        run, file = served.run, served.run / OBJECT_MAP
        if run not in self.mappers:
            self.direction_times.pop(run, None)
            try:
                self.mappers[run] = ObjectMapper(served.model.backbone)
            except ValueError:
                self.mappers[run] = None
        mapper = self.mappers[run]
        if mapper is not None and file.is_file():
            written = file.stat().st_mtime_ns
            if written != self.direction_times.get(run):
                mapper.direction = read_direction(run)
                self.direction_times[run] = written
                self.object_maps.clear()
        return mapper

    def threshold(self, name: str, kind: str, value: float | None) -> Threshold:
        """Return the threshold as `cenote localize` chooses it.

        Cached, because choosing the kind of map runs the model on an empty image.
        """
        served, key = self.get(name), (name, kind, value is None)
        if key not in self.thresholds:
            threshold, _ = threshold_for(served.model, served.folder, value, kind)
            source = strip_directories(threshold.source)
            self.thresholds[key] = threshold._replace(source=source)
        if value is None:
            return self.thresholds[key]
        return self.thresholds[key]._replace(value=value)

    @torch.no_grad()
    def look(self, request: LookRequest, content: bytes) -> LookResponse:
        start = time.perf_counter()
        served = self.get(request.model)
        threshold = self.threshold(request.model, request.map, request.threshold)
        mapper = self.object_mapper(served) if threshold.kind == "object" else None
        size, doubts = threshold.size, threshold.doubts
        if mapper is not None:
            size = served.model.backbone.preprocessing.size
            doubts += mapper.doubts()
        predictor = MapPredictor(served.model, threshold.kind, threshold.size)
        photograph = _Photograph(served.model, content, (size, threshold.size))
        key = served.run, size, request.photo
        if key not in self.features:
            self.features[key] = _compute_features(served.model, size, photograph)
        photo = self.features[key]
        forward = ForwardPass(served.model, photo.images, threshold.kind, photo.features)
        probabilities = torch.ones(1)
        if forward.logits is not None:
            probabilities = served.model.probabilities(forward.logits.float())[0]
        predicted = probabilities.argmax()[None]
        if mapper is None:
            raw = forward.maps(predicted)[0].float()
        else:
            raw = self._object_map(served, mapper, threshold.size, request.photo, photograph)
            if not raw.any():
                doubts += ("no object: the photograph is blank",)
            if depends_on_class(served.model, "object"):
                class_map = map_of_features(served.model, photo.features, predicted, "cam")
                raw = object_of_class(raw[None], class_map.float())[0]
        if not (torch.isfinite(raw).all() and torch.isfinite(probabilities).all()):
            raise ValueError("the features of this photograph are NaN or infinite in this model")
        best = float(probabilities.max())
        prediction = MapPrediction(0, photo.size, None, best, raw.cpu().numpy())
        objects = boxes_from_map(predictor, prediction, threshold.value)
        rows, columns = raw.shape
        return LookResponse(
            photo=request.photo,
            model=request.model,
            width=photo.size[0],
            height=photo.size[1],
            classes=_top_classes(served.model, probabilities),
            unlike_training=self._unlike_training(served, photo.features),
            map=AttentionMap(
                kind=threshold.kind,
                description=mapper.describe() if mapper else "",
                rows=rows,
                columns=columns,
                weights=_normalized(raw),
            ),
            scores=_score_map(objects.map),
            threshold=MapThreshold(
                value=threshold.value,
                source="; ".join((threshold.source, *doubts)),
                default=threshold.default,
            ),
            boxes=[
                PixelBox(x0=x0, y0=y0, x1=x1, y1=y1, score=round(float(score), 6))
                for (x0, y0, x1, y1), score in zip(
                    objects.boxes.tolist(), objects.scores, strict=True
                )
            ],
            seconds=round(time.perf_counter() - start, 4),
        )

    def _unlike_training(self, served: ServedModel, features: Features) -> bool | None:
        """Return whether a photograph is unlike the training images, None if that is unknown."""
        if served.folder not in self.class_means:
            self.class_means[served.folder] = read_class_means(served.folder)
        class_means = self.class_means[served.folder]
        if class_means is None:
            return None
        return class_means.unlike(served.model.embed_features(features))[0]

    def _object_map(
        self,
        served: ServedModel,
        mapper: ObjectMapper,
        size: int,
        photo: str,
        photograph: _Photograph,
    ) -> Tensor:
        """Return (H, W); cached, so that another threshold is fast."""
        key = served.run, size, photo
        if key not in self.object_maps:
            if size != mapper.size:  # a threshold that was calibrated at another size
                mapper = ObjectMapper(served.model.backbone, size, mapper.direction)
            self.object_maps[key] = mapper.maps(photograph.square(size))[0]
        return self.object_maps[key]

    def _info(
        self,
        name: str,
        served: ServedModel,
        accuracy: float | None,
        evaluated_on: str,
        recommended: bool = False,
    ) -> ModelInfo:
        model, has_grad_cam = served.model, find_spec("pytorch_grad_cam") is not None
        maps = [kind for kind in model.map_kinds() if kind != "gradcam" or has_grad_cam]
        if self.object_mapper(served) is not None:
            maps.append("object")
        return ModelInfo(
            id=name,
            name=name,
            pool="cls" if model.pool is None else model.pool.name,
            backbone=model.backbone.name,
            classes=len(class_names(model) or ()),
            maps=maps,
            accuracy=accuracy,
            evaluated_on=evaluated_on,
            recommended=recommended,
        )


def _on_device(model: PooledModel) -> PooledModel:
    return model.eval().to(default_device())


class _Photograph:
    """A file that is decoded at most once, for the sizes at which a model sees it."""

    def __init__(self, model: PooledModel, content: bytes, sizes: tuple[int, int]) -> None:
        self.content, self.device = content, device_of(model)
        self.preprocessing = replace(model.backbone.preprocessing, scaled_decoding=True)
        self.min_side = self.preprocessing.min_side(*sizes)

    @cached_property
    def image(self) -> Image.Image:
        if not self.content:
            raise FileNeeded
        return read_image("the photograph", content=self.content, min_side=self.min_side)

    def square(self, size: int) -> Tensor:
        """Return pixels (1, 3, size, size)."""
        return self.preprocessing.whole((size, size))(self.image)[None].to(self.device)


def _compute_features(model: PooledModel, size: int, photograph: _Photograph) -> PhotoFeatures:
    images = photograph.square(size)
    return PhotoFeatures(images, full_size(photograph.image), run_frozen(model.backbone, images))


def _top_classes(model: PooledModel, probabilities: Tensor) -> list[ClassProbability]:
    names = class_names(model)
    if names is None:
        return []
    values, classes = probabilities.topk(min(TOP_CLASSES, len(names)))
    return [
        ClassProbability(name=names[i], probability=round(value, 6))
        for value, i in zip(values.tolist(), classes.tolist(), strict=True)
    ]


def _normalized(raw: Tensor) -> list[list[float]]:
    """Scale a map to sum to 1; of a class activation map only what speaks for the class counts."""
    weights = raw.clamp_min(0)
    if not weights.sum() > 0:
        weights = minmax(raw[None, None])[0, 0]
    if not weights.sum() > 0:
        weights = torch.ones_like(weights)
    weights = weights / weights.sum()
    return [[round(value, 7) for value in row] for row in weights.tolist()]


def _score_map(scores: Array) -> ScoreMap:
    """Quantize the scores; a large map is averaged over blocks first."""
    size = len(scores)
    side = min(MAX_SCORE_SIDE, size)
    if side < size:
        edges = np.linspace(0, size, side + 1).round().astype(int)[:-1]
        sums = np.add.reduceat(np.add.reduceat(scores, edges, 0), edges, 1)
        counts = np.diff([*edges, size])
        scores = sums / np.outer(counts, counts)
        scores = scores / (scores.max() or 1)
    return ScoreMap(side=side, values=quantise(scores).ravel().tolist())


def _load_candidates(folder: Path) -> dict[str, PooledModel]:
    try:
        return load_candidates(folder)
    except (ValueError, OSError):
        if (folder / "config.json").is_file():  # finished, so the error will not go away
            raise
        return {}  # started from its own checkpoint: opened when it is finished


def _unique(name: str, rows: list[ModelInfo]) -> str:
    """Number models of the same name."""
    names = [name, *(f"{name} ({i})" for i in range(2, len(rows) + 2))]
    return next(name for name in names if name not in [row.id for row in rows])


def _trained_files(folder: Path) -> list[Path]:
    """List the files whose appearance means that models were trained."""
    ends = [folder / "config.json", folder / "results.json"]
    return [*finished_passes(folder, read_plan(folder)), *filter(Path.is_file, ends)]


def _accuracy(folder: Path) -> tuple[float | None, str]:
    """Return the accuracy on test images, else on validation images, in percent, and on which."""
    report = read_run(folder)
    for split in SPLITS:
        if scores := report.get(split):
            return scores.get("accuracy"), _images(scores["images"], split)
    return None, ""


def _images(count: int, split: str) -> str:
    return f"{count} {SPLITS[split]} images"


def _tournament_threshold(
    row: dict[str, Any], model: PooledModel, folder: Path
) -> Threshold | None:
    """Return the threshold of a candidate's best boxes, if boxes were evaluated, not calibrated."""
    value, kind = row.get("threshold"), row.get("map")
    if value is None or kind not in model.map_kinds() or (folder / FILE).is_file():
        return None
    source = "the best on the images on which the tournament evaluated boxes, an oracle's"
    return Threshold(value, kind, model.map_side(kind), source)
