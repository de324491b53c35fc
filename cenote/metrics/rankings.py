"""Ranked lists: average precision in both definitions in use, mAP of several classes per image,
the revisited Oxford and Paris landmarks, and the rank of the true class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..options import check_choice
from .arrays import Array, numpy_array

# What counts as right and what is taken out of the list, by difficulty.
LANDMARK_SETTINGS = {
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}


def average_precision(relevance: Any, kind: str = "standard") -> float:
    """`relevance` (N,): which images of the list, best first, are right; 0 where none is.

    standard: the mean over the right images of the precision at their place (one right image at
    place 2 gives 0.5). trapezoid: the mean of the precision before and at their place (0.25), as in
    landmark and domain conversion protocols.
    """
    places = np.flatnonzero(numpy_array(relevance))
    return of_places(places, len(places), kind)


def of_places(places: Any, relevant: int, kind: str = "standard") -> float:
    """`places` are those (from 0, ascending) of the found among `relevant` images."""
    check_choice("the kind of average precision", kind, ("standard", "trapezoid"))
    if not relevant:
        return 0.0
    places = numpy_array(places).astype(np.float64)
    hits = np.arange(len(places))
    precision = (hits + 1) / (places + 1)
    if kind == "trapezoid":
        # Precision just before and just after each hit; before the first place it is 1 by
        # definition.
        before = np.divide(hits, places, out=np.ones(len(places)), where=places > 0)
        precision = (before + precision) / 2
    return float(precision.sum() / relevant)


def class_average_precisions(scores: Any, targets: Any) -> Array:
    """(images, classes) each -> (classes,): the average precision of each class.

    Images with equal scores have one place together, so that their order does not count. NaN for a
    class that no image has.
    """
    values, right = numpy_array(scores).astype(np.float64), numpy_array(targets).astype(bool)
    if values.ndim != 2 or values.shape != right.shape:
        raise ValueError(
            f"scores and targets are (images, classes), got {values.shape} and {right.shape}"
        )
    order = np.argsort(-values, axis=0, kind="stable")
    values, right = np.take_along_axis(values, order, 0), np.take_along_axis(right, order, 0)
    result = np.full(values.shape[1], np.nan)
    for c in np.flatnonzero(right.any(0)):
        last = np.append(np.flatnonzero(np.diff(values[:, c])), len(values) - 1)  # of equal scores
        hits = right[:, c].cumsum()[last]
        result[c] = (np.diff(hits, prepend=0) * hits / (last + 1)).sum() / hits[-1]
    return result


def mean_average_precision(scores: Any, targets: Any) -> float:
    """mAP of multi-label classification: the mean over the classes that some image has."""
    precisions = class_average_precisions(scores, targets)
    if np.isnan(precisions).all():
        raise ValueError("mAP of no class: no image has any of them")
    return float(np.nanmean(precisions))


class LandmarkScore(NamedTuple):
    """Shares, 0 to 1, over the queries that have something to find."""

    map: float
    mp: dict[int, float]  # mean precision at k
    queries: int


def landmark_scores(
    order: Any, truth: Sequence[Mapping[str, Any]], ks: Sequence[int] = (1, 5, 10)
) -> dict[str, LandmarkScore]:
    """ROxford and RParis: mAP and mP@k, easy, medium and hard.

    `order` (queries, images): database images, best first. `truth`: for each query the images that
    are "easy", "hard" and "junk". Junk (and what the setting does not ask for) leaves the list
    before anything is counted.
    """
    lists = numpy_array(order)
    return {name: _setting(lists, truth, ks, *groups) for name, groups in LANDMARK_SETTINGS.items()}


def _setting(
    lists: Array,
    truth: Sequence[Mapping[str, Any]],
    ks: Sequence[int],
    right: tuple[str, ...],
    removed: tuple[str, ...],
) -> LandmarkScore:
    averages, precisions = [], []
    for ranked, query in zip(lists, truth, strict=True):
        positives = np.concatenate([numpy_array(query[group]) for group in right]).astype(np.int64)
        if not len(positives):
            continue  # nothing to find at this difficulty
        junk = np.concatenate([numpy_array(query[group]) for group in removed]).astype(np.int64)
        ranking = ranked[~np.isin(ranked, junk)]
        places = np.flatnonzero(np.isin(ranking, positives))
        averages.append(of_places(places, len(positives), "trapezoid"))
        # Where all is found before place k, the precision is that at the last hit.
        last = places.max(initial=-1) + 1 or max(ks)
        depths = [min(k, int(last)) for k in ks]
        precisions.append([float((places < depth).sum() / depth) for depth in depths])
    if not averages:
        return LandmarkScore(float("nan"), dict.fromkeys(ks, float("nan")), 0)
    means = np.mean(precisions, axis=0).tolist()
    return LandmarkScore(float(np.mean(averages)), dict(zip(ks, means, strict=True)), len(averages))


def class_ranks(logits: Any, targets: Any) -> Array:
    """(n, classes), (n,) -> (n,): classes before the true one; ties keep the lower class."""
    scores, truth = numpy_array(logits), numpy_array(targets).astype(np.int64)
    true_scores = scores[np.arange(len(truth)), truth][:, None]
    first = np.arange(scores.shape[1]) < truth[:, None]
    return ((scores > true_scores) | ((scores == true_scores) & first)).sum(1)
