"""MaxBoxAcc is the published protocol, threshold by threshold; the counts add up over batches and
processes.
"""

import numpy as np
import pytest
import torch

from cenote.metrics import BoxAccuracy, class_ranks, max_box_acc, prepare_maps
from tests.metrics import contours

Case = tuple[np.ndarray, list[np.ndarray], list[tuple[int, int]]]


def case(count: int = 12, seed: int = 0, side: int = 28) -> Case:
    rng = np.random.default_rng(seed)
    maps = prepare_maps(rng.random((count, 5, 5)).astype(np.float32), side)
    sizes = [tuple(rng.integers(30, 400, 2).tolist()) for _ in range(count)]
    boxes = []
    for w, h in sizes:
        points = rng.random((int(rng.integers(1, 4)), 2, 2)) * (w, h)
        boxes.append(np.concatenate([points.min(1), points.max(1)], 1))
    return maps, boxes, sizes


def published(
    maps: np.ndarray,
    boxes: list[np.ndarray],
    sizes: list[tuple[int, int]],
    interval: float,
    version: int,
):
    """Right images (deltas, thresholds) by the rules, one threshold after another."""
    deltas = [0.5] if version == 1 else [0.3, 0.5, 0.7]
    thresholds = list(np.arange(0, 1, interval))
    right = np.zeros((len(deltas), len(thresholds)), int)
    find = contours.flood_largest if version == 1 else contours.flood_boxes
    for score_map, own, (w, h) in zip(maps, boxes, sizes, strict=True):
        levels = (score_map * 255).astype(np.uint8)
        height, width = levels.shape
        scale = (width, width, height, height)[::2] * 2
        truth = [
            tuple(int(v * s / o) for v, s, o in zip(box, scale, (w, h, w, h), strict=True))
            for box in own.tolist()
        ]
        for j, t in enumerate(thresholds):
            found = [
                (x0, y0, min(x1, width - 1), min(y1, height - 1))
                for x0, y0, x1, y1 in find(levels > int(t * levels.max()))
            ] or [(0, 0, 0, 0)]
            best = max(contours.iou(a, b) for a in found for b in truth)
            right[:, j] += [best >= delta for delta in deltas]
    return right, thresholds


@pytest.mark.parametrize("interval", [0.1, 0.07])
@pytest.mark.parametrize("version", [1, 2])
def test_the_published_protocol(version: int, interval: float) -> None:
    maps, boxes, sizes = case()
    right, thresholds = published(maps, boxes, sizes, interval, version)
    accuracy = BoxAccuracy(interval, version)
    accuracy.add(maps, boxes, sizes)
    np.testing.assert_array_equal(accuracy.right[0], right)
    score, per_iou, chosen = max_box_acc(maps, boxes, sizes, interval, version)
    assert per_iou == tuple((right.max(1) / len(maps)).tolist())
    assert score == pytest.approx(np.mean(per_iou), abs=1e-15)
    assert chosen == pytest.approx([thresholds[i] for i in right.argmax(1)])


def test_a_perfect_box_is_not_quite_one() -> None:
    """The box ends at x + w, the truth there too, and +1 on both: only the border clips."""
    score_map = np.zeros((224, 224), np.float32)
    score_map[50:150, 60:160] = 1
    overlaps = BoxAccuracy(0.5).overlaps(score_map, [60, 50, 159, 149], (224, 224))
    assert overlaps[0] == pytest.approx(100 * 100 / 101**2)


def test_tensors_half_precision_and_generators() -> None:
    maps, boxes, sizes = case()
    expected = max_box_acc(maps, boxes, sizes)
    assert (
        max_box_acc(torch.from_numpy(maps), map(torch.from_numpy, boxes), iter(sizes)) == expected
    )
    halves = torch.from_numpy(maps).half()
    assert max_box_acc(halves, boxes, sizes) == max_box_acc(halves.float(), boxes, sizes)


def test_batches_and_processes_add_up() -> None:
    maps, boxes, sizes = case(150, side=20)  # more than one chunk
    whole, first, second = BoxAccuracy(), BoxAccuracy(), BoxAccuracy()
    whole.add(maps, boxes, sizes)
    first.add(maps[:70], boxes[:70], sizes[:70])
    for i in range(70, 150):
        second.add(maps[i : i + 1], boxes[i : i + 1], sizes[i : i + 1])
    first.merge(second)
    assert (
        first.count == 150
        and np.array_equal(first.right, whole.right)
        and first.result() == whole.result()
    )


def test_maps_of_different_sizes() -> None:
    (maps, boxes, sizes), (more, other, others) = case(3), case(3, seed=1, side=17)
    together = BoxAccuracy()
    together.add([*maps, *more], boxes + other, sizes + others)
    apart = BoxAccuracy()
    apart.add(maps, boxes, sizes)
    apart.add(more, other, others)
    assert np.array_equal(together.right, apart.right)


def test_the_threshold_of_validation_on_test() -> None:
    validation, test = BoxAccuracy(), BoxAccuracy()
    validation.add(*case(40, seed=1))
    test.add(*case(40, seed=2))
    chosen = validation.result().thresholds
    score = test.at(chosen)
    curve = test.curve()
    expected = [curve[i, round(t / 0.01)] for i, t in enumerate(chosen)]
    assert score.thresholds == chosen and score.per_iou == tuple(expected)
    assert score.score <= test.result().score
    with pytest.raises(ValueError, match=r"0\.123\b"):
        test.at((0.123, 0.5, 0.5))
    with pytest.raises(ValueError, match=r"\[0\.5\]"):
        test.at((0.5,))


def test_top_1_and_top_5_ask_for_the_class_too() -> None:
    maps, boxes, sizes = case(30)
    rng = np.random.default_rng(3)
    logits, targets = rng.random((30, 8)), rng.integers(0, 8, 30)
    accuracy = BoxAccuracy(0.1)
    accuracy.add(maps, boxes, sizes, ranks=class_ranks(logits, targets))
    for kind, top in (("top1", 1), ("top5", 5)):
        order = np.argsort(-logits, 1)[:, :top]
        known = [i for i in range(30) if targets[i] in order[i]]
        only = BoxAccuracy(0.1)
        only.add(maps[known], [boxes[i] for i in known], [sizes[i] for i in known])
        np.testing.assert_allclose(accuracy.curve(kind), only.right[0] / 30)
    assert (
        accuracy.result("top1").score
        <= accuracy.result("top5").score
        <= accuracy.result("known").score
    )
    accuracy.add(maps, boxes, sizes)
    with pytest.raises(ValueError, match="top1"):
        accuracy.result("top1")


def test_bounds_hold_the_score_and_narrow_with_images() -> None:
    few, many = BoxAccuracy(0.1, resamples=300), BoxAccuracy(0.1, resamples=300)
    maps, boxes, sizes = case(20, side=16)
    few.add(maps, boxes, sizes)
    for _ in range(9):
        many.add(maps, boxes, sizes)
    chosen = few.result().thresholds
    (a, b), (c, d) = few.bounds(thresholds=chosen), many.bounds(thresholds=chosen)
    score = few.result().score
    assert a <= score <= b and c <= score <= d
    assert d - c == pytest.approx((b - a) / 3, rel=0.35)  # nine times the images
    assert few.bounds()[1] >= b  # who may choose the threshold anew does not do worse


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda m, b, s: (m * np.nan, b, s), "nan"),
        (lambda m, b, s: (m * 2, b, s), r"\b0 to 2\b"),
        (lambda m, b, s: (m[None], b, s), r"\(1, 28, 28\)"),
        (lambda m, b, s: (m, np.zeros((0, 4)), s), "box"),
        (lambda m, b, s: (m, [[10, 10, 5, 12]], s), r"\[10\.0, 10\.0, 5\.0, 12\.0\]"),
        (lambda m, b, s: (m, [[1, 2, np.nan, 4]], s), r"\[1\.0, 2\.0, nan, 4\.0\]"),
    ],
)
def test_bad_input_is_refused_with_the_name_of_the_image(spoil, named: str) -> None:
    maps, boxes, sizes = case(1)
    score_map, box, size = spoil(maps[0], boxes[0], sizes[0])
    with pytest.raises(ValueError, match=f"bird.jpg.*{named}"):
        BoxAccuracy().add([score_map], [box], [size], names=["bird.jpg"])


def test_without_names_the_image_is_a_number() -> None:
    maps, boxes, sizes = case(70, side=8)
    maps[66] = np.nan
    with pytest.raises(ValueError, match=r"image 66\b"):
        max_box_acc(maps, boxes, sizes)


def test_columns_of_different_length() -> None:
    maps, boxes, sizes = case(3)
    with pytest.raises(ValueError, match="shorter"):
        max_box_acc(maps, boxes[:2], sizes[:2])
