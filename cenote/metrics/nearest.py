"""The nearest rows of a gallery: exact, in an order that equals do not change, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ..compiled import available
from .keys import keys, nothing, places_of, values_of
from .vectors import BLOCK, unit

BUDGET = (
    256 << 20
)  # bytes for similarities and what is chosen from them; embeddings are the caller's
CHOSEN = 16 << 20  # of these, for choosing
WIDE = 512  # rows in double precision at a time
GROUP = 32  # columns that are first seen as their maximum alone
SHORT = 64  # a list into which one is put at a time
MANY = 1 << 36  # products, about a second in floats: what it takes to load the compiled code
DISTANCES = ("cosine", "euclidean")
Found = tuple[Tensor, Tensor]  # queries (rows,) and their nearest (rows, k), best first
Part = Callable[[Tensor], Tensor]  # rows as given -> rows whose dot products are compared


def nearest(
    queries: Tensor,
    gallery: Tensor | None,
    counts: Tensor,
    distance: str = "cosine",
    budget: int = BUDGET,
) -> Iterator[Found]:
    """For each query its `counts` (Q,) nearest rows of the gallery, a group of queries at a time.

    Without a gallery the queries are their own, and no row is its own neighbour. A group's k is its largest count;
    behind a query's own count there may be -1. Of equally near rows the first is nearer. Queries of count 0 are not
    asked.
    """
    if distance not in DISTANCES:
        raise ValueError(f"no distance '{distance}': {', '.join(DISTANCES)}")
    if budget < 1 << 20:
        raise ValueError(f"the budget is in bytes, at least {1 << 20}, got {budget}")
    asking, asked = _cosine() if distance == "cosine" else _euclidean(queries, gallery)
    side = max(int(math.sqrt((budget - min(CHOSEN, budget // 2)) / 4)) // GROUP, 1) * GROUP
    most = int(counts.max()) if len(counts) else 0
    if 0 < most <= SHORT and 16 * most * len(queries) <= budget // 4 and _many(queries, gallery):
        from .sieve import sieved, worth_it

        if worth_it(queries, gallery, most, asking, asked):
            return sieved(queries, gallery, counts, asking, asked, budget)
    # A product of two blocks serves the queries of both: half of the work. Then what was found so far waits.
    if gallery is None and 2 * GROUP * most <= side and 8 * most * len(queries) <= budget // 4:
        return _tiles(queries, counts, asking, asked, side)
    return _strips(queries, gallery, counts, asking, asked, budget)


def _many(queries: Tensor, gallery: Tensor | None) -> bool:
    """Whether there is so much to multiply, on a machine known to do it faster in whole numbers."""
    products = len(queries) * len(queries if gallery is None else gallery) * queries.shape[1]
    known = queries.device.type == "cpu" and torch.backends.cpu.get_cpu_capability().startswith(
        "AVX"
    )
    return known and products >= MANY and available()


def _cosine() -> tuple[Part, Part]:
    return unit, unit


def _euclidean(queries: Tensor, gallery: Tensor | None) -> tuple[Part, Part]:
    """(x, -|x|^2 / 2, 1) . (y, 1, -|y|^2 / 2) = -|x - y|^2 / 2; near the mean of the data less is cancelled."""
    others = queries if gallery is None else gallery
    extremes = [torch.stack(part.aminmax()).abs().max() for part in (queries, others) if len(part)]
    scale = max(map(float, extremes), default=1.0) or 1.0
    total = sum((others[i : i + WIDE].double() / scale).sum(0) for i in range(0, len(others), WIDE))
    mean = total / max(len(others), 1)

    def part(rows: Tensor, half_at: int) -> Tensor:
        d = rows.shape[1]
        made = rows.new_ones((len(rows), d + 2), dtype=torch.float32)
        for i in range(0, len(rows), WIDE):
            x = made[i : i + WIDE, :d]
            x.copy_(rows[i : i + WIDE].double() / scale - mean)
            made[i : i + WIDE, d + half_at] = x.square().sum(1) / -2
        return made

    return partial(part, half_at=0), partial(part, half_at=1)


def _tiles(x: Tensor, counts: Tensor, asking: Part, asked: Part, side: int) -> Iterator[Found]:
    """Every pair of blocks once: its products are rows for the one and columns for the other."""
    n = len(x)
    side = _padded(-(-n // -(-n // side)))  # blocks of equal size
    starts = range(0, n, side)
    most = [int(counts[i : i + side].max()) for i in starts]
    kept = [nothing(len(x[i : i + side]), k, x.device) for i, k in zip(starts, most, strict=True)]
    space = x.new_empty((side, side), dtype=torch.float32)
    for a, i in enumerate(starts):
        own = asking(x[i : i + side])
        rows = len(own)
        for b, j in enumerate(starts[a:], a):
            other = own if b == a and asking is asked else asked(x[j : j + side])
            tile = _product(own, other, space)  # (rows, columns), both padded
            if b == a:
                tile.diagonal()[:rows] = -torch.inf
            _improve(kept[a], tile[:rows], j)
            if (
                b > a
            ):  # the blocks before come in ascending order here as well, which _improve relies on
                _improve(kept[b], tile[:, : len(other)].T, i)
        wanted = torch.nonzero(counts[i : i + side])[:, 0]
        if len(wanted):
            yield wanted + i, places_of(kept[a][wanted])
        kept[a] = kept[a][:0]


def _strips(
    queries: Tensor, gallery: Tensor | None, counts: Tensor, asking: Part, asked: Part, budget: int
) -> Iterator[Found]:
    """Some queries against all of the gallery; queries of like counts together, for a group keeps its largest."""
    others = queries if gallery is None else gallery
    n, width = len(others), _padded(len(others))
    order = counts.argsort(descending=True, stable=True)
    ends = counts[order]
    start, stop = 0, int((counts > 0).sum())
    space = None
    while start < stop:
        k = int(ends[start])
        rows = max(1, (budget - min(CHOSEN, budget // 2)) // (4 * width + 64 * k))
        alike = int((ends > k // 2).sum()) if k > GROUP else stop
        chosen = order[start : min(start + rows, max(alike, start + 1), stop)]
        if space is None or len(space) < len(chosen):
            space = queries.new_empty((len(chosen), width), dtype=torch.float32)
        asks, strip = asking(queries[chosen]), space[: len(chosen)]
        strip[:, n:] = -torch.inf
        for j in range(0, n, BLOCK):
            torch.mm(asks, asked(others[j : j + BLOCK]).T, out=strip[:, j : min(j + BLOCK, n)])
        if gallery is None:
            strip[torch.arange(len(chosen), device=strip.device), chosen] = -torch.inf
        kept = nothing(len(chosen), k, strip.device)
        _improve(kept, strip, 0)
        yield chosen, places_of(kept)
        start += len(chosen)


def _product(x: Tensor, y: Tensor, space: Tensor) -> Tensor:
    """x y^T in `space`, with rows and columns of -inf up to whole groups."""
    rows, columns = len(x), len(y)
    tile = space[: _padded(rows), : _padded(columns)]
    torch.mm(x, y.T, out=tile[:rows, :columns])
    tile[rows:] = -torch.inf
    tile[:, columns:] = -torch.inf
    return tile


def _improve(kept: Tensor, similarity: Tensor, first: int) -> None:
    """Put what is nearer into `kept` (rows, k), keys in descending order; its columns come before `first`.

    Whatever belongs to the k best lies in the k groups of columns with the largest maxima, the first of equal ones.
    Only groups that beat the k-th best so far are opened, in rows that have any.
    """
    rows, k = kept.shape
    columns, device = similarity.shape[1], similarity.device
    if not k:
        return
    whole = 2 * GROUP * k > columns  # nothing to gain from maxima
    step = max(1, CHOSEN // (48 * (columns if whole else columns // GROUP + GROUP * k)))
    within = torch.arange(GROUP, device=device)
    for i in range(0, rows, step):
        part, best = similarity[i : i + step], kept[i : i + step]
        if whole:
            found = keys(part, torch.arange(first, first + columns, device=device))
            best.copy_(torch.cat([best, found], 1).topk(k).values)
            continue
        maxima = _maxima(part)  # (rows, groups)
        better = (maxima > values_of(best[:, -1:])).sum(1)
        open_rows = torch.nonzero(better)[:, 0]
        if not len(open_rows):
            continue
        groups = min(k, int(better.max()))
        named = keys(maxima[open_rows], torch.arange(maxima.shape[1], device=device))
        chosen = places_of(named.topk(groups, sorted=False).values)  # (open, groups)
        at = (chosen[:, :, None] * GROUP + within).flatten(1)  # (open, groups * GROUP)
        found = keys(part[open_rows[:, None], at], at + first)
        best[open_rows] = torch.cat([best[open_rows], found], 1).topk(k).values


def _maxima(similarity: Tensor) -> Tensor:
    """Of each group of columns; columns of a tile are reduced in its own order, which is 20 times as fast."""
    if similarity.stride(0) == 1:
        return similarity.T.unflatten(0, (-1, GROUP)).amax(1).T
    return similarity.unflatten(1, (-1, GROUP)).amax(2)


def _padded(count: int) -> int:
    return -(-count // GROUP) * GROUP
