"""Whether a model's nearest images are of the query's class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Dataset
from ..metrics.embedding import alignment, uniformity
from ..metrics.retrieval import KS, KS_OF, QueryScores, mean_scores, query_scores
from ..models import PooledModel
from ..predict.embedding import Embeddings, embed_dataset

SHARES = ("p@1", "r_precision", "map@r")
TOP = 6  # neighbours that a case shows
EACH = 6  # best and worst queries


class Neighbour(NamedTuple):
    position: int  # in the gallery, or among the queries where they are their own gallery
    file: str
    label: str | None
    right: bool


class Case(NamedTuple):
    """A query and its nearest images, best first."""

    group: str  # best or worst
    position: int
    file: str
    label: str | None
    map_at_r: float
    matches: int
    neighbours: list[Neighbour]

    def row(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self._asdict(),
            "neighbours": [neighbour._asdict() for neighbour in self.neighbours],
        }


class Retrieval(NamedTuple):
    report: dict[str, Any]  # shares in percent
    cases: list[Case]


def retrieve(
    model: PooledModel,
    queries: Dataset,
    gallery: Dataset | None = None,
    ks: Sequence[int] | None = None,
    without_match: str = "exclude",
    **options: Any,
) -> Retrieval:
    """Recall@K, P@1, R-precision and MAP@R in percent: every image against the others, or against a gallery.

    Images without a class are left out. `queries` and `gallery` are parts of one data set, and K is by default what is
    published for it, else 1, 2, 4, 8.
    """
    ks = ks or KS_OF.get(queries.name, KS)
    if gallery is not None and gallery.classes != queries.classes:
        raise ValueError(
            f"{queries.name} and {gallery.name} do not have the same classes: take parts of one data set"
        )
    found = _labelled(model, queries, options)
    others = None if gallery is None else _labelled(model, gallery, options)
    labels = _labels(queries, found)
    asked, known = (
        (None, None)
        if gallery is None or others is None
        else (others.vectors, _labels(gallery, others))
    )
    scores = query_scores(found.vectors, labels, ks, asked, known, keep=TOP)
    means = mean_scores(scores, ks, without_match)
    report: dict[str, Any] = {
        name: 100 * means[name] for name in [*(f"recall@{k}" for k in ks), *SHARES]
    }
    report |= {
        "queries": means["queries"],
        "without_match": means["without_match"],
        "without_match_are": without_match,
    }
    report |= {"images": len(labels), "gallery": None if others is None else len(others.vectors)}
    report |= {"classes": len(labels.unique()), "no_class": int((queries.labels < 0).sum())}
    report |= {"alignment": _or_none(found.vectors, labels), "uniformity": _or_none(found.vectors)}
    report["unreadable"] = found.bad + ([] if others is None else others.bad)
    within = (queries, found) if gallery is None or others is None else (gallery, others)
    cases = [
        _case(group, row, scores, (queries, found), within)
        for group, row in _extremes(scores, labels)
    ]
    return Retrieval(report | {"cases": [case.row() for case in cases]}, cases)


def _labelled(model: PooledModel, dataset: Dataset, options: dict[str, Any]) -> Embeddings:
    places = np.flatnonzero(dataset.labels >= 0)
    if not len(places):
        raise ValueError(f"{dataset.name} has no image with a class to retrieve by")
    found = embed_dataset(model, dataset.select(places), **options)
    return found._replace(positions=torch.from_numpy(places)[found.positions])


def _labels(dataset: Dataset, found: Embeddings) -> Tensor:
    return torch.from_numpy(dataset.labels)[found.positions]


def _or_none(vectors: Tensor, labels: Tensor | None = None) -> float | None:
    """Alignment, or uniformity without labels; queries may be one of each class."""
    try:
        return uniformity(vectors) if labels is None else alignment(vectors, labels)
    except ValueError:
        return None


def _extremes(scores: QueryScores, labels: Tensor) -> list[tuple[str, int]]:
    """The best queries, of equal ones those with most to find, and the worst; one of a class, lest all look alike."""
    rows = torch.nonzero(scores.matches > 0)[:, 0]
    keys = list(
        zip(
            (-scores.map_at_r[rows]).tolist(),
            (-scores.matches[rows]).tolist(),
            rows.tolist(),
            strict=True,
        )
    )
    chosen, taken = list[tuple[str, int]](), set[int]()
    for group, ordered in (
        ("best", sorted(keys)),
        ("worst", sorted(keys, key=lambda key: (-key[0], key[1], key[2]))),
    ):
        classes = set[int]()
        for _, _, row in ordered:
            if len(classes) == EACH:
                break
            if (label := int(labels[row])) not in classes and row not in taken:
                classes.add(label)
                taken.add(row)
                chosen.append((group, row))
    return chosen


def _case(
    group: str,
    row: int,
    scores: QueryScores,
    query: tuple[Dataset, Embeddings],
    gallery: tuple[Dataset, Embeddings],
) -> Case:
    (asking, found), (asked, others) = query, gallery
    position = int(found.positions[row])
    label = asking[position].label
    places = [int(others.positions[i]) for i in scores.nearest[row].tolist() if i >= 0]
    near = [
        Neighbour(i, str(asked.path(i)), asked[i].label, asked[i].label == label) for i in places
    ]
    matches = int(scores.matches[row])
    return Case(
        group,
        position,
        str(asking.path(position)),
        label,
        float(scores.map_at_r[row]),
        matches,
        near,
    )
