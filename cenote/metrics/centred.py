"""What a box scores that has not seen the image: photographers put their subject in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import Array
from .box_accuracy import BoxAccuracy, scale_boxes
from .boxes import box_iou


class CentredBox(BoxAccuracy):
    """Box accuracy of a fixed box in the middle of every image. Its "threshold" t is what its side
    lacks: 1 - t of the image's width and height. So it is chosen, on validation images or on the
    test's own, exactly as a threshold is.
    """

    def overlaps(
        self, score_map: Any, boxes: Any, image_size: Sequence[float], name: str = "the image"
    ) -> Array:
        """(T,): the IoU at each side; of the map only its size counts, so that both are rounded
        alike.
        """
        height, width = score_map.shape
        truth = scale_boxes(boxes, image_size, (width, height), name)
        size = np.array([width, height], np.float64)
        low = np.trunc(self.thresholds[:, None] / 2 * size)  # (T, 2)
        high = np.minimum(np.trunc((1 - self.thresholds[:, None] / 2) * size), size - 1)
        best: Array = box_iou(np.hstack([low, high]), truth, plus_one=True).max(1)
        return best
