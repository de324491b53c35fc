"""Ranked lists: the revisited Oxford and Paris landmarks, and the rank of the true class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, numpy_array

# What counts as right and what is taken out of the list, by difficulty.
LANDMARK_SETTINGS = {
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}


class LandmarkScore(NamedTuple):
    """Shares, 0 to 1, over the queries that have something to find."""

    map: float
    mp: dict[int, float]  # mean precision at k
    queries: int


def trapezoid_ap(places: Any, relevant: int) -> float:
    """Average precision by trapezoids: `places` are those (from 0, ascending) of the found among
    `relevant` images.
    """
    places = numpy_array(places).astype(np.float64)
    hits = np.arange(len(places))
    # Precision just before and just after each hit; before the very first place it is 1 by
    # definition.
    before = np.divide(hits, places, out=np.ones(len(places)), where=places > 0)
    return float(((before + (hits + 1) / (places + 1)) / 2).sum() / relevant)


def landmark_scores(
    order: Any, truth: Sequence[Mapping[str, Any]], ks: Sequence[int] = (1, 5, 10)
) -> dict[str, LandmarkScore]:
    """ROxford and RParis: mAP and mP@k, easy, medium and hard.

    `order` (queries, images): database images, best first. `truth`: for each query the images that
    are "easy", "hard" and "junk". Junk (and what the setting does not ask for) leaves the list
    before anything is counted.
    """
    lists = numpy_array(order)
    if lists.ndim != 2 or len(lists) != len(truth):
        raise ValueError(
            f"order is (queries, images), one row for each of {len(truth)} queries, got {lists.shape}"
        )
    for i, query in enumerate(truth):
        absent = {"easy", "hard", "junk"} - set(query)
        if absent:
            raise ValueError(f"query {i} has no list of {' and '.join(sorted(absent))} images")
    return {name: _setting(lists, truth, ks, *groups) for name, groups in LANDMARK_SETTINGS.items()}


def _setting(lists: Array, truth: Sequence[Mapping[str, Any]], ks: Sequence[int], right: tuple[str, ...],
             removed: tuple[str, ...]) -> LandmarkScore:  # fmt: skip
    averages, precisions = [], []
    for ranked, query in zip(lists, truth, strict=True):
        positives = np.concatenate([numpy_array(query[group]) for group in right]).astype(np.int64)
        if not len(positives):
            continue  # nothing to find at this difficulty
        junk = np.concatenate([numpy_array(query[group]) for group in removed]).astype(np.int64)
        ranking = ranked[~np.isin(ranked, junk)]
        places = np.flatnonzero(np.isin(ranking, positives))
        averages.append(trapezoid_ap(places, len(positives)))
        # Where all is found before place k, the precision is that at the last hit.
        depths = [min(k, int(places[-1]) + 1) if len(places) else k for k in ks]
        precisions.append([float((places < depth).sum() / depth) for depth in depths])
    if not averages:
        return LandmarkScore(float("nan"), dict.fromkeys(ks, float("nan")), 0)
    means = np.mean(precisions, axis=0).tolist()
    return LandmarkScore(float(np.mean(averages)), dict(zip(ks, means, strict=True)), len(averages))


def class_ranks(logits: Any, targets: Any) -> Array:
    """(n, classes) and (n,) -> (n,): how many classes come before the true one; of equals the first
    class does.
    """
    scores, truth = numpy_array(logits), numpy_array(targets).astype(np.int64)
    if scores.ndim != 2 or truth.shape != scores.shape[:1]:
        raise ValueError(
            f"logits are (n, classes) and targets (n,), got {scores.shape} and {truth.shape}"
        )
    true_scores = scores[np.arange(len(truth)), truth][:, None]
    first = np.arange(scores.shape[1]) < truth[:, None]
    return ((scores > true_scores) | ((scores == true_scores) & first)).sum(1)
