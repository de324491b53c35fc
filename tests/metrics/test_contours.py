"""One sweep finds what a loop over thresholds finds: identical numbers, for every threshold."""

import numpy as np
import pytest

from cenote.metrics import boxes_at
from cenote.metrics.contours import contour_overlaps
from tests.metrics import contours

NAMED = dict(contours.shapes())
FLOOD = {1: contours.flood_largest, 2: contours.flood_boxes}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", NAMED)
def test_shapes_that_are_easy_to_get_wrong(name: str, version: int) -> None:
    levels = NAMED[name].astype(np.uint8)
    for seed in range(3):
        truth = contours.random_truth(np.random.default_rng(seed), levels)
        expected = contours.overlaps(levels, truth, FLOOD[version])
        np.testing.assert_array_equal(contour_overlaps(levels, truth, version), expected)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_random_maps_against_flood_fill(seed: int, version: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        levels = contours.random_levels(rng, most=11)
        truth = contours.random_truth(rng, levels)
        expected = contours.overlaps(levels, truth, FLOOD[version])
        np.testing.assert_array_equal(contour_overlaps(levels, truth, version), expected)


def against_opencv(levels: np.ndarray, rng: np.random.Generator, version: int) -> None:
    truth = contours.random_truth(rng, levels)
    expected = contours.overlaps(
        levels, truth, lambda mask: contours.opencv_boxes(mask, largest=version == 1)
    )
    np.testing.assert_array_equal(contour_overlaps(levels, truth, version), expected)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", NAMED)
def test_shapes_against_opencv(name: str, version: int) -> None:
    pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    against_opencv(NAMED[name].astype(np.uint8), np.random.default_rng(0), version)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_many_maps_against_opencv(seed: int, version: int) -> None:
    pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    rng = np.random.default_rng(1000 + seed)
    for _ in range(260):
        against_opencv(contours.random_levels(rng, most=20), rng, version)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("cells", [3, 7, 14, 56, 224])
def test_enlarged_maps_against_opencv(cells: int, version: int) -> None:
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    rng = np.random.default_rng(cells)
    enlarged = cv2.resize(rng.random((cells, cells)), (224, 160), interpolation=cv2.INTER_CUBIC)
    few = 20 if cells > 14 else 255  # levels: OpenCV takes seconds on noise
    levels = ((enlarged - enlarged.min()) / np.ptp(enlarged) * few).astype(np.uint8)
    against_opencv(levels, rng, version)


@pytest.mark.parametrize("seed", range(10))
def test_the_boxes_of_one_threshold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = contours.random_levels(rng, most=14)
    height, width = levels.shape
    scores = np.minimum((levels + 0.5) / 255, 1.0)  # truncates back to the same levels
    for threshold in (0.0, 0.3, 0.9):
        mask = levels > int(threshold * levels.max())
        for version, find in FLOOD.items():
            clipped = {
                (x0, y0, min(x1, width - 1), min(y1, height - 1)) for x0, y0, x1, y1 in find(mask)
            }
            assert {tuple(box) for box in boxes_at(scores, threshold, version).tolist()} == clipped
