"""Feature maps with objects in them, and flood fill: what the tests of discovery share."""

import numpy as np

Grid = tuple[int, int]
EQUAL = 1e-6  # values of an eigenvector that differ by less, relative to the largest, are equal


def scene(seed: int, grid: Grid = (9, 12), dim: int = 16, noise: float = 0.6) -> np.ndarray:
    """(N, D): a background and a few rectangles, each with a direction of its own, and noise on all."""
    draw = np.random.default_rng(seed)
    kinds = np.zeros(grid, int)
    for kind in range(1, draw.integers(2, 5)):
        y, x = draw.integers(0, grid[0]), draw.integers(0, grid[1])
        kinds[y : y + draw.integers(1, grid[0] + 1), x : x + draw.integers(1, grid[1] + 1)] = kind
    directions = draw.standard_normal((5, dim))
    return directions[kinds.ravel()] + noise * draw.standard_normal((kinds.size, dim))


def flood(mask: np.ndarray, seed: int) -> np.ndarray:
    """The 4-connected piece with the seed, patch by patch."""
    out = np.zeros_like(mask, dtype=bool)
    front = [divmod(seed, mask.shape[1])]
    while front:
        y, x = front.pop()
        inside = 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]
        if inside and mask[y, x] and not out[y, x]:
            out[y, x] = True
            front += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
    return out


def box_of(mask: np.ndarray) -> tuple[int, int, int, int] | None:
    places = [(x, y) for y in range(mask.shape[0]) for x in range(mask.shape[1]) if mask[y, x]]
    if not places:
        return None
    xs, ys = [x for x, _ in places], [y for _, y in places]
    return min(xs), min(ys), max(xs) + 1, max(ys) + 1


def is_stable(y: np.ndarray, gap: float) -> bool:
    """Whether rounding cannot change the cut of the eigenvector y whose eigenvalue is `gap` away from the next.

    Lanczos stops at a residual of 1e-11, so y is exact to about 1e-11 / gap of its largest value. No value may be that
    near to the mean, where the cut is, or to the border of what counts as equal to the largest.
    """
    error, largest = 2e-11 / gap, np.abs(y).max()
    below = np.concatenate([largest - np.abs(y), y.max() - y, y - y.min()]) / largest
    return bool(
        np.abs(y - y.mean()).min() / largest > error and np.abs(below - EQUAL).min() > error
    )


def farthest(y: np.ndarray) -> int:
    """Where |y| is largest. Patches with the same neighbours have equal values but for rounding: the first counts."""
    size = np.abs(y)
    return int(np.flatnonzero(size > size.max() * (1 - EQUAL))[0])
