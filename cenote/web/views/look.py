"""Attention map, classes and boxes of a photograph: GET /api/look."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from ..schemas import Schema
from ..service import Service, WorkerRequest
from ..state import State
from .photos import PhotoDigest

if TYPE_CHECKING:
    from torch import Tensor

    from ...metrics.arrays import Array
    from ...predict.maps import MapPredictor
    from ...predict.thresholds import Threshold
    from ..models import PhotoFeatures

MAX_SCORE_SIDE = 64  # of the scores that the page thresholds by itself
TOP_CLASSES = 5
MapKind = Literal["auto", "pool", "cls", "rollout", "cam", "gradcam"]

router = APIRouter()


class ClassProbability(Schema):
    name: str
    probability: float


class AttentionMap(Schema):
    kind: str
    rows: int
    columns: int
    weights: list[list[float]] = Field(description="on the model's grid; they sum to 1")


class ScoreMap(Schema):
    side: int
    values: list[int] = Field(description="0 to 255, row by row: what is thresholded")


class MapThreshold(Schema):
    value: float
    source: str
    default: bool = Field(description="neither requested nor calibrated for this model")


class PixelBox(Schema):
    x0: int
    y0: int
    x1: int
    y1: int
    score: float


class LookResponse(Schema):
    photo: str
    model: str
    width: int
    height: int
    classes: list[ClassProbability]
    map: AttentionMap
    scores: ScoreMap
    threshold: MapThreshold
    boxes: list[PixelBox] = Field(description="in pixels of width x height")
    seconds: float


class LookRequest(WorkerRequest):
    max_batch = 8
    photo: PhotoDigest
    model: str = Field(min_length=1, max_length=500)
    map: MapKind = Field("auto", description="kind of map")
    threshold: float | None = Field(
        None, ge=0, lt=1, description="of the map; by default the model's own"
    )

    @classmethod
    def run_batch(cls, batch: Mapping[LookRequest, bytes | None], service: Service) -> list[bytes]:
        """Run photographs that are new to a family of models through its backbone together."""
        import torch

        from ...predict.maps import MapPredictor
        from ..models import FeatureKey

        start, models = time.perf_counter(), service.models
        files, jobs, answers = {}, [], []
        for request, content in batch.items():
            threshold = models.threshold(request.model, request.map, request.threshold)
            served = models.get(request.model)
            predictor = MapPredictor(served.model, threshold.kind, threshold.size)
            key = FeatureKey(served.family, threshold.size, request.photo)
            files[key] = predictor, content
            jobs.append((request, predictor, threshold, key))
        with torch.no_grad():
            features = models.photo_features(files)
            for request, predictor, threshold, key in jobs:
                response = request._respond(predictor, threshold, features[key], start)
                answers.append(response.to_json())
                start = time.perf_counter()
        return answers

    def _respond(
        self, predictor: MapPredictor, threshold: Threshold, photo: PhotoFeatures, start: float
    ) -> LookResponse:
        import torch

        from ...models.class_map import ForwardPass
        from ...predict.boxes import MapPrediction, boxes_from_map
        from ...predict.open_model import class_names

        forward = ForwardPass(predictor.model, photo.images, predictor.kind, photo.features)
        probabilities, names = torch.ones(1), class_names(predictor.model)
        if forward.logits is not None:
            probabilities = forward.logits.float().softmax(1)[0]
        raw = forward.maps(probabilities.argmax()[None])[0]
        if not (torch.isfinite(raw).all() and torch.isfinite(probabilities).all()):
            raise ValueError("the features of this photograph are NaN or infinite in this model")
        best, score_map = float(probabilities.max()), raw.float().cpu().numpy()
        prediction = MapPrediction(0, photo.size, None, best, score_map)
        found = boxes_from_map(predictor, prediction, threshold.value)
        classes = []
        if names is not None:
            top = probabilities.topk(min(TOP_CLASSES, len(names)))
            classes = [
                ClassProbability(name=names[int(i)], probability=round(float(p), 6))
                for p, i in zip(*top, strict=True)
            ]
        rows, columns = raw.shape
        return LookResponse(
            photo=self.photo,
            model=self.model,
            width=photo.size[0],
            height=photo.size[1],
            classes=classes,
            map=AttentionMap(
                kind=predictor.kind, rows=rows, columns=columns, weights=_normalized(raw)
            ),
            scores=_score_map(found.map),
            threshold=MapThreshold(
                value=threshold.value,
                source="; ".join((threshold.source, *threshold.doubts)),
                default=threshold.default,
            ),
            boxes=[
                PixelBox(x0=x0, y0=y0, x1=x1, y1=y1, score=round(float(score), 6))
                for (x0, y0, x1, y1), score in zip(found.boxes.tolist(), found.scores, strict=True)
            ],
            seconds=round(time.perf_counter() - start, 4),
        )


@router.get("/api/look", response_model=LookResponse)
async def look(request: Request, state: State, query: Annotated[LookRequest, Query()]) -> Response:
    """Return the classes, the attention map and the boxes of a photograph."""
    answer = await state.answer(request, query, state.photos.get(query.photo).content)
    return Response(answer, media_type="application/json")


def _normalized(raw: Tensor) -> list[list[float]]:
    """Scale a map to sum to 1; of a class activation map only what speaks for the class counts."""
    import torch

    from ...models.cam import minmax

    weights = raw.float().clamp_min(0)
    if not weights.sum() > 0:
        weights = minmax(raw.float()[None, None])[0, 0]
    if not weights.sum() > 0:
        weights = torch.ones_like(weights)
    weights = weights / weights.sum()
    return [[round(value, 7) for value in row] for row in weights.tolist()]


def _score_map(scores: Array) -> ScoreMap:
    """Quantize the scores; a large map is averaged over blocks first."""
    import numpy as np

    from ...metrics.score_maps import quantise

    size = len(scores)
    side = min(MAX_SCORE_SIDE, size)
    if side < size:
        edges = np.linspace(0, size, side + 1).round().astype(int)[:-1]
        sums = np.add.reduceat(np.add.reduceat(scores, edges, 0), edges, 1)
        counts = np.diff([*edges, size])
        scores = sums / np.outer(counts, counts)
        scores = scores / (scores.max() or 1)
    return ScoreMap(side=side, values=quantise(scores).ravel().tolist())
