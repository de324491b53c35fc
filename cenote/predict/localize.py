"""The boxes of photographs in one call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..data.loading import UnreadableImage
from ..data.sources import open_photographs
from ..metrics.boxes import Box
from .boxes import predict_boxes
from .open_model import class_names, open_model
from .thresholds import threshold_for

log = logging.getLogger(__name__)


class PhotoBox(NamedTuple):
    """A box of a photograph: x0, y0, x1, y1 in pixels of the upright file, maxima exclusive."""

    path: Path
    box: Box
    score: float  # probability of the class, times the highest value of the map in the box
    label: str | None  # class; None for a model without a head


def localize(
    photos: str | Path | Sequence[str | Path], model: str | Path | None = None
) -> list[PhotoBox]:
    """Return the boxes of files, folders and globs of photographs, as `cenote localize` does.

    `model` is the folder of a saved model, by default lite0, which needs no download. Photographs
    that cannot be read are logged and left out.
    """
    folder = None if model is None else Path(model)
    network, _ = open_model(folder=folder)
    if isinstance(photos, str | Path):
        photos = [photos]
    dataset = open_photographs([str(path) for path in photos])
    threshold, predictor = threshold_for(network, folder, None)
    predictor.fit(dataset, folder)
    names, boxes = class_names(network), []
    for prediction in predict_boxes(predictor, dataset, threshold.value):
        if isinstance(prediction, UnreadableImage):
            log.warning("skipped %s", prediction.message)
            continue
        path = dataset.path(prediction.position)
        for part in (prediction, *prediction.further):
            label = None
            if names is not None and part.class_id is not None:
                label = names[part.class_id]
            for (x0, y0, x1, y1), score in zip(part.boxes, part.scores, strict=True):
                box = (int(x0), int(y0), int(x1), int(y1))
                boxes.append(PhotoBox(path, box, float(score), label))
    return boxes
