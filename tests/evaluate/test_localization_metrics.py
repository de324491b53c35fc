"""What one pass over the images costs, and that it counts what it must."""

import pytest
import torch

from cenote.evaluate.localization_metrics import LocalizationMetrics
from cenote.metrics import BoxAccuracy, box_accuracy, overlaps
from cenote.predict.maps import MapPredictor
from tests.synthetic import rectangles
from tests.toy_models import localizer


def test_contours_of_an_image_are_followed_once_for_each_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions: list[int] = []

    def counted(levels: object, truth: object, version: int) -> object:
        versions.append(version)
        return overlaps.contour_overlaps(levels, truth, version)  # type: ignore[arg-type]

    monkeypatch.setattr(box_accuracy, "contour_overlaps", counted)
    model, dataset = localizer(), rectangles(6)
    labels = torch.from_numpy(dataset.labels)
    predictor = MapPredictor(model, "cam", 64, batch=6)
    metrics, plain = LocalizationMetrics(0.01, thorough=False), BoxAccuracy(0.01, 1)
    metrics.largest_contour.deltas = plain.deltas = (0.1,)  # random weights find little
    metrics.run(predictor, dataset, labels)
    assert sorted(versions) == [1] * 6 + [2] * 6
    with torch.no_grad():
        images = torch.stack([predictor.transform()(dataset.image(i))[0] for i in range(6)])
        maps = predictor.scores(predictor.predict(images).maps(labels))
    sizes = [dataset.image(i).size for i in range(6)]
    plain.add(maps, [[box[:4] for box in dataset[i].boxes] for i in range(6)], sizes)
    counted = metrics.largest_contour
    assert counted.count == 6 and (counted.right[0] == plain.right[0]).all() and plain.right.any()
