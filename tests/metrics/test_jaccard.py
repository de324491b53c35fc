"""Attention Jaccard: per class the best head, mean over classes, then over images; void belongs to
nobody.
"""

import numpy as np
import pytest
import torch

from cenote.metrics import AttentionJaccard, attention_jaccard


def slow(masks: np.ndarray, target: np.ndarray, compat: bool) -> float:
    per_class = []
    for value in sorted(set(target.ravel().tolist()) - {0, 255}):
        heads = []
        for mask in masks:
            shared = union = 0
            for m, t in zip(mask.ravel().tolist(), target.ravel().tolist(), strict=True):
                if t == 255 and not compat:
                    continue
                shared += m and t == value
                union += m or t == value
            heads.append(shared / union)
        per_class.append(max(heads))
    return sum(per_class) / len(per_class)


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_pixel_by_pixel(seed: int, compat: bool) -> None:
    rng = np.random.default_rng(seed)
    target = rng.choice([0, 3, 7, 20, 255], (8, 9))
    target[0, 0] = 3
    masks = rng.random((6, 8, 9)) < 0.4
    assert attention_jaccard(masks, target, compat=compat) == pytest.approx(
        slow(masks, target, compat), abs=1e-12
    )
    assert attention_jaccard(
        torch.from_numpy(masks), torch.from_numpy(target), compat=compat
    ) == pytest.approx(slow(masks, target, compat), abs=1e-12)


def test_what_compat_is_about() -> None:
    target = np.array([[1, 1, 255, 255]])
    masks = np.array([[[True, True, True, True]]])
    assert attention_jaccard(masks, target) == 1
    assert attention_jaccard(masks, target, compat=True) == 0.5


def test_no_head_sees_anything() -> None:
    assert attention_jaccard(np.zeros((2, 3, 3)), np.ones((3, 3), int)) == 0


def test_mean_over_images_not_over_classes() -> None:
    score = AttentionJaccard()
    one = np.array([[[1, 0, 0]]]), np.array([[1, 2, 3]])  # 1, 0 and 0
    two = np.array([[[1, 0, 0]]]), np.array([[1, 0, 0]])  # 1
    assert score.add(*one) == pytest.approx(1 / 3) and score.add(*two) == 1
    assert score.result() == pytest.approx(2 / 3)


def test_bad_input_names_the_image() -> None:
    with pytest.raises(ValueError, match=r"2008_01\.png"):
        AttentionJaccard().add(np.ones((1, 2, 2)), np.array([[0, 255], [0, 0]]), "2008_01.png")
