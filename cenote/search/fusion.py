"""Combine what an image looks like with the texts that are stored with it.

p = 1 - (1 - p_visual) (1 - p_text) is the probability that one of two independent reasons holds;
a text that is not wanted multiplies it by 1 - p_text, or takes the image out if it is certain.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from .store import Store, TextHits, TextMatch
from .text_index import query_words

logger = logging.getLogger(__name__)

# Probability that a text is true of its image if its words are those of the query, and the power
# of the share of its words that are. A caption is a sentence: most of its words are true of the
# image, while "hot dog stand" names one thing. benchmarks/text_fusion.py compares; the powers and
# the two numbers of p_visual were chosen on pets and pacs, with text-space.
CERTAINTY: dict[str, tuple[float, float]] = {
    "class": (0.99, 1.5),
    "keyword": (0.98, 1.5),
    "folder": (0.97, 1.5),
    "attribute": (0.95, 1.5),
    "domain": (0.95, 1.5),
    "file name": (0.95, 1.5),
    "caption": (0.95, 0.5),
}
MAX_VISUAL = 0.9  # a class of that name is more certain
MIDDLE, STEEPNESS = 3.5, 2.0  # of `relative_shares`: half at 3.5 deviations over the mean
MAX_UNWANTED = 0.9  # p_text above which an image is taken out
MAX_CANDIDATES = 2000  # images that match by text, if only candidates are ranked
MAX_MATCHES = 3  # texts that are shown for an image


def relative_shares(scores: Tensor) -> Tensor:
    """Return p_visual (N,) of scores that are not calibrated, relative to the other images."""
    if len(scores) < 2:
        return torch.full_like(scores, 0.5)
    scores = scores.double()  # in which different scores have different shares
    deviations = (scores - scores.mean()) / scores.std().clamp(min=1e-6)
    return torch.sigmoid(STEEPNESS * (deviations - MIDDLE))


def text_strengths(hits: TextHits) -> Tensor:
    """Return the probability (T,) that each text is about the words of the query that it has."""
    sizes = torch.tensor([len(text.split()) for _, text in hits.texts])
    shares = (hits.words.sum(1) / sizes).clamp(max=1)
    certainty = torch.tensor([CERTAINTY[field] for field, _ in hits.texts]).view(-1, 2)
    return certainty[:, 0] * shares ** certainty[:, 1]


def text_shares(hits: TextHits) -> tuple[Tensor, Tensor]:
    """Return the rows (R,) of images with matching texts, ascending, and their p_text (R,).

    The strongest text counts, times the share of the query's words that any text contains.
    """
    rows, places = hits.rows.unique(return_inverse=True)
    strengths = text_strengths(hits)[hits.places]
    strongest = torch.zeros(len(rows)).scatter_reduce(0, places, strengths, "amax")
    counts = torch.zeros(len(rows), hits.words.shape[1])
    counts.index_add_(0, places, hits.words[hits.places].float())
    return rows, strongest * (counts > 0).float().mean(1)


class TextEvidence(NamedTuple):
    """What the texts of the images of a view say about a query."""

    rows: Tensor  # (R,) ascending: images with matching texts
    wanted: Tensor  # (R,) p_text of what is wanted: the mean of the terms by their weights
    unwanted: Tensor  # (R,) the largest p_text of what is not wanted
    hits: list[TextHits]  # of each wanted term

    @property
    def fields(self) -> dict[str, int]:
        """Return the number of matching images by field, for wanted terms."""
        counts = Counter[str]()
        for hits in self.hits:
            images = torch.bincount(hits.places, minlength=len(hits.texts)).tolist()
            for text, count in zip(hits.texts, images, strict=True):
                counts[text.field] += count
        return {field: count for field, count in counts.most_common() if count}

    def matches(self, rows: Sequence[int]) -> list[tuple[TextMatch, ...]]:
        """Return the texts that each image matches by, strongest first."""
        texts: dict[int, dict[TextMatch, float]] = {row: {} for row in rows}
        for hits in self.hits:
            strengths = text_strengths(hits)
            is_asked = torch.isin(hits.rows, torch.tensor(rows))
            pairs = zip(hits.rows[is_asked].tolist(), hits.places[is_asked].tolist(), strict=True)
            for row, place in pairs:
                texts[row][hits.texts[place]] = float(strengths[place])
        return [
            tuple(sorted(texts[row], key=lambda text: -texts[row][text])[:MAX_MATCHES])
            for row in rows
        ]

    def strongest(self, count: int) -> Tensor:
        """Return the rows with the largest p_text, ascending."""
        best = self.wanted.sort(descending=True, stable=True).indices[:count]
        return self.rows[best[self.wanted[best] > 0]].sort().values

    @property
    def excluded(self) -> Tensor:
        """Return the rows of images that are what is not wanted."""
        return self.rows[self.unwanted > MAX_UNWANTED]

    def fuse(self, visual: Tensor, rows: Tensor) -> Tensor:
        """Return p (N,) for p_visual (N,) of `rows` (N,), ascending."""
        wanted, unwanted = torch.zeros(2, len(rows), dtype=torch.double)
        places = torch.searchsorted(rows, self.rows).clamp(max=len(rows) - 1)
        is_ranked = rows[places] == self.rows
        wanted[places[is_ranked]] = self.wanted[is_ranked].double()
        unwanted[places[is_ranked]] = self.unwanted[is_ranked].double()
        return (1 - (1 - MAX_VISUAL * visual) * (1 - wanted)) * (1 - unwanted)


def find_evidence(
    view: Store,
    terms: Sequence[tuple[str, float]],
    index: Store | None = None,
    unknown: Collection[str] = (),
) -> TextEvidence | None:
    """Find images whose texts match terms, which have weights; None if there are none.

    A text that all images of `index` have says nothing about one of them: it is ignored, unless
    the term is `unknown` to the model, so that there is nothing else to find images by.
    """
    hits = [view.find_texts(query_words(text)) for text, _ in terms]
    if index is not None:
        hits = [
            term_hits if text in unknown else _without_common_texts(term_hits, text, index)
            for (text, _), term_hits in zip(terms, hits, strict=True)
        ]
    stored = [term_hits for term_hits in hits if term_hits is not None]
    if len(stored) < len(terms):
        _warn_without_texts(view.where)
        return None
    rows = torch.cat([term_hits.rows for term_hits in stored]).unique()
    if not len(rows):
        return None
    wanted, unwanted = torch.zeros(2, len(rows))
    total = sum(weight for _, weight in terms if weight > 0)
    for (_, weight), term_hits in zip(terms, stored, strict=True):
        term_rows, shares = text_shares(term_hits)
        places = torch.searchsorted(rows, term_rows)
        if weight > 0:
            wanted[places] += weight / total * shares
        else:
            unwanted[places] = torch.maximum(unwanted[places], shares)
    wanted_hits = [
        term_hits for (_, weight), term_hits in zip(terms, stored, strict=True) if weight > 0
    ]
    return TextEvidence(rows, wanted, unwanted, wanted_hits)


def _without_common_texts(hits: TextHits | None, text: str, index: Store) -> TextHits | None:
    """Leave out texts that all images of the index have."""
    index_hits = index.find_texts(query_words(text))
    if hits is None or index_hits is None or len(index) < 2:
        return hits
    counts = torch.bincount(index_hits.places, minlength=len(index_hits.texts)).tolist()
    common = {
        match for match, count in zip(index_hits.texts, counts, strict=True) if count == len(index)
    }
    is_used = torch.tensor([match not in common for match in hits.texts], dtype=torch.bool)
    is_used = is_used[hits.places]
    return hits._replace(rows=hits.rows[is_used], places=hits.places[is_used])


@cache
def _warn_without_texts(where: str) -> None:
    logger.warning(
        "%s was made by an earlier version and cannot be changed here: names and keywords of the "
        "images are not searched",
        where,
    )
