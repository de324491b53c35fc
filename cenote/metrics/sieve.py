"""Nearest rows on the CPU: whole numbers say which pairs cannot be near, floats measure the few that are left.

A vector x, made large by a power of two s, is rounded to whole numbers: s x = q + r. Then s t x.y = q.p + r.p + s x.e
for another t y = p + e, and the last two are at most |r||p| + |s x||e|. A pair whose q.p lies further than that below
what its row and its column have found already is none of their nearest, whatever it is exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .arrays import Array
from .keys import nothing, places_of, values_of
from .scan import COLUMNS, ROWS, collect, scan

PANELS = 16  # of rows for a thread at a time
ROOM = 1 << 14  # pairs that a thread writes down before they are put where they belong
SAMPLE = 256  # columns that tell at once what a row need not look at
TOO_MANY = 4  # times k that cannot be told from the k best: then floats are faster
STEP = 10 * ROWS * COLUMNS // 2  # rows that are rounded at a time: whole panels of either kind
LARGEST = (1 << 15) - 1
OPEN, CLOSED = -(1 << 31), (1 << 31) - 1  # every product is above the one, none above the other
Part = Callable[[Tensor], Tensor]  # rows as given -> rows whose dot products are compared
Found = tuple[Tensor, Tensor]


class Rounded(NamedTuple):
    exact: Tensor  # (rows, D) float32, x
    panels: Array  # (panels, pairs, width) int32, each two numbers of 16 bits, q
    scale: float  # s
    length: float  # the largest |s x|
    rest: float  # the largest |r|


class Block:
    """Queries and what they have found, as rows and as columns of tiles apart: a row belongs to one thread."""

    def __init__(self, counts: Tensor, first: int) -> None:
        self.first = first
        self.counts = counts
        self.k = int(counts.max())
        self.least = counts.new_full(
            (len(counts),), -torch.inf, dtype=torch.float32
        )  # no k-th best is below it
        self.by_row, self.by_column = (
            nothing(len(counts), self.k, counts.device) for _ in range(2)
        )

    def ask(self, rows: Tensor, sample: Tensor, step: int) -> None:
        """The k-th best of a sample; where it is of the queries themselves, it has taken every `step`-th."""
        if len(sample) <= self.k:
            return
        best = []
        for i in range(
            0, len(rows), STEP
        ):  # in doubles, which no autocast and no fast product makes shorter
            products = rows[i : i + STEP].double() @ sample.double().T
            if step:
                own = torch.arange(-(self.first + i) % step, len(products), step, device="cpu")
                products[own, (own + self.first + i) // step] = -torch.inf
            best.append(products.topk(self.k).values)
        self.least = self._last(torch.cat(best)).float()

    def bars(self, scale: float, margin: float) -> Array:
        """int32, for whole panels: above its bar a whole product may be one of the k best."""
        bars = self.counts.new_full((_padded(len(self.counts)),), CLOSED, dtype=torch.int32)
        if self.k:
            last = values_of(torch.maximum(self._last(self.by_row), self._last(self.by_column)))
            last = torch.maximum(last, self.least).double()
            known = (last * scale - margin).floor().clamp(OPEN, CLOSED).int()
            bars[: len(last)] = torch.where(self.counts > 0, known, CLOSED)
        return bars.numpy()

    def best(self) -> Found:
        rows = torch.nonzero(self.counts)[:, 0]
        both = torch.cat([self.by_row[rows], self.by_column[rows]], 1)
        places = places_of(both.topk(self.k).values)
        behind = torch.arange(self.k, device="cpu") >= self.counts[rows, None]
        return rows + self.first, places.masked_fill_(behind, -1)

    def _last(self, lists: Tensor) -> Tensor:
        """Of those that each query asks for."""
        return lists.gather(1, (self.counts - 1).clamp(min=0)[:, None])[:, 0]


def worth_it(queries: Tensor, gallery: Tensor | None, k: int, asking: Part, asked: Part) -> bool:
    """Whether rounding tells vectors apart, as a sample has it: those of a collapsed model are as good as equal."""
    others = queries if gallery is None else gallery
    rows, columns = (
        x[:: -(-len(x) // count)] for x, count in ((queries, SAMPLE), (others, 8 * SAMPLE))
    )
    exact = asked(columns)
    products = asking(rows).double() @ exact.double().T
    few = rounded(exact, COLUMNS)
    open_to = (
        products.topk(min(k, len(columns))).values[:, -1:] - error_bound(few, few) / few.scale**2
    )
    return float((products > open_to).sum(1).float().mean()) <= TOO_MANY * k


def sieved(
    queries: Tensor, gallery: Tensor | None, counts: Tensor, asking: Part, asked: Part, budget: int
) -> Iterator[Found]:
    """As `nearest`, a block of queries at a time; without a gallery every pair is seen once."""
    others = queries if gallery is None else gallery
    side = block_rows(
        max(len(queries), len(others)), queries.shape[1], budget, torch.get_num_threads()
    )
    blocks = [Block(counts[i : i + side], i) for i in range(0, len(queries), side)]
    step = -(-len(others) // SAMPLE)
    sample = asked(others[::step])
    for block in blocks:
        if block.k:
            block.ask(
                asking(queries[block.first : block.first + side]),
                sample,
                step if gallery is None else 0,
            )
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        while blocks:
            block = blocks[0]
            own = rounded(asking(queries[block.first : block.first + side]), ROWS)
            for b, first in enumerate(
                range(block.first if gallery is None else 0, len(others), side)
            ):
                theirs = blocks[b] if gallery is None else None
                if not block.k and not (theirs and theirs.k):
                    continue
                exact = (
                    own.exact
                    if theirs is block and asking is asked
                    else asked(others[first : first + side])
                )
                _compare(own, rounded(exact, COLUMNS), block, theirs, first, threads)
            if block.k:
                yield block.best()
            del blocks[0]


def _compare(
    own: Rounded,
    other: Rounded,
    block: Block,
    theirs: Block | None,
    first: int,
    threads: ThreadPoolExecutor,
) -> None:
    """Every row with every column of a tile; `theirs` are the columns as queries, where they ask as well."""
    scale, margin = own.scale * other.scale, error_bound(own, other)
    bars = block.bars(scale, margin)
    if theirs is None:
        their_bars = np.full(_padded(len(other.exact)), CLOSED, np.int32)
    else:
        their_bars = bars if theirs is block else theirs.bars(scale, margin)
    x, y, kept, counts = (
        part.numpy() for part in (own.exact, other.exact, block.by_row, block.counts)
    )
    lock = Lock()

    def look(start: int) -> None:
        pairs, values = np.empty((ROOM, 2), np.int32), np.empty(ROOM, np.float32)
        stop, at = min(start + PANELS, len(own.panels)), 0
        while at < len(other.panels):
            count, at = scan(own.panels, other.panels, x, y, bars, their_bars, kept, counts, first, scale, margin,
                             start, stop, theirs is block, at, pairs, values)  # fmt: skip
            if theirs is not None and count:
                with lock:  # a column is seen by all threads
                    columns = theirs.by_column.numpy(), theirs.counts.numpy()
                    collect(*columns, their_bars, block.first, scale, margin, pairs[:count], values)

    list(threads.map(look, range(0, len(own.panels), PANELS)))


def rounded(exact: Tensor, width: int) -> Rounded:
    """In panels of `width` rows, the last filled up with zeros."""
    rows, dim = exact.shape
    longest = float(torch.linalg.vector_norm(exact, dim=1).max())
    scale = 2.0 ** (15 - math.frexp(longest)[1])  # lengths below 2^15: sums of products fit 32 bits
    pairs, rest = -(-dim // 2), 0.0
    panels = exact.new_empty((-(-rows // width), pairs, width, 2), dtype=torch.int16)
    for i in range(0, rows, STEP):
        large = exact[i : i + STEP] * scale
        whole = large.round().clamp_(-LARGEST, LARGEST)
        rest = max(rest, float(torch.linalg.vector_norm(large - whole, dim=1).max()))
        whole = F.pad(whole.short(), (0, dim % 2, 0, -len(whole) % width))
        panels[i // width : (i + STEP) // width] = whole.view(-1, width, pairs, 2).transpose(1, 2)
    return Rounded(exact, panels.view(torch.int32)[..., 0].numpy(), scale, longest * scale, rest)


def error_bound(own: Rounded, other: Rounded) -> float:
    """Return an upper bound of |s t x.y - q.p| for every row x of `own` and y of `other`.

    s and t are the scales, q and p the rows rounded to whole numbers.
    """
    apart = own.rest * (other.length + other.rest) + own.length * other.rest
    # Lengths are sums of floats; and both similarities that are compared are rounded to floats.
    return 1.001 * apart + own.length * other.length * 2**-22 + 1


def block_rows(rows: int, dim: int, budget: int, threads: int) -> int:
    """Return the rows of a block, of about equal size: the floats and whole numbers of two blocks and a copy of one
    fit into the budget beside the pairs that each thread writes down."""
    left = max(budget * 3 // 4 - 12 * ROOM * threads, budget // 4)
    most = max(left // (16 * (dim + 4)), COLUMNS)
    return -(-rows // -(-rows // most))


def _padded(rows: int) -> int:
    return -(-rows // STEP) * STEP
