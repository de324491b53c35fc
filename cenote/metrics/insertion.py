"""The best of a tile put where they belong: what `nearest` does with tensors, compiled, for the CPU and short lists."""

from __future__ import annotations

from .arrays import Array
from .compiled import compiled


@compiled
def insert(kept: Array, similarity: Array, maxima: Array, first: int, group: int) -> None:
    """`kept` (rows, k): keys, largest first. Similarities and the maxima of their groups come as the bits of floats."""
    rows, k = kept.shape
    columns = similarity.shape[1]
    for i in range(rows):
        last = kept[i, k - 1]
        for g in range(maxima.shape[1]):
            start = g * group
            # No key of the group is larger than that of its maximum in its first place.
            if _key(maxima[i, g], first + start) <= last:
                continue
            for j in range(start, min(start + group, columns)):
                key = _key(similarity[i, j], first + j)
                if key <= last:
                    continue
                place = k - 1
                while place and kept[i, place - 1] < key:
                    kept[i, place] = kept[i, place - 1]
                    place -= 1
                kept[i, place] = key
                last = kept[i, k - 1]


@compiled
def _key(bits: int, place: int) -> int:
    """As `nearest._keys`: in the order of the floats, of equal ones the first place largest."""
    value = 0 if bits == -2147483648 else int(bits)  # -0 is 0
    if value < 0:
        value ^= 0x7FFFFFFF  # negative floats ascend as their bits descend
    return (value << 32) | (0xFFFFFFFF - place)
