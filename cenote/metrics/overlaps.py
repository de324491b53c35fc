"""How well the contour boxes of a map fit the true boxes, at every threshold at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import available
from .arrays import Array
from .boxes import box_iou
from .score_maps import check_score_map, quantise
from .thresholding import contour_boxes, largest_contour_box, overlaps_by_threshold


def contour_overlaps(levels: Array, truth: Array, version: int = 2) -> Array:
    """(H, W) uint8 -> (256,): at c the largest IoU (+1 convention) of a contour box of `levels > c`
    with a true box.

    Version 2 looks at all contours, version 1 at the one of largest area. Where nothing is above c
    the box is [0, 0, 0, 0], as in the published program. `truth` is (k, 4) whole pixels of the map.
    """
    height, width = levels.shape
    best = np.zeros(256)
    best[levels.max() :] = box_iou([0, 0, 0, 0], truth, plus_one=True).max()
    if not available():
        overlaps_by_threshold(levels, truth, version, best)
        return best
    from .sweep import met_before, sort_pixels, sweep

    truth = np.ascontiguousarray(truth, np.int64)
    shift = (width + 1).bit_length()  # rows of the padded map start at powers of two
    levels = np.ascontiguousarray(levels)
    if version == 1:
        from .largest import fill_holes, largest_sweep

        filled = fill_holes(levels)
        order, starts = sort_pixels(filled, shift)
        largest_sweep(
            order, starts, met_before(filled, shift)[0], shift, width, height, truth, best
        )
        return best
    order, starts = sort_pixels(levels, shift)
    down, up = met_before(levels, shift)
    sweep(order, starts, down, shift, width, height, False, truth, best)
    sweep(order, starts, up, shift, width, height, True, truth, best)
    return best


def boxes_at(score_map: Any, threshold: float, version: int = 1, name: str = "the image") -> Array:
    """(k, 4) boxes x0, y0, x1, y1 of a score map in [0, 1] at one threshold, by the same rules;
    (0, 4) if none.
    """
    levels = quantise(check_score_map(score_map, name))
    foreground = levels > int(threshold * levels.max())
    boxes = contour_boxes(foreground) if version == 2 else largest_contour_box(foreground)
    boxes[:, 2:] = np.minimum(boxes[:, 2:], (levels.shape[1] - 1, levels.shape[0] - 1))
    return boxes
