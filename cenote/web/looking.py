"""Where a model looks in photographs: what `cenote localize` finds in the file, and why."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..backbones import Features
from ..data import read_image
from ..metrics.arrays import Array
from ..metrics.score_maps import quantise
from ..models import PooledModel
from ..models.cam import minmax
from ..models.decided import Sight
from ..predict.boxes import objects_at, to_pixels
from ..predict.maps import MapPredictor
from ..predict.open_model import class_names
from ..predict.thresholds import Threshold
from .models import Models
from .questions import Look, Refusal, Unseen

SIDE = 64  # at most, of the scores that a page thresholds by itself
KEPT = 48  # photographs whose features are remembered: pools side by side look at the same ones
FIRST = 5  # classes


class Seen(NamedTuple):
    images: Tensor  # (1, 3, S, S)
    size: tuple[int, int]
    features: Features


class Glance(Sight):
    """A sight of features that the backbone has given before."""

    def __init__(self, model: PooledModel, seen: Seen, kind: str) -> None:
        self.model, self.images, self.kind, self.features = model, seen.images, kind, seen.features
        self.logits = (
            None if model.head is None else model.head(model.embed_features(seen.features))
        )


class Looking:
    def __init__(self, models: Models) -> None:
        self.models = models
        self.seen: OrderedDict[tuple[str, int, str], Seen] = (
            OrderedDict()
        )  # by family, size, photograph

    @torch.no_grad()
    def __call__(self, looks: Sequence[Look]) -> list[dict[str, Any] | Refusal]:
        """Photographs that no model of the family has seen go through its backbone together."""
        started, found = time.perf_counter(), list[dict[str, Any] | Refusal]()
        known = list[tuple[Look, Threshold, MapPredictor] | Refusal]()
        for look in looks:
            try:
                threshold = self.models.threshold(look.model, look.map, look.threshold)
                opened = self.models.get(look.model)
                predictor = MapPredictor(opened.model, threshold.kind, threshold.size)
                if (
                    look.content is None
                    and (opened.family, predictor.size, look.photo) not in self.seen
                ):
                    raise Unseen
                known.append((look, threshold, predictor))
            except Refusal as refusal:
                known.append(refusal)
        self._see([each for each in known if not isinstance(each, Refusal)])
        for each in known:
            found.append(each if isinstance(each, Refusal) else self._answer(*each, started))
            started = time.perf_counter()
        return found

    def _see(self, wanted: list[tuple[Look, Threshold, MapPredictor]]) -> None:
        fresh = dict[tuple[str, int], dict[str, tuple[Look, MapPredictor]]]()
        for look, _, predictor in wanted:
            family = self.models.get(look.model).family, predictor.size
            if (*family, look.photo) in self.seen:
                self.seen.move_to_end((*family, look.photo))
            else:
                fresh.setdefault(family, {})[look.photo] = look, predictor
        for family, asked in fresh.items():
            predictor = next(iter(asked.values()))[1]
            transform = predictor.transform()
            pairs = [
                transform(read_image("the photograph", content=look.content))
                for look, _ in asked.values()
            ]
            images = torch.stack([pixels for pixels, _ in pairs])
            features = predictor.model.features(images)
            for i, photo in enumerate(asked):
                width, height = pairs[i][1].tolist()
                cls = None if features.cls is None else _one(features.cls, i)
                own = Features(_one(features.tokens, i), features.grid, cls)
                self.seen[(*family, photo)] = Seen(_one(images, i), (width, height), own)
        while len(self.seen) > max(KEPT, len(wanted)):
            self.seen.popitem(last=False)

    def _answer(
        self, look: Look, threshold: Threshold, predictor: MapPredictor, started: float
    ) -> dict[str, Any] | Refusal:
        opened = self.models.get(look.model)
        seen = self.seen[(opened.family, predictor.size, look.photo)]
        sight = Glance(predictor.model, seen, predictor.kind)
        share, names = torch.ones(1), class_names(predictor.model)
        if sight.logits is not None:
            share = sight.logits.float().softmax(1)[0]
        raw = sight.maps(share.argmax()[None])
        if not (torch.isfinite(raw).all() and torch.isfinite(share).all()):
            return Refusal(400, "the features of this photograph are NaN or infinite in this model")
        scores = predictor.scores(raw)[0]
        cells, objects = objects_at(scores, threshold.value)
        boxes = to_pixels(cells, scores.shape, seen.size).tolist()
        peaks = [float(scores[objects == k].max()) for k in range(1, len(boxes) + 1)]
        first = share.topk(min(FIRST, len(share)))
        return {
            "photo": look.photo, "model": look.model, "width": seen.size[0], "height": seen.size[1],
            "classes": [] if names is None else [
                {"name": names[int(i)], "probability": round(float(p), 6)} for p, i in zip(*first, strict=True)
            ],
            "map": {"kind": predictor.kind, "rows": raw.shape[1], "columns": raw.shape[2], "weights": _weights(raw[0])},
            "scores": _scores(scores),
            "threshold": {
                "value": threshold.value, "source": "; ".join((threshold.source, *threshold.doubts)),
                "default": threshold.default,
            },
            "boxes": [
                {"x0": x0, "y0": y0, "x1": x1, "y1": y1, "score": round(float(share.max()) * peak, 6)}
                for (x0, y0, x1, y1), peak in zip(boxes, peaks, strict=True)
            ],
            "seconds": round(time.perf_counter() - started, 4),
        }  # fmt: skip


def _one(batch: Tensor, i: int) -> Tensor:
    """A copy: a view would keep the whole batch in memory."""
    return batch[i : i + 1].clone()


def _weights(raw: Tensor) -> list[list[float]]:
    """The model's own grid, summing to one: of an activation map what speaks for the class."""
    positive = raw.float().clamp_min(0)
    if not positive.sum() > 0:
        positive = minmax(raw.float()[None, None])[0, 0]
    total = positive.sum()
    share = positive / total if total > 0 else torch.full_like(positive, 1 / positive.numel())
    return [[round(value, 7) for value in row] for row in share.tolist()]


def _scores(scores: Array) -> dict[str, Any]:
    """What is thresholded, as levels; of a large map the mean of neighbours."""
    side = min(SIDE, len(scores))
    if side < len(scores):
        edges = np.linspace(0, len(scores), side + 1).round().astype(int)[:-1]
        sums = np.add.reduceat(np.add.reduceat(scores, edges, 0), edges, 1)
        counts = np.diff([*edges, len(scores)])
        scores = sums / np.outer(counts, counts)
        scores = scores / (scores.max() or 1)
    return {"side": side, "values": quantise(scores).ravel().tolist()}
