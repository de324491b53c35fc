"""How well nearest neighbours are of the query's class: Recall@K, P@1, R-precision, MAP@R, and the
accuracy of nearest neighbours as a classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..options import check_choice
from .arrays import as_labels, as_vectors
from .nearest import BUDGET, nearest

KS = (1, 2, 4, 8)
KS_OF = {"sop": (1, 10, 100, 1000), "inshop": (1, 10, 20, 30)}  # as published for these data sets
# neighbours that every query is given; only those with nothing right among them are asked for more
FIRST = 32
WITHOUT_MATCH = ("exclude", "miss")
# Of nearest neighbours as a classifier: queries at a time, and DINO's temperature.
CHUNK, TEMPERATURE = 1024, 0.07


class QueryScores(NamedTuple):
    """Of each query, in the order of the queries; 0 for one that has nothing to find."""

    matches: Tensor  # (Q,) R, how many there are to find
    recall: Tensor  # (Q, len(ks)) whether one is among the k nearest
    p_at_1: Tensor  # (Q,) whether the nearest is one
    r_precision: Tensor  # (Q,) share of right ones among the R nearest
    map_at_r: Tensor  # (Q,) (1/R) sum over i <= R of P@i where the i-th is right
    # (Q, keep) places in the gallery, best first; -1 where nobody asked, or there are no more
    nearest: Tensor


def retrieval_scores(
    embeddings: Any,
    labels: Any,
    ks: Sequence[int] = KS,
    gallery: Any = None,
    gallery_labels: Any = None,
    distance: str = "cosine",
    without_match: str = "exclude",
    budget: int = BUDGET,
) -> dict[str, float]:
    """Shares, 0 to 1: recall@k for each k, p@1, r_precision and map@r; and how many queries they
    are means of.

    Every row asks for the others of its class, or for those of a gallery. Queries that have nothing
    to find are `without_match` in number: "exclude" leaves them out of the means, "miss" counts
    them as 0. Beside the embeddings about `budget` bytes are used, however many rows there are.
    """
    check_choice("without_match", without_match, WITHOUT_MATCH)
    scores = query_scores(embeddings, labels, ks, gallery, gallery_labels, distance, budget=budget)
    return mean_scores(scores, ks, without_match)


def mean_scores(
    per_query: QueryScores, ks: Sequence[int] = KS, without_match: str = "exclude"
) -> dict[str, float]:
    """What `retrieval_scores` gives, of queries that were scored one by one."""
    has_match = per_query.matches > 0
    lone = int((~has_match).sum())
    if without_match == "exclude" and not has_match.any():
        raise ValueError(
            f"none of {lone} queries has another vector of its class to find: nothing can be judged"
        )
    counted = has_match | (without_match == "miss")
    columns = {f"recall@{k}": per_query.recall[:, i] for i, k in enumerate(ks)}
    columns |= {"p@1": per_query.p_at_1, "r_precision": per_query.r_precision}
    columns |= {"map@r": per_query.map_at_r}
    scores = {name: float(values[counted].double().mean()) for name, values in columns.items()}
    return scores | {"queries": int(counted.sum()), "without_match": lone}


def query_scores(
    embeddings: Any,
    labels: Any,
    ks: Sequence[int] = KS,
    gallery: Any = None,
    gallery_labels: Any = None,
    distance: str = "cosine",
    keep: int = 0,
    budget: int = BUDGET,
) -> QueryScores:
    """Query by query, with the `keep` nearest of each."""
    x = as_vectors(embeddings)
    y = as_labels(labels, x)
    gallery_rows, gallery_classes = None, y
    if gallery is not None:
        gallery_rows = as_vectors(gallery, "the gallery's embeddings").to(x.device)
        gallery_classes = as_labels(gallery_labels, gallery_rows, "the gallery's labels")
    itself = int(gallery_rows is None)
    matches, max_count = _count(y, gallery_classes) - itself, len(gallery_classes) - itself
    max_k, has_match = min(max(ks), max_count), matches > 0
    least = max(min(max_k, FIRST), keep)
    counts = torch.where(has_match, matches.clamp(min=least).clamp(max=max_count), 0)
    blank = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    result = QueryScores(
        matches,
        recall=blank.new_zeros((len(x), len(ks)), dtype=torch.bool),
        p_at_1=blank.bool(),
        r_precision=blank,
        map_at_r=blank.clone(),
        nearest=torch.full((len(x), keep), -1, device=x.device),
    )
    for rows, order in nearest(x, gallery_rows, counts, distance, budget):
        _score(result, rows, order, _hits(order, gallery_classes, y[rows]), ks)
    # Recall@1000 takes the thousand nearest of those alone that have found nothing so far.
    counts = torch.where(has_match & ~result.recall.any(1) & (counts < max_k), max_k, 0)
    if not counts.any():
        return result
    for rows, order in nearest(x, gallery_rows, counts, distance, budget):
        _recall(result, rows, _hits(order, gallery_classes, y[rows]), ks)
    return result


def _hits(order: Tensor, known: Tensor, labels: Tensor) -> Tensor:
    """(rows, k): whether each of the nearest is right."""
    return known[order] == labels[:, None]


def _recall(result: QueryScores, rows: Tensor, hits: Tensor, ks: Sequence[int]) -> None:
    for i, k in enumerate(ks):
        result.recall[rows, i] = hits[:, :k].any(1)


def _score(
    result: QueryScores, rows: Tensor, order: Tensor, hits: Tensor, ks: Sequence[int]
) -> None:
    """hits (rows, k): whether each of the nearest is right."""
    _recall(result, rows, hits, ks)
    result.p_at_1[rows] = hits[:, 0]
    r = result.matches[rows]
    place = torch.arange(1, int(r.max()) + 1, device=hits.device)
    hits = hits[:, : len(place)] & (place <= r[:, None])  # the first R
    result.r_precision[rows] = hits.sum(1).double() / r
    # P@i is asked at hits alone.
    result.map_at_r[rows] = (hits.cumsum(1).double() / place).masked_fill_(~hits, 0).sum(1) / r
    if width := min(result.nearest.shape[1], order.shape[1]):
        result.nearest[rows, :width] = order[:, :width]


def _count(labels: Tensor, known: Tensor) -> Tensor:
    """How many of `known` equal each label."""
    ordered = known.sort().values
    return torch.searchsorted(ordered, labels, right=True) - torch.searchsorted(ordered, labels)


def knn_accuracy(
    memory: Tensor,
    memory_labels: Tensor,
    queries: Tensor,
    labels: Tensor,
    k: Sequence[int] = (10, 20),
    temperature: float = TEMPERATURE,
) -> dict[int, float]:
    """Share of queries (M, D) whose k nearest of the memory (N, D), by cosine, vote for their
    class.

    A neighbour of similarity s has exp(s / temperature) votes.
    """
    memory = F.normalize(memory.float(), dim=1)
    classes = int(max(memory_labels.max(), labels.max())) + 1
    right = dict.fromkeys(k, 0)
    for block, true in zip(queries.split(CHUNK), labels.split(CHUNK), strict=True):
        similarity = F.normalize(block.float(), dim=1) @ memory.T
        similarity, places = similarity.topk(min(max(k), len(memory)), 1)  # (m, most)
        weights, voted = (similarity / temperature).exp(), memory_labels[places]
        for count in k:
            votes = weights.new_zeros(len(block), classes)
            votes.scatter_add_(1, voted[:, :count], weights[:, :count])
            right[count] += int((votes.argmax(1) == true).sum())
    return {count: correct / len(queries) for count, correct in right.items()}
