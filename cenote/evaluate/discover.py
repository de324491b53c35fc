"""Object discovery without labels: where is the object in each image, and how often is that right (CorLoc)?"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from ..data import Box, Dataset
from ..data.loading import UnreadableImage
from ..data.truth import visible
from ..metrics import CorLoc, bootstrap_interval, box_iou
from ..metrics.arrays import Array
from ..predict.discovery.dino_seg import dino_seg
from ..predict.discovery.lost import lost
from ..predict.discovery.mask_cut import mask_cut
from ..predict.discovery.objects import Found
from ..predict.discovery.results import Discovered, Sighting, read, rows_of, written
from ..predict.discovery.token_cut import token_cut
from ..predict.journal import Journal, name_of_run
from ..predict.patch_features import Look, Looker

Progress = Callable[[int], object]
METHODS: dict[str, Callable[[Look, str], list[Found]]] = {
    "lost": lambda look, name: [lost(look.keys, look.grid, name=name)],
    "dinoseg": lambda look, name: [dino_seg(look.attention, name=name)],
    "dinoseg-compat": lambda look, name: [dino_seg(look.attention, compat=True, name=name)],
    "tokencut": lambda look, name: [token_cut(look.keys, look.grid, name=name)],
    "maskcut": lambda look, name: mask_cut(look.keys, look.grid, name=name),
}
CASES = 6  # images kept to be shown, of the best and of the worst


def find_objects(
    looker: Looker, dataset: Dataset, methods: Sequence[str] = ("tokencut",), workers: int = 0
) -> Iterator[Sighting | UnreadableImage]:
    """Image by image, in order; one that cannot be read, or whose features are not finite, is a `UnreadableImage`."""
    for look in looker(dataset, workers):
        if isinstance(look, UnreadableImage):
            yield look
            continue
        try:
            found = {
                m: in_pixels(METHODS[m](look, str(dataset.path(look.position))), look)
                for m in methods
            }
        except ValueError as error:
            yield UnreadableImage(look.position, str(error))
            continue
        yield Sighting(look.position, look.size, found)


def looker_for(model: nn.Module, methods: Sequence[str], **looking: Any) -> Looker:
    """What the methods need to be read from the model."""
    unknown = [method for method in methods if method not in METHODS]
    if unknown or not methods:
        raise ValueError(
            f"no way of discovering objects '{', '.join(unknown)}': {', '.join(METHODS)}"
        )
    attention = [method.startswith("dinoseg") for method in methods]
    return Looker(model, not all(attention), any(attention), **looking)


def in_pixels(objects: Sequence[Found], look: Look) -> Discovered:
    """Boxes in patches times the size of a patch in the image: the grid covers all of it."""
    real = [(one.box, one.mask) for one in objects if one.box is not None]
    (width, height), (rows, columns) = look.size, look.grid
    patch = np.array([width / columns, height / rows] * 2)
    boxes = np.array([box for box, _ in real], np.float64).reshape(-1, 4) * patch
    return Discovered(boxes, [mask for _, mask in real])


def true_boxes(
    boxes: Sequence[Box], size: tuple[int, int], hard: bool = True, name: str = "the image"
) -> Array:
    """(k, 4): of any class. Crowds are no object; difficult and truncated ones are, unless `hard` is False."""
    return visible(
        [b for b in boxes if not b.crowd and (hard or not (b.difficult or b.truncated))], size, name
    )


def discover(
    model: nn.Module,
    dataset: Dataset,
    methods: Sequence[str] = ("tokencut",),
    hard: bool = True,
    delta: float = 0.5,
    workers: int = 0,
    progress: Progress | None = None,
    each: Callable[[Sighting], None] | None = None,
    journal: Path | None = None,
    **looking: Any,
) -> dict[str, Any]:
    """CorLoc in percent for each method, and for a box in the middle with half of the image's area.

    Images without a true box are looked at (`each` gets every one) and not counted; those with a box outside of the
    image neither, and named. `looking` are the options of
    `Looker`: size, source, head, centre. With a `journal`, a run that was killed goes on where it was.
    """
    looker = looker_for(model, methods, **looking)

    def look(images: Dataset) -> Iterator[Sighting | UnreadableImage]:
        return find_objects(looker, images, methods, workers)

    sightings = look(dataset)
    if journal is not None:
        run = name_of_run(model, dataset, methods=list(methods), **looking)
        sightings = Journal(journal, run, written, read).over(dataset, look)
    scores = {method: _Score(delta) for method in (*methods, "centre")}
    seen, wrong, bad = 0, 0, []
    for sighting in sightings:
        if progress:
            progress(1)
        if isinstance(sighting, UnreadableImage):
            bad.append(sighting.message)
            continue
        seen += 1
        if each:
            each(sighting)
        name = str(dataset.path(sighting.position))
        try:
            truth = true_boxes(dataset[sighting.position].boxes, sighting.size, hard, name)
        except ValueError as error:
            bad.append(str(error))
            wrong += 1
            continue
        if len(truth):
            for method, found in {**sighting.found, "centre": middle(sighting.size)}.items():
                scores[method].add(sighting.position, found, truth, name)
    if journal is not None:
        journal.unlink(missing_ok=True)  # all is done
    if not seen:
        raise ValueError(
            f"no image of {dataset.name} could be used: {bad[0] if bad else 'it is empty'}"
        )
    counted = scores["centre"].corloc.count
    return {
        "methods": {method: score.result() for method, score in scores.items()} if counted else {},
        "images": counted,
        "without_box": seen - counted - wrong,
        "unreadable": bad,
        "delta": delta,
        "keys": looker.found_source,
        "attention": looker.kind,
    }


def middle(size: tuple[int, int], area: float = 0.5) -> Discovered:
    """What a method must beat: most photographers put the object there."""
    sides = np.array([*size, *size]) / 2
    return Discovered((sides + np.sqrt(area) * sides * [-1, -1, 1, 1])[None], [])


class _Score:
    """CorLoc of one method, one small number an image, and the best and the worst to be shown."""

    def __init__(self, delta: float) -> None:
        self.corloc, self.overlaps = CorLoc(delta), array("d")
        self.best: list[_Case] = []
        self.worst: list[_Case] = []

    def add(self, position: int, found: Discovered, truth: Array, name: str) -> None:
        self.corloc.add(found.boxes, truth, name)
        overlap = float(box_iou(found.boxes, truth).max(initial=0))
        self.overlaps.append(overlap)
        for heap, sign in ((self.best, 1), (self.worst, -1)):
            heapq.heappush(heap, _Case(sign * overlap, -position, found, truth, name))
            if len(heap) > CASES:
                heapq.heappop(heap)

    def result(self) -> dict[str, Any]:
        overlaps = np.array(self.overlaps)
        return {
            "corloc": 100 * self.corloc.result(),
            "interval": [
                100 * share for share in bootstrap_interval(overlaps >= self.corloc.delta)
            ],
            "mean_overlap": 100 * float(overlaps.mean()),
            "best": [
                case.told() for case in sorted(self.best, key=lambda case: case[:2], reverse=True)
            ],
            "worst": [
                case.told() for case in sorted(self.worst, key=lambda case: case[:2], reverse=True)
            ],
        }


class _Case(NamedTuple):
    rank: float  # the overlap, or minus it
    place: int  # of equals the first images are kept
    found: Discovered
    truth: Array
    name: str

    def told(self) -> dict[str, Any]:
        return {
            "position": -self.place,
            "image": self.name,
            "overlap": 100 * abs(self.rank),
            "boxes": self.found.boxes.round(1).tolist(),
            "truth": self.truth.round(1).tolist(),
            "masks": [rows_of(mask) for mask in self.found.masks],
        }
