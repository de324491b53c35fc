"""PxAP: the counts of numpy's histograms, the sum of the definition, over all pixels at once."""

import numpy as np
import pytest
import torch

from cenote.metrics import PixelPrecision, pixel_average_precision


def case(seed: int = 0, dtype: type = np.float32) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores on and beside the edges of bins, exactly 0 and exactly 1 among them."""
    rng = np.random.default_rng(seed)
    maps = [rng.random((9, 11)).astype(dtype) for _ in range(4)]
    maps += [
        (rng.integers(0, 101, (9, 11)) / 100).astype(dtype),
        np.arange(0, 1, 0.01)[:99].reshape(9, 11).astype(dtype),
    ]
    maps += [np.zeros((9, 11), dtype), np.ones((9, 11), dtype)]
    return maps, [
        rng.choice([0, 1, 255], (9, 11), p=[0.6, 0.3, 0.1]).astype(np.uint8) for _ in maps
    ]


def slow(maps: list[np.ndarray], masks: list[np.ndarray], bin_width: float) -> float:
    """Threshold by threshold, pixel by pixel."""
    scores = np.concatenate([m.ravel() for m in maps]).astype(np.float64)
    truth = np.concatenate([m.ravel() for m in masks])
    scores, truth = scores[truth != 255], truth[truth != 255]
    area = recall_before = 0.0
    for edge in [2.0, 1.0, *np.arange(0, 1, bin_width)[::-1]]:
        predicted = scores >= edge
        if predicted.any():
            precision, recall = truth[predicted].mean(), truth[predicted].sum() / truth.sum()
            area += precision * (recall - recall_before)
            recall_before = recall
    return float(area)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bin_width", [0.01, 0.001, 0.07, 0.1, 1.0])
def test_counts_are_those_of_numpy(bin_width: float, dtype: type) -> None:
    maps, masks = case(dtype=dtype)
    precision = PixelPrecision(bin_width)
    expected = np.zeros_like(precision.pixels)
    edges = np.append(np.arange(0, 1, bin_width), [1.0, 2.0, 3.0])
    for scores, mask in zip(maps, masks, strict=True):
        precision.add(scores, mask)
        expected += [np.histogram(scores[mask == value], edges)[0] for value in (0, 1)]
    np.testing.assert_array_equal(precision.pixels, expected)
    assert precision.result() == pytest.approx(slow(maps, masks, bin_width), abs=1e-12)


def test_the_ends_of_the_scale() -> None:
    mask = np.array([[1, 1, 0, 0]])
    assert pixel_average_precision([np.array([[1.0, 0.9, 0.2, 0.1]])], [mask]) == 1
    assert pixel_average_precision([np.full((1, 4), 0.5)], [mask]) == 0.5
    assert pixel_average_precision([np.array([[0.0, 0.0, 1.0, 1.0]])], [mask]) == 0.5


def test_tensors_bools_and_half_precision() -> None:
    scores = torch.rand(6, 7, generator=torch.Generator().manual_seed(0)).half()
    mask = scores > 0.4
    assert pixel_average_precision([scores], [mask]) == pixel_average_precision(
        [scores.float()], [mask.int()]
    )


def test_processes_add_up() -> None:
    maps, masks = case()
    first, second = PixelPrecision(), PixelPrecision()
    for i, (scores, mask) in enumerate(zip(maps, masks, strict=True)):
        (first if i < 3 else second).add(scores, mask)
    first.merge(second)
    assert first.count == len(maps) and first.result() == pixel_average_precision(maps, masks)


def test_an_image_without_the_object_counts_against_the_others() -> None:
    """Pixels are pooled: its high scores are false positives."""
    scores, mask = np.array([[0.9, 0.1]]), np.array([[1, 0]])
    assert pixel_average_precision([scores, scores], [mask, 0 * mask]) == 0.5


def test_bad_input_is_refused() -> None:
    ones = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"\b2 images\b"):
        pixel_average_precision([ones, ones], [0 * ones, 255 * ones])
    with pytest.raises(ValueError, match=r"dog\.png.*\(3, 2\).*\(2, 3\)"):
        PixelPrecision().add(ones, ones.T, "dog.png")
    with pytest.raises(ValueError, match=r"image 0\b.*nan"):
        pixel_average_precision([ones * np.nan], [ones])


def test_a_mask_has_three_values() -> None:
    with pytest.raises(ValueError, match=r"image 0\b.*\[2\]"):
        pixel_average_precision([np.ones((2, 3))], [np.full((2, 3), 2)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_at_and_beside_every_edge(dtype: type) -> None:
    """Also where rounding puts an edge just below 1, as 49 bins do."""
    for bins in (*range(1, 60), 997, 4100):
        edges = np.append(np.arange(0, 1, 1 / bins), [1.0, 2.0, 3.0])
        beside = [np.nextafter(edges[:-2], way) for way in (0.0, 2.0)]
        scores = np.concatenate([edges[:-2], *beside]).astype(dtype)
        scores = scores[scores <= 1][None]
        precision = PixelPrecision(1 / bins)
        precision.add(scores, np.ones_like(scores, np.uint8))
        assert np.array_equal(
            precision.pixels[1], np.histogram(scores.astype(np.float64), edges)[0]
        )
