"""From scores to results: the best first, pictures that look the same hidden behind one of them, then sorted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .database import best
from .store import ImageEntry, Store

SORTS = ("score", "date", "name", "size")
# Near-duplicates: at most so many bits of `look_of` apart, vectors at least so similar. Of 278 photographs halved and
# compressed 99 in 100 were within 8 bits; of pairs of different ones 1 in 1,000 within 15.
ALIKE, CLOSE = 10, 0.95
BITS = 64


class SearchResult(NamedTuple):
    entry: ImageEntry
    score: float
    missing: bool  # its file is no more there
    duplicates: tuple[
        str, ...
    ] = ()  # paths of pictures that look the same and were hidden behind it
    row: int = -1  # in the index


def is_missing(entry: ImageEntry) -> bool:
    """Images of a data set that are no files have no time of change."""
    return bool(entry.time) and not os.path.exists(entry.path)


def all_of(scores: Tensor, rows: Tensor, view: Store, top: int) -> list[SearchResult]:
    for some, part in _best_first(scores, rows, top):
        found = zip(view.entries(part), some, part.tolist(), strict=True)
        return [
            SearchResult(entry, score, is_missing(entry), row=row) for entry, score, row in found
        ]
    return []


def without_twins(scores: Tensor, rows: Tensor, view: Store, top: int) -> list[SearchResult]:
    """Pictures that look like one that is better are left out, but a file that is there stands for one that is gone."""
    kept, hidden, by_digest = list[SearchResult](), list[list[str]](), dict[str, int]()
    looks, vectors = (
        torch.empty(min(top, len(rows)), width) for width in (BITS, view.dim)
    )  # of what is kept
    for some, part in _best_first(scores, rows, 4 * top):
        entries = view.entries(part)
        seen = zip(entries, view.vectors(part), _signs(entries), some, part.tolist(), strict=True)
        for entry, vector, look, score, row in seen:
            twin = by_digest.get(entry.digest)
            if (
                twin is None
            ):  # both: a vector may mean no more than a class, and two skies have much the same light
                alike = (looks[: len(kept)] @ look >= BITS - 2 * ALIKE).nonzero()[:, 0]
                alike = alike[vectors[alike] @ vector >= CLOSE]
                twin = int(alike[0]) if len(alike) else None
            if twin is None:
                if len(kept) == top:
                    continue
                looks[len(kept)], vectors[len(kept)], by_digest[entry.digest] = (
                    look,
                    vector,
                    len(kept),
                )
                kept.append(SearchResult(entry, score, is_missing(entry), row=row))
                hidden.append([])
            elif kept[twin].missing and not is_missing(entry):
                hidden[twin].append(kept[twin].entry.path)
                kept[twin] = SearchResult(entry, score, False, row=row)
            else:
                hidden[twin].append(entry.path)
        if len(kept) == top:
            break
    return [
        result._replace(duplicates=tuple(paths)) for result, paths in zip(kept, hidden, strict=True)
    ]


def in_order(results: list[SearchResult], sort: str) -> list[SearchResult]:
    keys = {
        "score": lambda result: -result.score,
        "date": lambda result: -result.entry.date,
        "name": lambda result: (os.path.basename(result.entry.path), result.entry.path),
        "size": lambda result: -result.entry.size,
    }
    return sorted(results, key=keys[sort])  # stable: of equals the more relevant


def _best_first(scores: Tensor, rows: Tensor, many: int) -> Iterator[tuple[list[float], Tensor]]:
    """So many at first, then as many again, ...: all are sorted only if all are looked at."""
    start = 0
    while start < len(rows):
        values, places = best(scores[None], many)
        yield values[0, start:].tolist(), rows[places[0, start:]]
        start, many = many, 2 * many


def _signs(entries: Sequence[ImageEntry]) -> Tensor:
    """(N, 64) of 1 and -1: two looks are (64 - their product) / 2 bits apart."""
    looks = torch.tensor([entry.look for entry in entries], dtype=torch.long)
    return ((looks[:, None] >> torch.arange(BITS)) & 1).float() * 2 - 1
