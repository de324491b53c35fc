"""Object discovery without labels: how often is a discovered box right (CorLoc)?"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..data import Box, Dataset
from ..data.ground_truth import visible
from ..data.loading import UnreadableImage
from ..metrics import box_iou
from ..metrics.arrays import Array
from ..metrics.intervals import wilson_interval
from ..predict.discovery import (
    DEFAULT_METHOD,
    METHODS,
    DiscoveredObjects,
    DiscoveryResult,
    discover_objects,
)
from ..predict.embedding import Loading
from ..report.blocks import Block
from ..report.discovery import BASELINE, discovery_blocks, discovery_page, method_title
from .protocol import Evaluation, Figure, Picture, Protocol, Report, count_images

log = logging.getLogger(__name__)
DELTA = 0.5  # the IoU from which a box is right
SIDES = np.arange(1, 101) / 100  # of boxes in the middle, shares of the image's sides
MAX_CELLS = 96  # of the masks of the cases
CASES = 6  # images to show of the best and of the worst


@dataclass
class DiscoveryCase:
    position: int
    image: str
    overlap: float  # IoU in percent
    boxes: list[list[float]]
    truth: list[list[float]]
    masks: list[list[str]]  # rows of 0 and 1, in patches


@dataclass
class MethodScore:
    """CorLoc of one method in percent, with its 95% interval."""

    corloc: float
    interval: list[float]
    mean_overlap: float
    best: list[DiscoveryCase]
    worst: list[DiscoveryCase]


@dataclass
class DiscoveryReport(Report):
    methods: dict[str, MethodScore]  # also of a box in the middle; empty without true boxes
    images: int
    images_with_boxes: int  # of which CorLoc is the share
    unreadable: list[str]
    delta: float
    keys: str | None  # where keys came from
    attention: str | None  # the kind of map
    object_map: str | None = None  # what it is based on
    centred_side: float | None = None  # of the box in the middle, a share of the image's sides
    # Of the command: data, backbone, size.
    details: Mapping[str, object] = field(default_factory=dict)
    not_in_json = ("details",)

    def to_json(self) -> dict[str, object]:
        return {**self.details, **super().to_json()}

    def table(self, split: str = "") -> str:
        if not self.methods:
            return "no true boxes: nothing to evaluate"
        origins = {"keys": self.keys, "attention": self.attention}
        sources = [f"{name} {origin}" for name, origin in origins.items() if origin is not None]
        sources += filter(None, [self.object_map])
        lines = [
            f"{count_images(self.images_with_boxes)} with boxes · {', '.join(sources)} · "
            f"right: IoU at least {self.delta:g}",
            f"{'':22s}{'CorLoc':>8s}{'95% interval':>16s}{'mean IoU':>10s}",
        ]
        for name, score in sorted(self.methods.items(), key=lambda item: -item[1].corloc):
            interval = "{:.1f} to {:.1f}".format(*score.interval)
            lines.append(
                f"{method_title(name):22s}{score.corloc:8.1f}{interval:>16s}{score.mean_overlap:10.1f}"
            )
        return "\n".join(lines)

    def figures(self) -> list[Figure]:
        unit = f"% of {self.images_with_boxes} images"
        return [Figure(f"CorLoc, {name}", s.corloc, unit) for name, s in self.methods.items()]

    def pictures(self, dataset: Dataset) -> Iterable[Picture]:
        """Return the best and worst cases of each method."""
        values = self.to_json()
        for method in self.methods:
            if method != BASELINE:
                draw = partial(discovery_page, values, dataset, method)
                yield f"discover_{method}.jpg", draw


class Discover(Protocol[DiscoveryReport], name="discover"):
    resumable = True

    def run(self, evaluation: Evaluation) -> DiscoveryReport:
        progress_file = None
        if evaluation.out is not None:
            progress_file = evaluation.out / ".discover.jsonl"
        model, test, methods = evaluation.model, evaluation.test, list(METHODS)
        with evaluation.loading("discover", len(test)) as loading:
            return discover(model, test, methods, loading=loading, progress_file=progress_file)

    def pictures(self, evaluation: Evaluation, report: DiscoveryReport) -> Iterable[Picture]:
        return report.pictures(evaluation.test)

    def blocks(self, evaluation: Evaluation, report: DiscoveryReport) -> list[Block]:
        return discovery_blocks(report.to_json(), evaluation.test)


def true_boxes(
    boxes: Sequence[Box], size: tuple[int, int], hard: bool = True, name: str = "the image"
) -> Array:
    """Return (k, 4) of any class but crowds; `hard` includes difficult and truncated objects."""
    used = [b for b in boxes if not b.crowd and (hard or not (b.difficult or b.truncated))]
    return visible(used, size, name)


def discover(
    model: nn.Module,
    dataset: Dataset,
    methods: Sequence[str] = (DEFAULT_METHOD,),
    hard: bool = True,
    loading: Loading = Loading(),
    on_result: Callable[[DiscoveryResult], None] | None = None,
    progress_file: Path | None = None,
    **options: Any,
) -> DiscoveryReport:
    """Compute CorLoc for each method, and for a box in the middle of the size that is best here.

    `on_result` receives every image; those without a true box are not counted, nor are those with a
    box outside of the image, which are named. `options` are those of `discover_objects`: size,
    source, head, centre, pad, dino_positions, refined, folder. With a progress file a killed run
    resumes.
    """
    extractor, predictor, results = discover_objects(
        model, dataset, methods, loading.workers, progress_file, **options
    )
    if predictor is not None:
        log.info("%s", predictor.describe())
        for warning in predictor.doubts():
            log.warning("%s", warning)
    scores = {method: _RunningScore() for method in methods}
    centred, images, bad = list[Array](), 0, list[str]()
    for result in results:
        loading.advance(1)
        if isinstance(result, UnreadableImage):
            bad.append(result.message)
            continue
        images += 1
        if on_result:
            on_result(result)
        name = str(dataset.path(result.position))
        try:
            truth = true_boxes(dataset[result.position].boxes, result.size, hard, name)
        except ValueError as error:
            bad.append(str(error))
            continue
        if len(truth):
            centred.append(box_iou(centred_boxes(result.size), truth).max(1))
            for method, objects in result.objects.items():
                scores[method].add(result.position, objects, truth, name)
    if progress_file is not None:
        progress_file.unlink(missing_ok=True)
    if not images:
        reason = next(iter(bad), "it is empty")
        raise ValueError(f"no image of {dataset.name} could be used: {reason}")
    report = DiscoveryReport(
        methods={},
        images=images,
        images_with_boxes=len(centred),
        unreadable=bad,
        delta=DELTA,
        keys=extractor.key_source,
        attention=extractor.map_kind,
        object_map=None if predictor is None else predictor.describe(),
    )
    if centred:
        overlaps = np.stack(centred)
        best = (overlaps >= DELTA).mean(0).argmax()
        report.methods = {method: score.result() for method, score in scores.items()}
        report.methods[BASELINE] = _method_score(overlaps[:, best])
        report.centred_side = float(SIDES[best])
    return report


def centred_boxes(size: tuple[int, int]) -> Array:
    """Return (100, 4), boxes of SIDES of the image: photographers place the object in the middle."""
    half = np.array([*size, *size]) / 2
    boxes: Array = half + SIDES[:, None] * half * [-1, -1, 1, 1]
    return boxes


def _method_score(
    overlaps: Array, best: Sequence[DiscoveryCase] = (), worst: Sequence[DiscoveryCase] = ()
) -> MethodScore:
    corloc, mean = float((overlaps >= DELTA).mean()), float(overlaps.mean())
    interval = [100 * bound for bound in wilson_interval(corloc, len(overlaps))]
    return MethodScore(100 * corloc, interval, 100 * mean, list(best), list(worst))


def _thinned(mask: Array) -> Array:
    """Return at most MAX_CELLS of a mask in each direction."""
    step = -(-max(mask.shape) // MAX_CELLS)
    return mask[step // 2 :: step, step // 2 :: step]


class _RunningScore:
    """CorLoc of one method, one number per image, and the best and the worst images."""

    def __init__(self) -> None:
        self.overlaps = array("d")
        self.best: list[DiscoveryCase] = []
        self.worst: list[DiscoveryCase] = []

    def add(self, position: int, objects: DiscoveredObjects, truth: Array, name: str) -> None:
        overlap = float(box_iou(objects.boxes, truth).max(initial=0))
        self.overlaps.append(overlap)
        boxes, true_boxes = objects.boxes.round(1).tolist(), truth.round(1).tolist()
        masks = [
            ["".join("01"[cell] for cell in row) for row in mask.astype(int)]
            for mask in map(_thinned, objects.masks)
        ]
        case = DiscoveryCase(position, name, 100 * overlap, boxes, true_boxes, masks)
        self.best = sorted([*self.best, case], key=lambda c: (-c.overlap, c.position))[:CASES]
        self.worst = sorted([*self.worst, case], key=lambda c: (c.overlap, c.position))[:CASES]

    def result(self) -> MethodScore:
        return _method_score(np.array(self.overlaps), self.best, self.worst)
