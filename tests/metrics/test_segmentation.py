"""mIoU, mAcc and aAcc by counting pixels, class by class."""

import numpy as np
import pytest
import torch

from cenote.metrics import Confusion, segmentation_scores


def slow(
    guess: np.ndarray, truth: np.ndarray, classes: int, ignore: int | None
) -> tuple[float, float, float]:
    pairs = [
        (g, t)
        for g, t in zip(guess.ravel().tolist(), truth.ravel().tolist(), strict=True)
        if t != ignore
    ]
    ious, accuracies = [], []
    for c in range(classes):
        both = sum(g == c and t == c for g, t in pairs)
        either, true = sum(g == c or t == c for g, t in pairs), sum(t == c for _, t in pairs)
        ious += [both / either] if either else []
        accuracies += [both / true] if true else []
    right = sum(g == t for g, t in pairs) / len(pairs)
    return sum(ious) / len(ious), sum(accuracies) / len(accuracies), right


@pytest.mark.parametrize("ignore", [255, None, 0])
@pytest.mark.parametrize("seed", range(5))
def test_pixel_by_pixel(seed: int, ignore: int | None) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.choice([0, 1, 2, 4] + ([255] if ignore == 255 else []), (3, 7, 5))
    guess = rng.integers(0, 5, (3, 7, 5))  # class 3 is predicted and never there
    guess[guess == 4] = truth[guess == 4] % 255
    score = segmentation_scores(guess, torch.from_numpy(truth), 6, ignore)  # class 5 is neither
    assert score[:3] == pytest.approx(slow(guess, truth, 6, ignore), abs=1e-12)
    assert (
        np.isnan(score.iou[5])
        and np.isnan(score.accuracy[5])
        and np.isnan(score.accuracy[3])
        and score.iou[3] == 0
    )


def test_processes_and_batches_add_up() -> None:
    rng = np.random.default_rng(0)
    guess, truth = rng.integers(0, 3, (2, 4, 6, 6))
    whole, first, second = Confusion(3), Confusion(3), Confusion(3)
    whole.add(guess, truth)
    first.add(guess[0], truth[0])
    for i in (1, 2, 3):
        second.add(guess[i], truth[i])
    first.merge(second)
    assert first.result() == whole.result() and first.images == 4


def test_a_prediction_of_the_ignored_class_where_truth_is_ignored_does_no_harm() -> None:
    assert segmentation_scores([np.array([[0, 200]])], [np.array([[0, 255]])], 1).miou == 1


def test_bad_input_names_the_image() -> None:
    with pytest.raises(ValueError, match=r"a\.png.*\btarget\b.*\b0 to 1\b"):
        Confusion(2).add(np.zeros((2, 2)), np.full((2, 2), 2), "a.png")
    with pytest.raises(ValueError, match=r"image 0\b.*\bprediction\b.*\b0 to 1\b"):
        Confusion(2).add(np.full((2, 2), -1), np.zeros((2, 2)))
