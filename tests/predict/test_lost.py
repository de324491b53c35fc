"""LOST is its definition, patch by patch; ties go to the first patch; odd input has an answer or a sentence."""

import numpy as np
import pytest
import torch

from cenote.predict.discovery.base import PatchFeatures
from cenote.predict.discovery.lost import _discover, lost
from tests.evaluate.scenes import box_of, flood, scene


def slow(f: np.ndarray, grid: tuple[int, int], k: int) -> tuple[np.ndarray, int]:
    n = len(f)
    a = [
        [sum(float(p) * float(q) for p, q in zip(f[i], f[j], strict=True)) for j in range(n)]
        for i in range(n)
    ]
    degrees = [sum(a[i][j] > 0 for j in range(n)) for i in range(n)]
    order = sorted(range(n), key=lambda i: (degrees[i], i))
    seed = order[0]
    like = [i for i in order[:k] if a[seed][i] > 0]
    m = [sum(a[i][j] for i in like) for j in range(n)]
    assert np.abs(a).min() > 1e-9 and np.abs(m).min() > 1e-9, (
        "rounding could change a sign: take another scene"
    )
    return flood(np.array([value > 0 for value in m]).reshape(grid), seed), seed


@pytest.mark.parametrize("grid", [(5, 8), (8, 5), (6, 6), (1, 7)])
@pytest.mark.parametrize("k", [1, 5, 100])
@pytest.mark.parametrize("seed", range(8))
def test_equal_to_the_definition(grid: tuple[int, int], k: int, seed: int) -> None:
    f = scene(seed, grid, dim=6)
    mask, start = slow(f, grid, k)
    found = lost(f, grid, k)
    assert found.seed == start and np.array_equal(found.mask, mask) and found.box == box_of(mask)
    assert np.array_equal(lost(torch.from_numpy(f), grid, k).mask, mask)


def test_it_finds_the_object() -> None:
    truth = np.zeros((10, 14), bool)
    truth[3:7, 4:9] = True
    f = np.where(truth.reshape(-1, 1), [[1.0, 0.2]], [[-1.0, 0.2]])
    found = lost(f, truth.shape)
    assert np.array_equal(found.mask, truth) and found.box == (4, 3, 9, 7)


def test_rows_are_summed_with_their_values_and_not_counted() -> None:
    """Two patches speak for the last one, and the seed, more strongly, against it."""
    f = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 5.0], [0.5, -1.0]])
    found = lost(f, (1, 4))
    assert found.seed == 2 and found.mask.tolist() == [
        [True, True, True, False]
    ]  # 1/2 + 1/2 - 4.5 < 0


def test_of_equal_degrees_the_first_patch_is_the_seed() -> None:
    found = lost(np.eye(6), (2, 3))
    assert found.seed == 0 and found.box == (0, 0, 1, 1)


def test_where_all_are_alike_it_is_the_whole_picture() -> None:
    assert lost(np.ones((12, 3)), (3, 4)).box == (0, 0, 4, 3)
    assert lost(np.abs(scene(0, (3, 4))), (3, 4)).mask.all(), (
        "positive features are positively correlated"
    )


def test_one_patch_and_no_features() -> None:
    assert lost([[2.0, 1.0]], (1, 1)).box == (0, 0, 1, 1)
    assert lost(np.zeros((6, 4)), (2, 3)).box is None


@pytest.mark.parametrize(
    ("features", "grid", "values"),
    [
        (np.full((4, 3), np.nan), (2, 2), r".*NaN"),
        (np.array([[1.0], [np.inf]]), (1, 2), r".*infinite"),
        (np.ones((5, 3)), (2, 2), r".*\b2 x 2\b.*\(5, 3\)"),
        (np.ones((0, 3)), (0, 2), r".*\b0 x 2\b.*\(0, 3\)"),
    ],
)
def test_wrong_features_are_refused(
    features: np.ndarray, grid: tuple[int, int], values: str
) -> None:
    with pytest.raises(ValueError, match=values):
        lost(features, grid)


def test_features_without_negative_values_are_normalised_together() -> None:
    """main_lost.py: one LayerNorm over the patches and channels of a ResNet's or VGG's map."""
    grid, differing = (10, 12), 0
    for seed in range(10):
        keys = (torch.randn(120, 64, generator=torch.Generator().manual_seed(seed)) + 0.3).relu()
        (found,) = _discover(PatchFeatures(0, (12, 10), grid, keys, None))
        published = lost(torch.nn.LayerNorm(keys.shape)(keys).detach(), grid)
        assert np.array_equal(found.mask, published.mask) and found.seed == published.seed
        differing += lost(keys - keys.mean(0), grid).box != published.box
        signed = keys - 0.1
        (found,) = _discover(PatchFeatures(0, (12, 10), grid, signed, None))
        assert np.array_equal(found.mask, lost(signed, grid).mask)
    assert differing > 0  # from what subtracting the mean of each channel gives
