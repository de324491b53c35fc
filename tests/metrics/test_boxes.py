"""IoU counts cells; CorLoc counts images."""

import numpy as np
import pytest

from cenote.metrics import CorLoc, box_iou, corloc


def cells(box: list[int], plus_one: bool) -> set[tuple[int, int]]:
    return {
        (x, y) for x in range(box[0], box[2] + plus_one) for y in range(box[1], box[3] + plus_one)
    }


@pytest.mark.parametrize("plus_one", [False, True])
def test_iou_counts_cells(plus_one: bool) -> None:
    points = np.random.default_rng(0).integers(0, 9, (60, 2, 2))
    boxes = np.concatenate([points.min(1), points.max(1)], 1).tolist()
    overlaps = box_iou(boxes[:30], boxes[30:], plus_one)
    for i, first in enumerate(boxes[:30]):
        for j, second in enumerate(boxes[30:]):
            a, b = cells(first, plus_one), cells(second, plus_one)
            assert overlaps[i, j] == (len(a & b) / len(a | b) if a | b else 0)


def test_one_box_and_none() -> None:
    assert box_iou([0, 0, 2, 2], [[1, 1, 3, 3]]).tolist() == [[1 / 7]]
    assert box_iou([], [0, 0, 1, 1]).shape == (0, 1)


def test_corloc_is_the_share_of_images_with_a_fitting_box() -> None:
    truth = [[[0, 0, 10, 10], [50, 50, 60, 60]], [[0, 0, 10, 10]], [[0, 0, 10, 10]], [[5, 5, 9, 9]]]
    found = [
        [50, 50, 60, 60],
        [0, 0, 10, 5],
        [0, 0, 10, 4.9],
        None,
    ]  # the second overlaps by one half exactly
    assert corloc(found, truth) == 0.5
    assert corloc(found, truth, delta=0.49) == 0.75


def test_the_best_of_several_found_boxes_counts() -> None:
    assert corloc([[[90, 90, 99, 99], [0, 0, 10, 10]]], [[0, 0, 10, 10]]) == 1


def test_bad_input_names_the_image() -> None:
    with pytest.raises(ValueError, match=r"cat\.jpg"):
        CorLoc().add([0, 0, 1, 1], [], "cat.jpg")
    with pytest.raises(ValueError, match=r"image 0\b.*\[5\.0, 5\.0, 2\.0, 2\.0\]"):
        corloc([[5, 5, 2, 2]], [[0, 0, 1, 1]])
