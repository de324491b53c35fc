"""DINO-seg is the largest piece of the mass; `compat` is what the published program's loop returns."""

import numpy as np
import pytest
from scipy import ndimage

from cenote.predict.discovery.dino_seg import dino_seg
from tests.evaluate.scenes import box_of, flood


def mass(a: np.ndarray, share: float) -> np.ndarray:
    """Positions from the highest down until they hold the share."""
    mask, held = np.zeros(a.shape, bool), 0.0
    for place in sorted(np.ndindex(a.shape), key=lambda place: (-a[place], place)):
        if held >= share * a.sum() - 1e-12:
            break
        mask[place], held = True, held + a[place]
    return mask


def largest(mask: np.ndarray) -> np.ndarray:
    pieces = [flood(mask, i) for i in np.flatnonzero(mask)]
    return max(pieces, key=lambda piece: piece.sum())  # max keeps the first of equals


def published(mask: np.ndarray) -> np.ndarray:
    """Pieces are numbered 1 to `count`, and sizes are taken of 0 to `count` - 1."""
    labels, count = ndimage.label(mask)
    sizes = [(labels == c).sum() for c in range(count)]
    chosen = 1 + int(np.argmax(sizes[1:])) if len(sizes) > 1 else 0
    return labels == chosen


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("seed", range(25))
def test_both_ways(share: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    a = draw.random((7, 9)) ** 4
    if seed % 3 == 0:
        a = ndimage.gaussian_filter(a, 1.5)  # often in one piece
    mask = mass(a, share)
    right, theirs = dino_seg(a, share), dino_seg(a, share, compat=True)
    assert np.array_equal(right.mask, largest(mask)) and right.box == box_of(right.mask)
    assert np.array_equal(theirs.mask, published(mask)) and theirs.box == box_of(theirs.mask)


def test_one_piece_and_what_the_published_program_makes_of_it() -> None:
    a = np.zeros((5, 6))
    a[1:3, 2:5] = 1
    assert dino_seg(a, 1.0).box == (2, 1, 5, 3)
    compat = dino_seg(a, 1.0, compat=True)
    assert np.array_equal(compat.mask, a == 0) and compat.box == (0, 0, 6, 5)


def test_a_map_without_mass_holds_nothing() -> None:
    assert dino_seg(np.zeros((3, 4))).box is None
    assert dino_seg(np.zeros((3, 4)), compat=True).mask.all()
    assert dino_seg(np.ones((1, 1))).box == (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("a", "values"),
    [
        (np.array([[1.0, np.nan]]), "NaN"),
        (np.array([[1.0, -1.0]]), "negative"),
    ],
)
def test_what_is_not_a_map_is_refused(a: np.ndarray, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        dino_seg(a)
