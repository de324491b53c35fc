"""A prepared map is the cubic interpolation of the raw one, stretched to [0, 1]; OpenCV is the
peer.
"""

import math

import numpy as np
import pytest
import torch

from cenote.metrics import prepare_maps, resize_mask


def cubic(values: np.ndarray, count: int) -> np.ndarray:
    """Along the first axis, sample by sample: a = -0.75, half-pixel centres, the border
    repeated.
    """
    a, n, rows = -0.75, len(values), []
    for i in range(count):
        position = (i + 0.5) * n / count - 0.5
        first = int(np.floor(position))
        row = 0.0
        for k in range(first - 1, first + 3):
            d = abs(position - k)
            weight = (
                (a + 2) * d**3 - (a + 3) * d**2 + 1
                if d <= 1
                else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            )
            row = row + weight * values[min(max(k, 0), n - 1)]
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(
    ("size", "to"), [((7, 7), 224), ((5, 9), (31, 40)), ((30, 20), (11, 7)), ((1, 1), (3, 3))]
)
def test_cubic_then_stretched(size: tuple[int, int], to: int | tuple[int, int]) -> None:
    raw = np.random.default_rng(0).normal(size=size)
    height, width = (to, to) if isinstance(to, int) else to
    enlarged = cubic(cubic(raw, height).T, width).T
    span = np.ptp(enlarged)
    expected = (enlarged - enlarged.min()) / span if span > 1e-12 else 0 * enlarged
    np.testing.assert_allclose(prepare_maps(raw, to), expected, atol=1e-12)


@pytest.mark.parametrize("size", [(7, 7), (14, 14), (56, 56), (9, 30), (300, 260)])
def test_opencv_does_the_same(size: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    raw = np.random.default_rng(1).normal(size=size).astype(np.float32)
    resized = cv2.resize(raw, (224, 200), interpolation=cv2.INTER_CUBIC)
    expected = (resized - resized.min()) / (resized.max() - resized.min())
    np.testing.assert_allclose(
        prepare_maps(raw, (200, 224)), expected, atol=1e-5 if size < (200, 200) else 1e-4
    )


def test_the_ends_are_exactly_zero_and_one_and_each_map_has_its_own() -> None:
    raw = (
        torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
        * torch.tensor([1e-3, 1, 1e4])[:, None, None]
    )
    maps = prepare_maps(raw, 20)
    assert maps.shape == (2, 3, 20, 20)
    assert (maps.amin((-2, -1)) == 0).all() and (maps.amax((-2, -1)) == 1).all()
    torch.testing.assert_close(maps[1, 2], prepare_maps(raw[1, 2], 20))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_useless_maps_become_zeros_and_spare_the_others(bad: float) -> None:
    raw = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0))
    raw[0, 1, 1], raw[1] = bad, 0.3
    for size in (4, 23, 2):
        maps = prepare_maps(raw, size)
        assert not maps[:2].any() and maps[2].max() == 1


def test_half_precision_and_whole_numbers() -> None:
    assert prepare_maps(torch.rand(4, 4).bfloat16(), 8).dtype == torch.float32
    assert prepare_maps(np.arange(16).reshape(4, 4), 8).max() == 1


@pytest.mark.parametrize("size", [(5, 7), (224, 224), (333, 500), (97, 61), (1, 3), (36, 72)])
def test_masks_by_nearest_neighbour_as_opencv(size: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    mask = np.random.default_rng(0).integers(0, 255, size).astype(np.uint8)
    for height, width in ((224, 224), (31, 47)):
        expected = cv2.resize(mask, (width, height), interpolation=cv2.INTER_NEAREST)
        np.testing.assert_array_equal(resize_mask(mask, (height, width)), expected)


def test_masks_round_as_opencv_does() -> None:
    """y times the reciprocal of H / h, in double precision, is less than a whole y h / H."""
    exact = [y * 36 // 224 for y in range(224)]
    slow = [min(math.floor(y * (1 / (224 / 36))), 35) for y in range(224)]
    assert slow != exact
    mask = np.arange(36)[:, None].repeat(2, 1)
    assert resize_mask(mask, (224, 2))[:, 0].tolist() == slow
    assert resize_mask(mask.T, (2, 224))[1].tolist() == slow
