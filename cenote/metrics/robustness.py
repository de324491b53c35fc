"""Corruption errors (ImageNet-C), subset accuracy (ImageNet-A), backgrounds (ImageNet-9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .arrays import numpy_array

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
    """mCE and, if the clean error is known, relative mCE, as shares of AlexNet's (1: as bad as
    AlexNet).
    """

    mce: float
    relative_mce: float | None
    per_corruption: dict[str, float]


def corruption_error(
    errors: Mapping[str, float | Sequence[float]], clean_error: float | None = None
) -> CorruptionScore:
    """Top-1 errors (0 to 1) of all 15 corruptions, each one number or one for each severity."""
    unknown, missing = set(errors) - set(ALEXNET_ERRORS), set(ALEXNET_ERRORS) - set(errors)
    if unknown or missing:
        wrong = [
            f"{what} {', '.join(sorted(names))}"
            for what, names in (("unknown", unknown), ("missing", missing))
            if names
        ]
        raise ValueError(f"mCE is the mean over ImageNet-C's 15 corruptions: {'; '.join(wrong)}")
    means = {name: float(np.mean(errors[name])) for name in ALEXNET_ERRORS}
    bad = [name for name, error in means.items() if not 0 <= error <= 1]
    if bad:
        raise ValueError(f"errors are shares from 0 to 1, got {means[bad[0]]:g} for {bad[0]}")
    ratios = {name: error / ALEXNET_ERRORS[name] for name, error in means.items()}
    relative = None
    if clean_error is not None:
        rises = [
            (e - clean_error) / (ALEXNET_ERRORS[name] - ALEXNET_CLEAN_ERROR)
            for name, e in means.items()
        ]
        relative = float(np.mean(rises))
    return CorruptionScore(float(np.mean(list(ratios.values()))), relative, ratios)


def subset_accuracy(logits: Any, targets: Any, classes: Sequence[int]) -> float:
    """Top-1 accuracy among `classes` only: ImageNet-A asks a 1000-class model for one of 200.

    Targets are class numbers of the whole head, all of them in `classes`.
    """
    scores, truth, subset = numpy_array(logits), numpy_array(targets), np.asarray(classes)
    _check_logits(scores, truth)
    foreign = set(truth.tolist()) - set(subset.tolist())
    if foreign:
        raise ValueError(
            f"target {min(foreign)} is not among the {len(subset)} classes of the subset"
        )
    return float((subset[scores[:, subset].argmax(1)] == truth).mean())


def coarse_accuracy(logits: Any, targets: Any, coarse: Sequence[int]) -> float:
    """ImageNet-9: the best of all classes, mapped to its coarse class (-1: none of the nine),
    against the true one.
    """
    scores, truth, mapping = numpy_array(logits), numpy_array(targets), np.asarray(coarse)
    _check_logits(scores, truth)
    if len(mapping) != scores.shape[1]:
        raise ValueError(f"the logits have {scores.shape[1]} classes, the mapping {len(mapping)}")
    return float((mapping[scores.argmax(1)] == truth).mean())


def background_gap(accuracies: Mapping[str, float]) -> float:
    """Mixed-Same minus Mixed-Rand: what a background of the right class is worth."""
    missing = [name for name in ("mixed_same", "mixed_rand") if name not in accuracies]
    if missing:
        raise ValueError(
            f"the background gap needs the accuracy on {' and '.join(missing)}; there are {list(accuracies)}"
        )
    return accuracies["mixed_same"] - accuracies["mixed_rand"]


def _check_logits(scores: np.ndarray[Any, Any], truth: np.ndarray[Any, Any]) -> None:
    if scores.ndim != 2 or truth.shape != scores.shape[:1] or not len(truth):
        raise ValueError(
            f"logits are (n, classes) and targets (n,), got {scores.shape} and {truth.shape}"
        )
