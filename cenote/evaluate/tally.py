"""One pass over images whose objects are known: every count that a localization report is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import BadImage, Dataset
from ..data.loading import load
from ..data.truth import boxes_of, mask_of
from ..metrics import BoxAccuracy, PixelPrecision, class_ranks, resize_mask
from ..metrics.arrays import Array
from ..metrics.centred import CentredBox
from ..models.class_map import depends_on_class
from ..predict.maps import MapPredictor

Progress = Callable[[int], object]  # images done since the last call


class KnownOverlaps(BoxAccuracy):
    """`add` also takes what `overlaps` gave, (T,), in the place of a map: contours are not followed twice."""

    def overlaps(
        self, score_map: Any, boxes: Any, image_size: Sequence[float], name: str = "the image"
    ) -> Array:
        known = np.ndim(score_map) == 1
        return score_map if known else super().overlaps(score_map, boxes, image_size, name)


class Tally:
    """Counts of one data set. `ious` are the largest contour's of each image with boxes, at every threshold or one."""

    def __init__(
        self, interval: float, bin_width: float, resamples: int, threshold: float | None = None
    ) -> None:
        self.all = BoxAccuracy(interval, 2, resamples)
        self.largest = KnownOverlaps(interval, 1, resamples)
        self.centred = CentredBox(interval, 2, resamples)
        self.predicted: BoxAccuracy | None = None
        self.pixels = PixelPrecision(bin_width)
        self.threshold = threshold
        self.positions: list[int] = []
        self.ious: list[Array] = []
        self.seen, self.first, self.among_five = (
            0,
            0,
            0,
        )  # images, and those whose class is told right
        self.without_truth = 0
        self.bad: list[str] = []

    def run(
        self,
        predictor: MapPredictor,
        dataset: Dataset,
        classes: Tensor,
        thorough: bool,
        progress: Progress | None,
    ) -> None:
        """`classes` (n,) are the model's numbers of the images' classes. Choosing thresholds asks for boxes alone;
        `thorough` asks for masks and for the map of the predicted class too."""
        if thorough and predictor.model.head is not None:
            self.predicted = BoxAccuracy(self.all.interval, 2)
        for found in load(dataset, predictor.transform(), predictor.batch, predictor.workers):
            self.bad += [sentence for _, sentence in found.bad]
            if len(found.indices):
                images, sizes = found.images
                self._add(
                    predictor,
                    dataset,
                    found.indices,
                    images,
                    sizes.tolist(),
                    classes[found.indices],
                    thorough,
                )
            if progress:
                progress(len(found.indices) + len(found.bad))

    def _add(self, predictor: MapPredictor, dataset: Dataset, indices: Tensor, images: Tensor, sizes: list[list[int]],
             classes: Tensor, thorough: bool) -> None:  # fmt: skip
        sight = predictor.predict(images)
        wanted = classes.to(sight.images.device)
        raw = sight.maps(wanted)
        maps, finite = predictor.scores(raw), torch.isfinite(raw).flatten(1).all(1)
        ranks = (
            None
            if sight.logits is None
            else np.asarray(class_ranks(sight.logits.float().cpu(), classes))
        )
        judged, boxes, overlaps = [], [], []
        for i, position in enumerate(indices.tolist()):
            name = str(dataset.path(position))
            if not finite[i]:
                self.bad.append(f"{name}: its features are NaN or infinite")
                continue
            told = len(self.bad)
            useful = thorough and self._add_mask(maps[i], dataset, position, sizes[i], name)
            try:
                truth = boxes_of(dataset, position, sizes[i])
                if len(truth):
                    overlaps.append(self.largest.overlaps(maps[i], truth, sizes[i], name))
                    self._keep(position, overlaps[-1])
                    judged.append(i)
                    boxes.append(truth)
                    useful = True
            except ValueError as error:
                self.bad.append(str(error))
            if useful:
                self.seen += 1
                if ranks is not None:
                    self.first, self.among_five = (
                        self.first + int(ranks[i] < 1),
                        self.among_five + int(ranks[i] < 5),
                    )
            elif len(self.bad) == told:  # neither a box nor a mask
                self.without_truth += 1
        if not judged:
            return
        sizes, names = (
            [sizes[i] for i in judged],
            [str(dataset.path(int(indices[i]))) for i in judged],
        )
        places = None if ranks is None else ranks[judged]
        for accuracy, seen in (
            (self.all, maps[judged]),
            (self.largest, overlaps),
            (self.centred, maps[judged]),
        ):
            accuracy.add(seen, boxes, sizes, places, names)
        if self.predicted is not None and sight.logits is not None:
            if depends_on_class(predictor.model, predictor.kind):
                maps = predictor.scores(sight.maps(sight.logits.argmax(1)))
            self.predicted.add(maps[judged], boxes, sizes, places, names)

    def _keep(self, position: int, overlaps: Array) -> None:
        """Without a threshold chosen before, the IoU at each: two bytes a threshold and image."""
        if self.threshold is not None:
            overlaps = overlaps[np.abs(self.largest.thresholds - self.threshold).argmin()]
        self.positions.append(position)
        self.ious.append(np.asarray(overlaps, np.float16))

    def _add_mask(
        self, score_map: Array, dataset: Dataset, position: int, size: list[int], name: str
    ) -> bool:
        """Whether there is one that counts."""
        if dataset.mask_codes.startswith("classes"):  # of a scene, not of the image's object
            return False
        try:
            mask = mask_of(dataset, position, size)
            if mask is not None:
                self.pixels.add(score_map, resize_mask(mask, score_map.shape), name)
                return True
        except BadImage as error:
            self.bad.append(str(error))
        return False
