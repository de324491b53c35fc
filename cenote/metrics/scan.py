"""The pairs of a tile that may be near, found among whole numbers and then measured: the compiled part of `sieve`."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np

from ..compiled import compiled, instructions, summed
from .arrays import Array

ROWS, COLUMNS = (
    6,
    16,
)  # a tile: its sums, and what they are made of, fit the sixteen registers of AVX2
LANES = 8  # sums in a register

ir, numba = (
    import_module("llvmlite.ir"),
    import_module("numba"),
)  # `sieve` is imported where they are there
NUMBER = ir.IntType(32)
SUMS, PAIRS, WIDE = (
    ir.VectorType(ir.IntType(bits), n)
    for bits, n in ((32, LANES), (16, 2 * LANES), (32, 2 * LANES))
)


@compiled
def scan(
    rows: Array, columns: Array, x: Array, y: Array, bars: Array, their_bars: Array, kept: Array, counts: Array,
    first: int, scale: float, margin: float, start: int, stop: int, itself: bool, begin: int, pairs: Array,
    values: Array,
) -> tuple[int, int]:  # fmt: skip
    """Panels `start` to `stop` of rows against panels of columns from `begin`; of their own block those behind alone.

    A row keeps what is near to it at once. What is near to a column, which other threads see as well, is written into
    `pairs` and `values`, which have room for a panel of columns at least. The result is how many there are, and the
    panel of columns to go on with when they have been taken away.
    """
    tile = np.empty((ROWS, COLUMNS), np.int32)
    found, length = 0, rows.shape[1]
    start_of_rows, start_of_columns, start_of_tile = (
        rows.ctypes.data,
        columns.ctypes.data,
        tile.ctypes.data,
    )
    start_of_bars, start_of_theirs = bars.ctypes.data, their_bars.ctypes.data
    for q in range(max(begin, start * ROWS // COLUMNS) if itself else begin, len(columns)):
        if found + (stop - start) * ROWS * COLUMNS > len(pairs):
            return found, q
        for p in range(start, stop):
            i, j = p * ROWS, q * COLUMNS
            above = rows_above(
                start_of_rows + 4 * i * length, start_of_columns + 4 * j * length, length,
                start_of_bars + 4 * i, start_of_theirs + 4 * j, start_of_tile,
            )  # fmt: skip
            if not above:
                continue
            for r in range(min(ROWS, len(x) - i)):
                if not above >> r & 1:
                    continue
                for c in range(min(COLUMNS, len(y) - j)):
                    for_row, for_column = tile[r, c] > bars[i + r], tile[r, c] > their_bars[j + c]
                    if not (for_row or for_column) or (itself and j + c <= i + r):
                        continue
                    value = _dot(x[i + r], y[j + c])
                    if for_row:
                        bar = put(
                            kept[i + r, : counts[i + r]], _key(value, first + j + c), scale, margin
                        )
                        bars[i + r] = max(bars[i + r], bar)
                    if for_column:
                        pairs[found, 0], pairs[found, 1], values[found] = i + r, j + c, value
                        found += 1
    return found, len(columns)


@compiled
def collect(
    kept: Array,
    counts: Array,
    bars: Array,
    first: int,
    scale: float,
    margin: float,
    pairs: Array,
    values: Array,
) -> None:
    """What `scan` wrote down put where it belongs."""
    for n in range(len(pairs)):
        i, j = pairs[n, 0], pairs[n, 1]
        bar = put(kept[j, : counts[j]], _key(values[n], first + i), scale, margin)
        bars[j] = max(bars[j], bar)


@summed
def _dot(x: Array, y: Array) -> Any:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * np.float64(y[i])
    return np.float32(total)


@compiled
def put(best: Array, key: int, scale: float, margin: float) -> Any:
    """Into keys in descending order, if it is larger than the last; no pair below the result has a larger key."""
    place = len(best) - 1
    if key > best[place]:
        while place and best[place - 1] < key:
            best[place] = best[place - 1]
            place -= 1
        best[place] = key
    bits = np.int32(best[-1] >> 32)
    value = np.int32(bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(np.float32)
    return np.int32(max(np.floor(value * scale - margin), -2147483648.0))


@compiled
def _key(value: float, place: int) -> Any:
    """As `keys.keys`: in the order of the floats, of equal ones the first place largest."""
    bits = np.int64(np.float32(value + np.float32(0)).view(np.int32))  # -0 becomes 0
    if bits < 0:
        bits ^= 0x7FFFFFFF  # negative floats ascend as their bits descend
    return (bits << 32) | (0xFFFFFFFF - place)


@instructions
def rows_above(
    typing: Any, rows: Any, columns: Any, pairs: Any, bars: Any, their_bars: Any, tile: Any
) -> Any:
    """A bit for each row: whether a product is above the lower of its row's and its column's bar. All go into the tile.

    Everything but `pairs`, their number, is an address: of a panel of rows (pairs, ROWS, 2) and one of columns
    (pairs, COLUMNS, 2), of ROWS and COLUMNS bars, and of the tile (ROWS, COLUMNS). Written as instructions: the sums
    have to stay in registers, and no compiler of loops keeps them there.
    """

    def body(context: Any, build: Any, signature: Any, given: Any) -> Any:
        kinds = (NUMBER, SUMS, None, NUMBER, SUMS, SUMS)
        a, b, length, low, their_low, out = (
            build.inttoptr(x, kind.as_pointer()) if kind else x
            for x, kind in zip(given, kinds, strict=True)
        )
        whole, wide = length.type, COLUMNS // LANES
        before, loop, after = build.block, build.append_basic_block(), build.append_basic_block()
        build.branch(loop)
        build.position_at_end(loop)
        k, *sums = (build.phi(kind) for kind in [whole] + [SUMS] * (ROWS * wide))
        right = [build.bitcast(_at(build, b, k, wide, v), PAIRS) for v in range(wide)]
        left = [
            build.bitcast(_spread(build, _at(build, a, k, ROWS, r)), PAIRS) for r in range(ROWS)
        ]
        products = (_pairwise(build, x, y) for x in left for y in right)
        added = [build.add(*both) for both in zip(sums, products, strict=True)]
        following = build.add(k, whole(1))
        for value, new in zip((k, *sums), (following, *added), strict=True):
            value.add_incoming(ir.Constant(value.type, 0 if value is k else None), before)
            value.add_incoming(new, loop)
        build.cbranch(build.icmp_signed("<", following, length), loop, after)
        build.position_at_end(after)
        own = [_spread(build, _at(build, low, whole(0), 0, r)) for r in range(ROWS)]
        theirs = [_at(build, their_low, whole(0), 0, v) for v in range(wide)]
        lower = (build.select(build.icmp_signed("<", x, y), x, y) for x in own for y in theirs)
        above = [
            build.icmp_signed(">", value, bar) for value, bar in zip(added, lower, strict=True)
        ]
        for i, value in enumerate(added):
            build.store(value, build.gep(out, [whole(i)])).align = 4
        bits = []
        for r in range(ROWS):
            lanes = build.bitcast(
                reduce(build.or_, above[r * wide : (r + 1) * wide]), ir.IntType(LANES)
            )
            found = build.zext(build.icmp_unsigned("!=", lanes, lanes.type(0)), whole)
            bits.append(build.shl(found, whole(r)))
        return reduce(build.or_, bits)

    return numba.types.int64(rows, columns, pairs, bars, their_bars, tile), body


def _at(build: Any, start: Any, k: Any, step: int, place: int) -> Any:
    found = build.load(build.gep(start, [build.add(build.mul(k, k.type(step)), k.type(place))]))
    found.align = 4
    return found


def _spread(build: Any, number: Any) -> Any:
    """In every lane."""
    none = ir.Constant(SUMS, ir.Undefined)
    return build.shuffle_vector(
        build.insert_element(none, number, NUMBER(0)), none, ir.Constant(SUMS, None)
    )


def _pairwise(build: Any, x: Any, y: Any) -> Any:
    """x0 y0 + x1 y1 of each pair: one instruction where the machine has it."""
    products = build.mul(build.sext(x, WIDE), build.sext(y, WIDE))
    halves = (ir.Constant(SUMS, [NUMBER(2 * lane + i) for lane in range(LANES)]) for i in (0, 1))
    return build.add(*(build.shuffle_vector(products, products, half) for half in halves))
