"""Boxes and masks of photographs without ground truth: a saved model's maps at a threshold."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from ..data import Dataset
from ..data.loading import UnreadableImage
from ..metrics.arrays import Array
from ..metrics.contours import EIGHT, largest_contour_box
from ..metrics.score_maps import quantise
from .maps import ClassMap, MapPredictor
from .progress_file import ProgressFile, run_digest

log = logging.getLogger(__name__)
MIN_AREA = 0.1  # of the largest object of an image, for a further object
# Of `refine`, a conditional random field.
CRF_SIDE = 48  # pixels; time and memory grow with its fourth power
CRF_MAP_WEIGHT = 12.0  # of the map's distance to the threshold, in log odds
CRF_PAIR_WEIGHT = 3.0  # of the other pixels' opinion, in log odds
CRF_POSITION = 0.5  # standard deviation of the kernel, in sides of the photograph
CRF_COLOUR = 0.05  # standard deviation of the kernel, in ranges of a colour channel
CRF_STEPS = 5


class MapPrediction(NamedTuple):
    """Map and class of one image: all that boxes at any threshold need."""

    position: int  # in the data set
    size: tuple[int, int]  # (width, height) of the image
    class_id: int | None  # the predicted class; None for a model without a head
    probability: float  # of the class; 1 without one
    map: Array  # (h, w) as the model predicts it
    further: Sequence[ClassMap] = ()  # more classes of a multi-label model
    unlike_training: bool | None = None  # None: unknown


class BoxPrediction(NamedTuple):
    """Boxes of one image, in pixels of the upright image; the maxima are exclusive."""

    position: int
    size: tuple[int, int]
    class_id: int | None
    probability: float
    boxes: Array  # (k, 4) x0, y0, x1, y1; k = 0 if the map is constant
    scores: Array  # (k,): the probability, times the highest score of the map in the object
    map: Array  # (S, S) in [0, 1]
    objects: Array  # (S, S): 0, or the number of the object's box, from 1
    further: tuple[BoxPrediction, ...] = ()  # of more classes of a multi-label model
    unlike_training: bool | None = None


def predict_boxes(
    predictor: MapPredictor,
    dataset: Dataset,
    threshold: float,
    several: bool = False,
    progress_file: Path | None = None,
    refined: bool = False,
) -> Iterator[BoxPrediction | UnreadableImage]:
    """Predict the boxes of each image for the predicted class, as the WSOL protocol does.

    `refined`: maps follow the edges of the photographs (`refine`).

    With a progress file, which the caller removes, a killed run resumes, also at another threshold.
    """
    predictions = predict_maps(predictor, dataset)
    preprocessing = predictor.model.backbone.preprocessing
    if progress_file is not None:
        options: dict[str, object] = {"kind": predictor.kind, "size": predictor.size}
        options["preprocessing"] = preprocessing.identity()
        digest = run_digest(predictor.model, dataset, **options)
        file = ProgressFile(progress_file, digest, _from_json)
        predictions = file.resume(dataset, lambda images: predict_maps(predictor, images))
    for prediction in predictions:
        if isinstance(prediction, UnreadableImage):
            yield prediction
        else:
            photograph = None
            if refined:
                photograph = dataset.image(prediction.position, preprocessing.min_side(CRF_SIDE))
            boxes = boxes_from_map(predictor, prediction, threshold, several, photograph)
            if not len(boxes.boxes):
                path = dataset.path(prediction.position)
                log.info("%s: nothing stands out, so it has no box", path)
            yield boxes


def predict_maps(
    predictor: MapPredictor, dataset: Dataset
) -> Iterator[MapPrediction | UnreadableImage]:
    """Predict the map of the predicted class of each image, in the order of the images."""
    for batch in predictor.iterate(dataset):
        results: list[MapPrediction | UnreadableImage] = list(batch.bad)
        for i, (position, finite) in enumerate(zip(batch.positions, batch.finite(), strict=True)):
            if not finite:
                message = f"{dataset.path(position)}: its features are NaN or infinite"
                results.append(UnreadableImage(position, message))
                continue
            class_id, probability = None, 1.0
            if batch.logits is not None:
                best, index = predictor.model.probabilities(batch.logits[i]).max(0)
                class_id, probability = int(index), float(best)
            raw = batch.maps[i].numpy()
            further = batch.further[i] if batch.further else ()
            size = batch.sizes[i]
            unlike = batch.unlike_training[i] if batch.unlike_training else None
            results.append(
                MapPrediction(position, size, class_id, probability, raw, further, unlike)
            )
        yield from sorted(results, key=lambda result: result.position)


def boxes_from_map(
    predictor: MapPredictor,
    prediction: MapPrediction,
    threshold: float,
    several: bool = False,
    photograph: Image.Image | None = None,
) -> BoxPrediction:
    """Threshold the map of an image, refined with its photograph if given, and box its objects."""
    score_map = predictor.scores(torch.from_numpy(prediction.map)[None])[0]
    if photograph is not None:
        score_map = refine(score_map, photograph, threshold)
    cells, objects = objects_at(score_map, threshold, several)
    peaks = np.array([score_map[objects == k].max() for k in range(1, len(cells) + 1)])
    boxes = to_pixels(cells, score_map.shape, prediction.size)
    scores = prediction.probability * peaks
    others = (prediction._replace(**c._asdict(), further=()) for c in prediction.further)
    further = tuple(
        boxes_from_map(predictor, other, threshold, several, photograph) for other in others
    )
    return BoxPrediction(
        *prediction[:4], boxes, scores, score_map, objects, further, prediction.unlike_training
    )


def _from_json(entry: list[Any]) -> MapPrediction:
    position, (width, height), class_id, probability, raw, others, unlike = entry
    further = [ClassMap(*other) for other in others]
    return MapPrediction(position, (width, height), class_id, probability, raw, further, unlike)


def objects_at(score_map: Array, threshold: float, several: bool = False) -> tuple[Array, Array]:
    """Return boxes (k, 4) in cells, maxima exclusive, and (H, W) the object of each cell, from 1.

    By default the box of the contour of largest area, as in MaxBoxAcc. `several`: the box of every
    8-connected component with at least MIN_AREA of the largest one's cells, the largest first.
    """
    from scipy import ndimage

    levels = quantise(score_map)
    foreground = levels > int(threshold * levels.max())
    labels, count = ndimage.label(foreground, EIGHT)
    areas = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    boxes = [
        (columns.start, rows.start, columns.stop, rows.stop)
        for rows, columns in ndimage.find_objects(labels)
    ]
    if several:
        by_area = np.argsort(-areas, kind="stable").tolist()
        order = [k for k in by_area if areas[k] >= MIN_AREA * areas.max()]
    else:
        # The outer border of a component has the component's box; the larger of two is taken.
        largest = [tuple(box) for box in largest_contour_box(foreground).tolist()]
        same = [k for k, box in enumerate(boxes) if box in largest]
        order = sorted(same, key=lambda k: -areas[k])[:1]
    numbers = np.zeros(count + 1, np.int64)
    numbers[[k + 1 for k in order]] = np.arange(1, len(order) + 1)
    return np.array([boxes[k] for k in order], np.int64).reshape(-1, 4), numbers[labels]


def object_masks(prediction: BoxPrediction) -> list[Array]:
    """Return a mask (H, W) of the image's size for each box, smooth between the map's cells."""
    masks = []
    for k in range(1, len(prediction.boxes) + 1):
        cells = Image.fromarray((prediction.objects == k).astype(np.uint8) * 255)
        masks.append(np.asarray(cells.resize(prediction.size, Image.Resampling.BILINEAR)) > 127)
    return masks


def to_pixels(cells: Array, grid: tuple[int, ...], size: tuple[int, int]) -> Array:
    """Scale boxes in cells of a map of the whole image to pixels: never outside, never empty."""
    limits = np.array([*size, *size])
    cells_across = np.array([grid[1], grid[0], grid[1], grid[0]])
    pixels: Array = np.rint(cells * limits / cells_across).astype(np.int64)
    pixels[:, :2] = np.minimum(pixels[:, :2], limits[:2] - 1)
    pixels[:, 2:] = np.clip(pixels[:, 2:], pixels[:, :2] + 1, limits[2:])
    return pixels


def refine(score_map: Array, photograph: Image.Image, threshold: float) -> Array:
    """Return a map (H, W) in [0, 1] that follows the photograph's edges, for the same threshold.

    A dense conditional random field: pixels that are near and of similar colour should both be
    object or both be background [Krähenbühl and Koltun 2011]. At this size the mean field over all
    pairs is exact, one matrix product a step. The map (H, W) is of the whole photograph. A constant
    map has no object and is not changed.
    """
    if score_map.min() == score_map.max():
        return score_map
    scores = F.interpolate(torch.from_numpy(score_map)[None, None].float(), CRF_SIDE, mode="area")
    unary = CRF_MAP_WEIGHT * (scores.flatten() - threshold)  # (N,)
    pixels = photograph.convert("RGB").resize((CRF_SIDE, CRF_SIDE), Image.Resampling.BILINEAR)
    affinity = pair_weights(torch.from_numpy(np.asarray(pixels) / np.float32(255)))
    probability = unary.sigmoid()  # (N,) of object
    for _ in range(CRF_STEPS):
        probability = (unary + CRF_PAIR_WEIGHT * (affinity @ (2 * probability - 1))).sigmoid()
    grid = probability.reshape(1, 1, CRF_SIDE, CRF_SIDE)
    fine = F.interpolate(grid, score_map.shape, mode="bicubic")[0, 0].clamp(0, 1).numpy()
    # A probability of 0.5 becomes the threshold.
    refined: Array = np.interp(fine, [0, 0.5, 1], [0, threshold, 1]).astype(np.float32)
    return refined


def pair_weights(pixels: torch.Tensor) -> torch.Tensor:
    """(S, S, 3) in [0, 1] -> (N, N): a Gaussian of position and colour, whose rows sum to 1."""
    axis = torch.arange(len(pixels)) / len(pixels)
    positions = torch.cartesian_prod(axis, axis)  # (N, 2)
    points = torch.cat([positions / CRF_POSITION, pixels.flatten(0, 1) / CRF_COLOUR], 1)  # (N, 5)
    # exp(-|p - q|^2 / 2): the term |p|^2 is the same in a row, and the sum of the row cancels it.
    return (points @ points.T - points.square().sum(1) / 2).softmax(1)
