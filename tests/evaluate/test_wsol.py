"""The localization protocol is its metrics on the right maps: those of whole images, one by one, for their own classes.

Oracles: plain loops over images, with `model.attend` and the metrics' own functions, and boxes compared by hand.
"""

from typing import Any

import numpy as np
import pytest
import torch

from cenote.data import Box, Dataset
from cenote.evaluate.wsol import LocalizationMetrics, localize, middle_threshold
from cenote.metrics import (
    BoxAccuracy,
    box_accuracy,
    boxes_at,
    contours,
    max_box_acc,
    pixel_average_precision,
    prepare_maps,
    resize_mask,
)
from cenote.models import PooledModel
from cenote.predict.embedding import Loading
from cenote.predict.maps import MapPredictor
from tests.synthetic import rectangle, rectangles
from tests.toy_models import localizer

OPTIONS: dict[str, Any] = {"resamples": 50, "cases": 2}
# A batch of one: the oracles see single images, too, and in other batches rounding could move a contour by a pixel.
ALONE: dict[str, Any] = {**OPTIONS, "loading": Loading(1)}


@pytest.fixture(scope="module")
def model() -> PooledModel:
    return localizer()


def looked_at(model: PooledModel, dataset: Dataset, predicted: bool = False) -> Any:
    """Maps, boxes, sizes and logits of every image, alone."""
    transform = model.backbone.preprocessing.whole()
    maps, boxes, sizes, logits = [], [], [], []
    for i in range(len(dataset)):
        image = dataset.image(i)
        pixels = transform(image)[None]
        with torch.no_grad():
            logits.append(model(pixels)[0].numpy())
            shown = int(logits[-1].argmax()) if predicted else int(dataset.labels[i])
            maps.append(prepare_maps(model.attend(pixels, "cam", classes=shown), 64)[0, 0].numpy())
        boxes.append([box[:4] for box in dataset[i].boxes])
        sizes.append(image.size)
    return maps, boxes, sizes, np.stack(logits)


def test_it_is_the_metrics_on_maps_of_whole_images(model: PooledModel) -> None:
    test, val = rectangles().select(range(9)), rectangles().select(range(9, 15))
    report = localize(model, test, val, **ALONE).to_json()
    maps, boxes, sizes, logits = looked_at(model, test)
    for version, name in ((2, "max_box_acc_v2"), (1, "max_box_acc")):
        best = max_box_acc(maps, boxes, sizes, version=version)
        found = report["oracle"][name]
        assert found["per_iou"] == pytest.approx([100 * share for share in best.per_iou])
        assert found["score"] == pytest.approx(100 * best.score)
        chooser, judge = BoxAccuracy(version=version), BoxAccuracy(version=version)
        chooser.add(*looked_at(model, val)[:3])
        judge.add(maps, boxes, sizes)
        honest = judge.at(chooser.result().thresholds)
        assert report["chosen"][name]["score"] == pytest.approx(100 * honest.score)
        assert report["chosen"][name]["thresholds"] == pytest.approx(honest.thresholds)
        low, high = report["chosen"][name]["interval95"]
        assert low <= report["chosen"][name]["score"] <= high
    masks = [resize_mask(test.mask(i), 64) for i in range(len(test))]
    assert (
        report["pxap"] == pytest.approx(100 * pixel_average_precision(maps, masks))
        and report["bin_width"] == 0.01
    )
    right = logits.argmax(1) == test.labels
    assert report["accuracy"]["top1"] == pytest.approx(100 * right.mean()) and report["images"] == 9


def test_top_1_asks_for_the_class_as_well(model: PooledModel) -> None:
    test, val = rectangles().select(range(9)), rectangles().select(range(9, 15))
    chosen = localize(model, test, val, **ALONE).to_json()["chosen"]
    maps, boxes, sizes, logits = looked_at(model, test)
    t = chosen["max_box_acc"]["thresholds"][0]
    hits = []
    for score_map, true, size, row, label in zip(
        maps, boxes, sizes, logits, test.labels, strict=True
    ):
        accuracy = BoxAccuracy(version=1)
        right = accuracy.overlaps(score_map, true, size)[round(t / 0.01)] >= 0.5
        hits.append(right and row.argmax() == label)
    assert chosen["max_box_acc"]["top1"] == pytest.approx(100 * np.mean(hits))
    assert chosen["max_box_acc"]["top5"] == pytest.approx(
        chosen["max_box_acc"]["score"]
    )  # of three classes
    others = looked_at(model, test, predicted=True)[0]
    judge = BoxAccuracy()
    judge.add(others, boxes, sizes)
    expected = 100 * judge.at(chosen["max_box_acc_v2"]["thresholds"]).score
    assert chosen["predicted_class"]["score"] == pytest.approx(expected)


def test_the_centred_box_by_hand(model: PooledModel) -> None:
    test = rectangles().select(range(9))
    found = localize(model, test, **OPTIONS).to_json()["oracle"]["centred_box"]
    best = {0.3: 0.0, 0.5: 0.0, 0.7: 0.0}
    for lacking in range(100):
        overlaps = []
        for i in range(9):
            width, height = test.image(i).size
            x0, y0, x1, y1 = (
                int(v * 64 / s)
                for v, s in zip(rectangle(i).corners, (width, height) * 2, strict=True)
            )
            a0 = int(lacking / 200 * 64)
            a1 = min(int((1 - lacking / 200) * 64), 63)
            w, h = min(a1, x1) - max(a0, x0) + 1, min(a1, y1) - max(a0, y0) + 1
            shared = max(w, 0) * max(h, 0)
            overlaps.append(shared / ((a1 - a0 + 1) ** 2 + (x1 - x0 + 1) * (y1 - y0 + 1) - shared))
        for delta in best:
            best[delta] = max(best[delta], float(np.mean(np.array(overlaps) >= delta)))
    assert found["per_iou"] == pytest.approx([100 * share for share in best.values()])
    assert all(0 < side <= 1 for side in found["sides"])


def test_without_validation_images_the_threshold_is_an_oracle_and_says_so(
    model: PooledModel,
) -> None:
    test = rectangles()
    result = localize(model, test, **OPTIONS)
    assert result.to_json()["chosen"] is None and result.to_json()["threshold_from"] == "test"
    best = result.to_json()["oracle"]["max_box_acc"]
    assert result.threshold >= best["thresholds"][0]
    assert 100 * np.mean(np.array(result.ious) >= 0.5) == pytest.approx(best["score"])
    no_boxes = rectangles(boxes=dict.fromkeys(range(15), ()))
    with_masks_alone = localize(model, test, no_boxes, **OPTIONS).to_json()
    assert with_masks_alone["chosen"] is None and with_masks_alone["threshold_from"] == "test"


@pytest.mark.parametrize(
    ("right", "middle"),
    [
        ([5, 3, 5, 5, 5, 5, 1, 0, 0, 0], 0.3),  # not 0, which is as good and alone
        ([5, 5, 5, 5, 5, 2, 5, 5, 1, 0], 0.2),
        ([0, 1, 2, 3, 4, 5, 4, 3, 2, 1], 0.5),
        ([9, 4, 3, 2, 1, 0, 0, 0, 0, 0], 0.0),
        ([0, 0, 0, 0, 0, 0, 1, 1, 1, 1], 0.7),
        ([0] * 10, 0.4),
    ],
)
def test_the_threshold_to_draw_with_is_in_the_middle_of_the_best(
    right: list[int], middle: float
) -> None:
    accuracy = BoxAccuracy(0.1, 1)
    accuracy.count, accuracy.right[0, 0] = 10, right
    assert middle_threshold(accuracy) == pytest.approx(middle)
    assert accuracy.result().thresholds[0] == pytest.approx(
        0.1 * int(np.argmax(right))
    )  # the metric's own


@pytest.mark.parametrize("honest", [True, False])
def test_the_cases_are_the_worst_the_median_and_the_best(model: PooledModel, honest: bool) -> None:
    test, val = rectangles(), rectangles().select(range(6)) if honest else None
    result = localize(model, test, val, **ALONE)
    maps, boxes, sizes, _ = looked_at(model, test)
    assert result.threshold is not None and result.ious is not None
    ious = [
        BoxAccuracy(version=1).overlaps(m, b, s)[round(result.threshold / 0.01)]
        for m, b, s in zip(maps, boxes, sizes, strict=True)
    ]
    assert result.ious == pytest.approx(ious, abs=1e-3) and result.positions == list(range(15))
    groups = {
        group: [case for case in result.cases if case.group == group]
        for group in ("worst", "median", "best")
    }
    assert [len(cases) for cases in groups.values()] == [2, 2, 2]
    assert sorted(c.iou for c in groups["worst"]) == pytest.approx(sorted(ious)[:2], abs=1e-3)
    assert sorted(c.iou for c in groups["best"]) == pytest.approx(sorted(ious)[-2:], abs=1e-3)
    for case in result.cases:
        w, h = sizes[case.position]
        (cells,) = boxes_at(maps[case.position], result.threshold).tolist()
        assert case.box == pytest.approx(
            [cells[0] * w / 64, cells[1] * h / 64, cells[2] * w / 64, cells[3] * h / 64]
        )
        assert case.truth.tolist() == [
            list(rectangle(case.position).corners)
        ] and case.file.endswith(f"{case.position}.png")
        assert case.map == pytest.approx(maps[case.position], abs=1e-5)


def test_the_batch_does_not_matter(model: PooledModel) -> None:
    """Up to one image: with other rounding, a contour may be a pixel larger and the box then right or wrong."""
    test = rectangles()
    one, *others = (
        localize(model, test, test, loading=Loading(n), **OPTIONS).to_json() for n in (1, 7, 64)
    )
    for other in others:
        for key in ("chosen", "oracle"):
            for name in ("max_box_acc_v2", "max_box_acc", "centred_box"):
                assert one[key][name]["per_iou"] == pytest.approx(
                    other[key][name]["per_iou"], abs=100 / 15 + 0.01
                )
        assert one["pxap"] == pytest.approx(other["pxap"], abs=0.01)


def test_what_cannot_be_judged_is_named_and_the_rest_is(model: PooledModel) -> None:
    strange = {3: (Box(200, 10, 220, 30),), 4: (), 5: (Box(-5, 2, 20, 60),)}
    test = rectangles(boxes=strange, bad=(1,), wrong_masks=(2,))
    report = localize(model, test, **OPTIONS).to_json()
    messages = report["unreadable"]
    assert len(messages) == 3 and "1.png" in messages[0]
    assert all(value in messages[1] for value in ("rectangles/2.png", "51 x 40", "50 x 40"))
    assert all(
        value in messages[2] for value in ("rectangles/3.png", "200, 10, 220, 30", "51 x 40")
    )
    assert report["images"] == 14 and report["images_with_boxes"] == 12  # not 1, 3 and 4
    assert report["images_with_masks"] == 13  # not 1 and 2
    without = localize(model, rectangles(boxes=strange, masks=False), **OPTIONS).to_json()
    assert (
        without["without_truth"] == 1 and without["pxap"] is None and without["images"] == 13
    )  # nor 3


def test_classes_that_the_model_does_not_know(model: PooledModel) -> None:
    report = localize(model, rectangles(labels="abz"), **OPTIONS).to_json()
    assert report["unknown_class"] == 5 and report["images"] == 10
    with pytest.raises(ValueError, match=r"rectangles.*a, b, c"):
        localize(model, rectangles(labels="xyz"), **OPTIONS)
    with pytest.raises(ValueError, match="rectangles"):
        localize(model, rectangles(boxes=dict.fromkeys(range(15), ())).select([]), **OPTIONS)


def test_features_that_are_not_finite(model: PooledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = model.backbone.forward

    def spoiled(images: torch.Tensor) -> Any:
        features = plain(images)
        if len(images) > 1:
            features.tokens[1] = torch.nan
        return features

    monkeypatch.setattr(model.backbone, "forward", spoiled)
    report = localize(model, rectangles(6), **OPTIONS).to_json()
    (message,) = report["unreadable"]
    assert "rectangles/1.png" in message and "NaN" in message and report["images"] == 5


def test_masks_alone_give_pxap_alone(model: PooledModel) -> None:
    result = localize(model, rectangles(6, boxes=dict.fromkeys(range(6), ())), **OPTIONS)
    assert (
        result.to_json()["images_with_boxes"] == 0
        and result.to_json()["oracle"] is None
        and result.threshold is None
    )
    assert 0 < result.to_json()["pxap"] < 100 and not result.curves and not result.cases


def test_a_pool_with_a_map_of_its_own(model: PooledModel) -> None:
    simpool = localizer("simpool")
    report = localize(simpool, rectangles(6), **OPTIONS).to_json()
    assert report["kind"] == "pool"  # one map for all classes: the predicted one's is the same
    assert (
        report["oracle"]["predicted_class"]["score"] == report["oracle"]["max_box_acc_v2"]["score"]
    )
    assert localize(simpool, rectangles(6), kind="cam", **OPTIONS).to_json()["kind"] == "cam"
    with pytest.raises(ValueError, match="'gap'"):
        localize(model, rectangles(6), kind="pool", **OPTIONS)
    headless = localizer("simpool", 0)
    report = localize(headless, rectangles(6, labels="xyz"), **OPTIONS).to_json()
    assert (
        "accuracy" not in report
        and "top1" not in report["oracle"]["max_box_acc_v2"]
        and report["images"] == 6
    )


def test_contours_of_an_image_are_followed_once_for_each_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions: list[int] = []

    def counted(levels: object, truth: object, version: int) -> object:
        versions.append(version)
        return contours.contour_overlaps(levels, truth, version)  # type: ignore[arg-type]

    monkeypatch.setattr(box_accuracy, "contour_overlaps", counted)
    model, dataset = localizer(), rectangles(6)
    labels = torch.from_numpy(dataset.labels)
    predictor = MapPredictor(model, "cam", 64, batch=6)
    metrics, plain = LocalizationMetrics(thorough=False), BoxAccuracy(0.01, 1)
    metrics.largest_contour.deltas = plain.deltas = (0.1,)  # random weights find little
    metrics.run(predictor, dataset, labels, Loading())
    assert sorted(versions) == [1] * 6 + [2] * 6
    with torch.no_grad():
        images = torch.stack([predictor.transform()(dataset.image(i))[0] for i in range(6)])
        maps = predictor.scores(predictor.predict(images).maps(labels))
    sizes = [dataset.image(i).size for i in range(6)]
    plain.add(maps, [[box[:4] for box in dataset[i].boxes] for i in range(6)], sizes)
    counted = metrics.largest_contour
    assert counted.count == 6 and (counted.right[0] == plain.right[0]).all() and plain.right.any()
