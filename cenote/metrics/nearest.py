"""Exact nearest neighbours in bounded memory; ties keep the lower index."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ..options import check_choice
from .arrays import BLOCK, unit

BUDGET = 256 << 20  # bytes for similarities and candidates, beside the embeddings
SELECTION_BYTES = 16 << 20  # of these, for selecting candidates
DOUBLE_ROWS = 512  # rows converted to double precision at a time
GROUP = 32  # columns that are represented by their maximum first
Neighbours = tuple[Tensor, Tensor]  # queries (rows,) and gallery indices (rows, k), best first
Prepare = Callable[[Tensor], Tensor]  # rows -> rows whose dot products are the similarities


def nearest(
    queries: Tensor,
    gallery: Tensor | None,
    counts: Tensor,
    distance: str = "cosine",
    budget: int = BUDGET,
) -> Iterator[Neighbours]:
    """Yield the `counts` (Q,) nearest gallery rows of each query, a group of queries at a time.

    Without a gallery, the queries are searched among themselves and no row is its own neighbour. A
    group has as many columns as its largest count. Queries of count 0 are skipped.
    """
    check_choice("distance", distance, ("cosine", "euclidean"))
    prepare: tuple[Prepare, Prepare] = (unit, unit)
    if distance == "euclidean":
        prepare = _euclidean(queries, gallery)
    tile_bytes = budget - min(SELECTION_BYTES, budget // 2)
    side = max(math.isqrt(tile_bytes // 4) // GROUP, 1) * GROUP
    k = int(counts.amax()) if len(counts) else 0
    # One tile serves the queries of its rows and of its columns: half of the products. The
    # candidates of all queries must then be kept until the end.
    if gallery is None and 2 * GROUP * k <= side and 8 * k * len(queries) <= budget // 4:
        return _by_tiles(queries, counts, *prepare, side)
    return _by_strips(queries, gallery, counts, *prepare, tile_bytes)


def _euclidean(queries: Tensor, gallery: Tensor | None) -> tuple[Prepare, Prepare]:
    """(x, -|x|^2 / 2, 1) . (y, 1, -|y|^2 / 2) = -|x - y|^2 / 2, centred to limit cancellation."""
    rows = queries if gallery is None else gallery
    extremes = [torch.stack(x.aminmax()).abs().max() for x in (queries, rows) if len(x)]
    scale = max(map(float, extremes), default=1.0) or 1.0
    chunks = (rows[i : i + DOUBLE_ROWS].double() for i in range(0, len(rows), DOUBLE_ROWS))
    mean = sum((chunk / scale).sum(0) for chunk in chunks) / max(len(rows), 1)

    def prepare(rows: Tensor, norm_column: int) -> Tensor:
        d = rows.shape[1]
        prepared = rows.new_ones((len(rows), d + 2), dtype=torch.float32)
        for i in range(0, len(rows), DOUBLE_ROWS):
            x = prepared[i : i + DOUBLE_ROWS, :d]
            x.copy_(rows[i : i + DOUBLE_ROWS].double() / scale - mean)
            prepared[i : i + DOUBLE_ROWS, d + norm_column] = x.square().sum(1) / -2
        return prepared

    return partial(prepare, norm_column=0), partial(prepare, norm_column=1)


def _by_tiles(
    x: Tensor, counts: Tensor, prepare_query: Prepare, prepare_row: Prepare, side: int
) -> Iterator[Neighbours]:
    """Compare every pair of blocks once."""
    n = len(x)
    side = _padded(-(-n // -(-n // side)))  # blocks of equal size
    starts = range(0, n, side)
    best = [_no_candidates(counts[i : i + side]) for i in starts]
    buffer = x.new_empty((side, side), dtype=torch.float32)
    for a, i in enumerate(starts):
        queries = prepare_query(x[i : i + side])
        for b, j in enumerate(starts[a:], a):
            rows = prepare_row(x[j : j + side])
            tile = _similarities(queries, rows, buffer)  # (queries, rows), both padded
            if b == a:
                tile.diagonal()[: len(queries)] = -torch.inf
            _update(best[a], tile[: len(queries)], j)
            if b > a:
                _update(best[b], tile[:, : len(rows)].T, i)
        rows_asked = torch.nonzero(counts[i : i + side])[:, 0]
        if len(rows_asked):
            yield rows_asked + i, _indices(best[a][rows_asked])
        best[a] = best[a][:0]


def _by_strips(
    queries: Tensor,
    gallery: Tensor | None,
    counts: Tensor,
    prepare_query: Prepare,
    prepare_row: Prepare,
    strip_bytes: int,
) -> Iterator[Neighbours]:
    """Compare some queries with the whole gallery; queries of similar counts share a strip."""
    rows = queries if gallery is None else gallery
    n, width = len(rows), _padded(len(rows))
    order = counts.argsort(descending=True, stable=True)
    sorted_counts = counts[order]
    start, stop = 0, int((counts > 0).sum())
    buffer = queries.new_empty((0, width), dtype=torch.float32)
    while start < stop:
        k = int(sorted_counts[start])
        end = min(start + max(1, strip_bytes // (4 * width + 64 * k)), stop)
        if k > GROUP:
            end = min(end, max(int((sorted_counts > k // 2).sum()), start + 1))
        group = order[start:end]
        if len(buffer) < len(group):
            buffer = buffer.new_empty((len(group), width))
        strip, prepared = buffer[: len(group)], prepare_query(queries[group])
        strip[:, n:] = -torch.inf
        for j in range(0, n, BLOCK):
            columns = strip[:, j : min(j + BLOCK, n)]
            torch.mm(prepared, prepare_row(rows[j : j + BLOCK]).T, out=columns)
        if gallery is None:
            strip[torch.arange(len(group), device=strip.device), group] = -torch.inf
        best = _no_candidates(counts[group])
        _update(best, strip, 0)
        yield group, _indices(best)
        start = end


def _similarities(x: Tensor, y: Tensor, buffer: Tensor) -> Tensor:
    """x y^T in `buffer`, padded with -inf to whole groups."""
    tile = buffer[: _padded(len(x)), : _padded(len(y))]
    torch.mm(x, y.T, out=tile[: len(x), : len(y)])
    tile[len(x) :] = -torch.inf
    tile[:, len(y) :] = -torch.inf
    return tile


def _update(best: Tensor, similarity: Tensor, first: int) -> None:
    """Merge similarities to the rows from `first` on into the candidates `best` (queries, k).

    The k best columns are in the k groups of columns with the largest maxima. Only groups that beat
    the k-th best candidate are opened.
    """
    k, columns = best.shape[1], similarity.shape[1]
    if not k:
        return
    device = similarity.device
    by_group = 2 * GROUP * k <= columns
    width = columns // GROUP + GROUP * k if by_group else columns
    step = max(1, SELECTION_BYTES // (48 * width))
    within_group = torch.arange(GROUP, device=device)
    for i in range(0, len(best), step):
        values, candidates = similarity[i : i + step], best[i : i + step]
        if not by_group:
            keys = _keys(values, torch.arange(first, first + columns, device=device))
            candidates.copy_(torch.cat([candidates, keys], 1).topk(k).values)
            continue
        maxima = _group_maxima(values)  # (queries, groups)
        better = (maxima > _values(candidates[:, -1:])).sum(1)
        rows = torch.nonzero(better)[:, 0]
        if not len(rows):
            continue
        keys = _keys(maxima[rows], torch.arange(maxima.shape[1], device=device))
        groups = _indices(keys.topk(min(k, int(better.max())), sorted=False).values)
        at = (groups[:, :, None] * GROUP + within_group).flatten(1)  # (rows, groups * GROUP)
        keys = _keys(values[rows[:, None], at], at + first)
        candidates[rows] = torch.cat([candidates[rows], keys], 1).topk(k).values


def _group_maxima(similarity: Tensor) -> Tensor:
    """Maxima of groups of columns; a transposed tile is reduced in its memory order, 20x faster."""
    if similarity.stride(0) == 1:
        return similarity.T.unflatten(0, (-1, GROUP)).amax(1).T
    return similarity.unflatten(1, (-1, GROUP)).amax(2)


# A candidate is one int64 of its similarity and its index: sorting it breaks ties by index.


def _keys(values: Tensor, indices: Tensor) -> Tensor:
    """Pack float32 values and indices; of equal values the lower index is larger."""
    bits = (values + 0.0).view(torch.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # the bits of negative floats sort in reverse
    return (ordered.long() << 32) | (0xFFFFFFFF - indices)


def _values(keys: Tensor) -> Tensor:
    ordered = (keys >> 32).int()
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)


def _indices(keys: Tensor) -> Tensor:
    return 0xFFFFFFFF - (keys & 0xFFFFFFFF)


def _no_candidates(counts: Tensor) -> Tensor:
    """Candidates (queries, k) that any gallery row replaces."""
    lowest = torch.full((1,), -torch.inf, dtype=torch.float32, device=counts.device)
    key = _keys(lowest, torch.full((1,), 0xFFFFFFFF, device=counts.device))
    return key.repeat(len(counts), int(counts.max()))


def _padded(count: int) -> int:
    return -(-count // GROUP) * GROUP
