"""Corruption errors (ImageNet-C) and backgrounds (ImageNet-9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# AlexNet's top-1 errors, each the mean over the five severities, as published with ImageNet-C
# (Hendrycks and Dietterich, 2019), and its error on clean images as their table prints it.
ALEXNET_ERRORS = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}
ALEXNET_CLEAN_ERROR = 0.435


class CorruptionScore(NamedTuple):
    """mCE and, if the clean error is known, relative mCE, as shares of AlexNet's."""

    mce: float
    relative_mce: float | None
    per_corruption: dict[str, float]


def corruption_error(
    errors: Mapping[str, float | Sequence[float]], clean_error: float | None = None
) -> CorruptionScore:
    """Top-1 errors (0 to 1) of all 15 corruptions, each one number or one for each severity."""
    if wrong := set(errors) ^ set(ALEXNET_ERRORS):
        names = ", ".join(sorted(wrong))
        raise ValueError(f"mCE is the mean over ImageNet-C's 15 corruptions; differing: {names}")
    means = {name: float(np.mean(errors[name])) for name in ALEXNET_ERRORS}
    ratios = {name: error / ALEXNET_ERRORS[name] for name, error in means.items()}
    relative = None
    if clean_error is not None:
        rises = {name: value - ALEXNET_CLEAN_ERROR for name, value in ALEXNET_ERRORS.items()}
        relative = float(np.mean([(e - clean_error) / rises[name] for name, e in means.items()]))
    return CorruptionScore(float(np.mean(list(ratios.values()))), relative, ratios)


def background_gap(accuracies: Mapping[str, float]) -> float:
    """Mixed-Same minus Mixed-Rand: what a background of the right class is worth."""
    return accuracies["mixed_same"] - accuracies["mixed_rand"]
