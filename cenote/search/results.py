"""The best images of a search, without near-duplicates of a better one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.video import split_frame
from .database import top_k
from .maxsim import CellMatch
from .store import ImageEntry, Store, TextMatch

HASH_BITS = 64
# Near-duplicates: of 278 photographs, halved and compressed, 99 in 100 were within 8 bits; of
# pairs of different ones 1 in 1,000 within 15.
MAX_HASH_DISTANCE, MIN_SIMILARITY = 10, 0.95


class RankedImage(NamedTuple):
    entry: ImageEntry
    score: float
    missing: bool  # the file does not exist any longer
    duplicates: tuple[str, ...] = ()  # paths of hidden near-duplicates
    row: int = -1  # in the index
    visual: float = 0.0  # score by what the image looks like; `score` may count texts, too
    matches: tuple[TextMatch, ...] = ()  # texts of the image that match the query
    doubtful: bool = False  # it may not show what the text says, and no text matches
    cells: tuple[CellMatch, ...] = ()  # where it matches the query image, if it was re-ranked


def is_missing(entry: ImageEntry) -> bool:
    """Return whether the file is gone; images that are not files have no modification time."""
    return bool(entry.time) and not os.path.exists(split_frame(entry.path)[0])


def best_results(scores: Tensor, rows: Tensor, view: Store, top: int) -> list[RankedImage]:
    """Return the `top` best images."""
    values, places = top_k(scores[None], top)
    best = rows[places[0]]
    results = zip(view.entries(best), values[0].tolist(), best.tolist(), strict=True)
    return [RankedImage(entry, score, is_missing(entry), row=row) for entry, score, row in results]


def results_without_duplicates(
    scores: Tensor, rows: Tensor, view: Store, top: int
) -> list[RankedImage]:
    """Return the `top` best images that do not look like a better one.

    A file that exists represents one that is missing.
    """
    results, hidden, by_digest = list[RankedImage](), list[list[str]](), dict[str, int]()
    hashes, vectors = (torch.empty(min(top, len(rows)), width) for width in (HASH_BITS, view.dim))
    for block_scores, block in _best_first(scores, rows, 2 * top):
        entries = view.entries(block)
        images = zip(
            entries,
            view.vectors(block),
            _hash_signs(entries),
            block_scores,
            block.tolist(),
            strict=True,
        )
        for entry, vector, signs, score, row in images:
            original = by_digest.get(entry.digest)
            if original is None:
                # Both: a vector may encode only a class, and two skies have similar hashes.
                same_hash = hashes[: len(results)] @ signs >= HASH_BITS - 2 * MAX_HASH_DISTANCE
                similar = same_hash.nonzero()[:, 0]
                similar = similar[vectors[similar] @ vector >= MIN_SIMILARITY]
                original = int(similar[0]) if len(similar) else None
            if original is None:
                place = len(results)
                if place == top:
                    continue
                hashes[place], vectors[place], by_digest[entry.digest] = signs, vector, place
                results.append(RankedImage(entry, score, is_missing(entry), row=row))
                hidden.append([])
            elif results[original].missing and not is_missing(entry):
                hidden[original].append(results[original].entry.path)
                results[original] = RankedImage(entry, score, False, row=row)
            else:
                hidden[original].append(entry.path)
        if len(results) == top:
            break
    pairs = zip(results, hidden, strict=True)
    return [result._replace(duplicates=tuple(paths)) for result, paths in pairs]


def _best_first(scores: Tensor, rows: Tensor, count: int) -> Iterator[tuple[list[float], Tensor]]:
    """Yield the `count` best, then as many again, ...: only what is used is sorted."""
    start = 0
    while start < len(rows):
        values, places = top_k(scores[None], count)
        yield values[0, start:].tolist(), rows[places[0, start:]]
        start, count = count, 2 * count


def _hash_signs(entries: Sequence[ImageEntry]) -> Tensor:
    """Return (N, 64) of 1 and -1: the distance of two hashes is (64 - dot product) / 2."""
    hashes = torch.tensor([entry.look for entry in entries], dtype=torch.long)
    return ((hashes[:, None] >> torch.arange(HASH_BITS)) & 1).float() * 2 - 1
