"""MaskCut is one dense cut after the other, each without what was found; its masks do not overlap."""

import numpy as np
import pytest
from scipy.linalg import eigh

from cenote.predict.discovery.mask_cut import mask_cut
from tests.evaluate.scenes import EQUAL, box_of, farthest, flood, is_stable, scene


def slow(f: np.ndarray, grid: tuple[int, int], objects: int, tau: float) -> list[np.ndarray]:
    f, masks, last_cut = f.copy(), [], np.zeros(grid, bool)
    for _ in range(objects):
        norms = np.sqrt((f**2).sum(1, keepdims=True))
        unit = np.where(norms > 0, f / np.where(norms > 0, norms, 1), 0)
        e = np.where(unit @ unit.T > tau, 1.0, 1e-5)
        values, vectors = eigh(np.diag(e.sum(1)) - e, np.diag(e.sum(1)), subset_by_index=[1, 2])
        assert is_stable(vectors[:, 0], values[1] - values[0]), (
            "rounding could change the cut: take another scene"
        )
        y = vectors[:, 0] * np.sign(vectors[farthest(vectors[:, 0]), 0])
        side = (y > y.mean()).reshape(grid)
        if int(side[0, 0]) + int(side[0, -1]) + int(side[-1, 0]) + int(side[-1, -1]) >= 3:
            y, side = -y, ~side
        near_top = np.flatnonzero(y >= y.max() - EQUAL * np.abs(y).max())  # twins
        mask = flood(side, int(near_top[0]))
        if masks:
            overlap = (mask & last_cut).sum() / (mask | last_cut).sum()
            if overlap > 0.5 or mask.sum() / mask.size <= 0.01:
                break
        last_cut = mask
        for before in masks:
            mask = mask & ~before
        if not mask.any():
            break
        masks.append(mask)
        f[mask.ravel()] = 0
    return masks


@pytest.mark.parametrize("grid", [(9, 12), (12, 12)])
@pytest.mark.parametrize("noise", [0.3, 0.8])
@pytest.mark.parametrize("seed", range(10))
def test_equal_to_dense_cuts(grid: tuple[int, int], noise: float, seed: int) -> None:
    f = scene(seed, grid, dim=16, noise=noise)
    masks = slow(f, grid, 3, 0.15)
    found = mask_cut(f, grid)
    assert len(found) == len(masks)
    for ours, theirs in zip(found, masks, strict=True):
        assert np.array_equal(ours.mask, theirs) and ours.box == box_of(theirs)
    assert sum(one.mask.astype(int) for one in found).max() == 1, "no patch belongs to two objects"


def test_a_cut_is_compared_with_the_cut_before_it() -> None:
    """Not with the object of that cut, which has lost the patches of earlier objects."""
    f = scene(18, (7, 7), dim=16, noise=1.2)
    masks = slow(f, (7, 7), 3, 0.15)
    assert [int(mask.sum()) for mask in masks] == [8, 8]
    assert [one.mask.tolist() for one in mask_cut(f, (7, 7))] == [mask.tolist() for mask in masks]


def test_two_objects_on_one_ground() -> None:
    kinds = np.zeros((12, 16), int)
    kinds[2:6, 2:6], kinds[6:10, 9:14] = 1, 2
    f = np.eye(3)[kinds.ravel()] + 0.01 * np.random.default_rng(0).standard_normal((kinds.size, 3))
    boxes = {one.box for one in mask_cut(f, kinds.shape)}
    assert {(2, 2, 6, 6), (9, 6, 14, 10)} <= boxes


def test_what_holds_the_corners_is_not_the_object() -> None:
    """A small ground on which a large object stands: TokenCut's side with the largest value is the ground."""
    kinds = np.zeros((10, 10), int)
    kinds[1:9, 1:9] = 1
    f = np.eye(2)[kinds.ravel()]
    assert mask_cut(f, kinds.shape, objects=1)[0].box == (1, 1, 9, 9)


def test_at_most_as_many_as_asked_for() -> None:
    f = scene(2, (9, 12), dim=16, noise=0.3)
    assert len(mask_cut(f, (9, 12), objects=1)) == 1
    assert np.array_equal(
        mask_cut(f, (9, 12), objects=1)[0].mask, mask_cut(f, (9, 12), objects=3)[0].mask
    )


def test_odd_pictures() -> None:
    assert [one.box for one in mask_cut(np.ones((12, 3)), (3, 4))] == [(0, 0, 4, 3)]
    assert [one.box for one in mask_cut([[1.0]], (1, 1))] == [(0, 0, 1, 1)]
    with pytest.raises(ValueError, match="NaN"):
        mask_cut(np.full((4, 2), np.nan), (2, 2))
