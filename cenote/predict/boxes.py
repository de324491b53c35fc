"""Boxes and masks of photographs without any truth: a saved model's maps at a threshold."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from ..data import Dataset
from ..data.loading import UnreadableImage, load
from ..metrics.arrays import Array
from ..metrics.score_maps import quantise
from ..metrics.thresholding import EIGHT, largest_contour_box
from .journal import Journal, name_of_run
from .maps import MapPredictor

LEAST = 0.1  # of several objects in one image, the smallest against the largest, in pixels


class Found(NamedTuple):
    """What was found in one image. Boxes are whole pixels of the upright image, the far edges outside."""

    position: int  # in the data set
    size: tuple[int, int]  # (width, height) of the image
    class_id: int | None  # the predicted one; None for a model without a head
    probability: float  # of the class; 1 without one
    boxes: Array  # (k, 4) x0, y0, x1, y1; none where the map is constant
    scores: Array  # (k,): the probability, times the highest score of the map in the box's object
    map: Array  # (S, S) in [0, 1]
    objects: Array  # (S, S): 0, or the number of the object's box, from 1


class Looked(NamedTuple):
    """What the model made of one image: all that boxes at any threshold need."""

    position: int
    size: tuple[int, int]
    class_id: int | None
    probability: float
    map: Array  # (h, w) as the model gave it


def find(
    predictor: MapPredictor,
    dataset: Dataset,
    threshold: float,
    several: bool = False,
    journal: Path | None = None,
) -> Iterator[Found | UnreadableImage]:
    """Image by image, for the predicted class, exactly as `localize` looks at them when a threshold is chosen.

    With a `journal`, which is left there, a run that was killed goes on where it was; at another threshold, too.
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"a threshold is at least 0 and less than 1, got {threshold}")
    looked = look(predictor, dataset)
    if journal is not None:
        run = name_of_run(predictor.model, dataset, kind=predictor.kind, size=predictor.size)
        looked = Journal(journal, run, _written, _read).over(
            dataset, lambda images: look(predictor, images)
        )
    for one in looked:
        yield (
            one
            if isinstance(one, UnreadableImage)
            else found_in(predictor, one, threshold, several)
        )


@torch.no_grad()
def look(predictor: MapPredictor, dataset: Dataset) -> Iterator[Looked | UnreadableImage]:
    """In the order of the images."""
    for loaded in load(dataset, predictor.transform(), predictor.batch, predictor.workers):
        seen: list[Looked | UnreadableImage] = list(loaded.bad)
        if len(loaded.indices):
            images, sizes = loaded.images
            sight = predictor.predict(images)
            if sight.logits is None:
                certain, classes = (
                    torch.ones(len(images)),
                    torch.zeros(len(images), dtype=torch.long),
                )
            else:
                certain, classes = sight.logits.float().softmax(1).max(1)
            raw = sight.maps(classes.to(sight.images.device)).float().cpu()
            finite = (
                torch.isfinite(raw).flatten(1).all(1) & torch.isfinite(certain).cpu()
            ).tolist()
            for i, position in enumerate(map(int, loaded.indices)):
                if not finite[i]:
                    seen.append(
                        UnreadableImage(
                            position, f"{dataset.path(position)}: its features are NaN or infinite"
                        )
                    )
                    continue
                width, height = sizes[i].tolist()
                named = None if sight.logits is None else int(classes[i])
                seen.append(
                    Looked(position, (width, height), named, float(certain[i]), raw[i].numpy())
                )
        yield from sorted(seen, key=lambda one: one.position)


def found_in(
    predictor: MapPredictor, looked: Looked, threshold: float, several: bool = False
) -> Found:
    score_map = predictor.scores(torch.from_numpy(looked.map)[None])[0]
    cells, objects = objects_at(score_map, threshold, several)
    peaks = np.array([score_map[objects == k].max() for k in range(1, len(cells) + 1)])
    boxes = to_pixels(cells, score_map.shape, looked.size)
    return Found(*looked[:4], boxes, looked.probability * peaks, score_map, objects)


def _written(one: Looked) -> list[Any]:
    numbers = b64encode(one.map.astype("<f4").tobytes()).decode()
    return [one.position, *one.size, one.class_id, one.probability, *one.map.shape, numbers]


def _read(line: list[Any]) -> Looked:
    position, width, height, class_id, probability, rows, columns, numbers = line
    seen = np.frombuffer(b64decode(numbers), "<f4").astype(np.float32).reshape(rows, columns)
    return Looked(position, (width, height), class_id, probability, seen)


def objects_at(score_map: Array, threshold: float, several: bool = False) -> tuple[Array, Array]:
    """Boxes (k, 4) in cells, far edges outside, and (H, W) the numbers of their objects, from 1, on the foreground.

    One: the contour of largest area, as MaxBoxAcc takes it. Several: every component of 8 neighbours that has a tenth
    of the largest one's pixels, the largest first.
    """
    from scipy import ndimage

    levels = quantise(score_map)
    foreground = levels > int(threshold * levels.max())
    labels, count = ndimage.label(foreground, EIGHT)
    pixels = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    slices = ndimage.find_objects(labels)
    if several:
        order = [
            int(k) for k in np.argsort(-pixels, kind="stable") if pixels[k] >= LEAST * pixels.max()
        ]
    else:
        own = [tuple(box) for box in largest_contour_box(foreground).tolist()]
        # The outer border of a component has the component's own box; of two with the same box the larger is taken.
        same = [k for k, (y, x) in enumerate(slices) if (x.start, y.start, x.stop, y.stop) in own]
        order = sorted(same, key=lambda k: -pixels[k])[:1]
    boxes = [
        (slices[k][1].start, slices[k][0].start, slices[k][1].stop, slices[k][0].stop)
        for k in order
    ]
    numbers = np.zeros(count + 1, np.int64)
    numbers[[k + 1 for k in order]] = np.arange(1, len(order) + 1)
    return np.array(boxes, np.int64).reshape(-1, 4), numbers[labels]


def object_masks(found: Found) -> list[Array]:
    """A mask (H, W) over the image for each box, its edge smooth between the map's cells."""
    masks = []
    for k in range(1, len(found.boxes) + 1):
        cells = Image.fromarray((found.objects == k).astype(np.uint8) * 255)
        masks.append(np.asarray(cells.resize(found.size, Image.Resampling.BILINEAR)) > 127)
    return masks


def to_pixels(cells: Array, grid: tuple[int, ...], size: tuple[int, int]) -> Array:
    """Boxes in cells of a map over the whole image -> whole pixels, never outside, never empty."""
    limits = np.array([*size, *size])
    scaled: Array = np.rint(cells * limits / np.array([grid[1], grid[0], grid[1], grid[0]])).astype(
        np.int64
    )
    scaled[:, :2] = np.minimum(scaled[:, :2], limits[:2] - 1)
    scaled[:, 2:] = np.clip(scaled[:, 2:], scaled[:, :2] + 1, limits[2:])
    return scaled
