"""Refine a map with the pixels of its photograph: a dense conditional random field.

Pixels that are near and of similar colour should both be object or both be background [Krähenbühl
and Koltun 2011]. At SIDE x SIDE pixels the mean field over all pairs is exact: one matrix product a
step.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from ..metrics.arrays import Array

SIDE = 48  # pixels; time and memory grow with its fourth power
MAP_WEIGHT = 12.0  # of the map's distance to the threshold, in log odds
PAIR_WEIGHT = 3.0  # of the other pixels' opinion, in log odds
POSITION = 0.5  # standard deviation of the kernel, in sides of the photograph
COLOUR = 0.05  # standard deviation of the kernel, in ranges of a colour channel
STEPS = 5


def refine(score_map: Array, photograph: Image.Image, threshold: float) -> Array:
    """Return a map (H, W) in [0, 1] that follows the photograph's edges, for the same threshold.

    The map (H, W) is of the whole photograph. A constant map has no object and is not changed.
    """
    if score_map.min() == score_map.max():
        return score_map
    scores = F.interpolate(torch.from_numpy(score_map)[None, None].float(), SIDE, mode="area")
    unary = MAP_WEIGHT * (scores.flatten() - threshold)  # (N,)
    pixels = photograph.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    affinity = pair_weights(torch.from_numpy(np.asarray(pixels) / np.float32(255)))
    probability = unary.sigmoid()  # (N,) of object
    for _ in range(STEPS):
        probability = (unary + PAIR_WEIGHT * (affinity @ (2 * probability - 1))).sigmoid()
    grid = probability.reshape(1, 1, SIDE, SIDE)
    fine = F.interpolate(grid, score_map.shape, mode="bicubic")[0, 0].clamp(0, 1).numpy()
    # A probability of 0.5 becomes the threshold.
    refined: Array = np.interp(fine, [0, 0.5, 1], [0, threshold, 1]).astype(np.float32)
    return refined


def pair_weights(pixels: torch.Tensor) -> torch.Tensor:
    """(S, S, 3) in [0, 1] -> (N, N): a Gaussian of position and colour, whose rows sum to 1."""
    axis = torch.arange(len(pixels)) / len(pixels)
    positions = torch.cartesian_prod(axis, axis)  # (N, 2)
    points = torch.cat([positions / POSITION, pixels.flatten(0, 1) / COLOUR], 1)  # (N, 5)
    # exp(-|p - q|^2 / 2): the term |p|^2 is the same in a row, and the sum of the row cancels it.
    return (points @ points.T - points.square().sum(1) / 2).softmax(1)
