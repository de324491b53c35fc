"""Boxes of photographs follow the metrics' own rules and never leave the image; a kept threshold is the model's own.

Oracles: `boxes_at` for the largest contour, flood filling for several objects.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import Record, pack
from cenote.evaluate.wsol import localize
from cenote.metrics import boxes_at, prepare_maps
from cenote.models import save_model
from cenote.predict.boxes import (
    BoxPrediction,
    object_masks,
    objects_at,
    predict_boxes,
    to_pixels,
)
from cenote.predict.input_size import InputSize
from cenote.predict.maps import MapPredictor
from cenote.predict.photos import open_photo
from cenote.predict.thresholds import DEFAULTS, FILE, read_threshold, threshold_for
from tests.metrics.contours import CLOCKWISE, around, floods
from tests.synthetic import rectangles
from tests.toy_models import localizer


def maps(count: int = 40) -> list[np.ndarray]:
    """From a few cells, as a network gives them, and from many, which make many components and holes."""
    draw = np.random.default_rng(0)
    return [
        prepare_maps(draw.random((n, n + 1), np.float32), (24, 30))
        for n in draw.integers(2, 14, count)
    ]


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.55, 0.9])
def test_one_object_is_the_largest_contour(threshold: float) -> None:
    for score_map in maps():
        boxes, objects = objects_at(score_map, threshold)
        cut = np.minimum(boxes, [30, 24, 29, 23])  # the metric's own boxes end at the last pixel
        assert cut.tolist() == boxes_at(score_map, threshold).tolist()
        ((x0, y0, x1, y1),) = boxes
        ys, xs = np.nonzero(objects)
        assert (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) == (x0, y0, x1, y1) and set(
            np.unique(objects)
        ) <= {0, 1}


@pytest.mark.parametrize("threshold", [0.2, 0.55, 0.9])
def test_several_objects_are_the_large_components(threshold: float) -> None:
    for score_map in maps():
        boxes, objects = objects_at(score_map, threshold, several=True)
        levels = (score_map * 255).astype(np.uint8)
        components = floods(levels > int(threshold * 255), CLOCKWISE)
        largest = max(len(c) for c in components)
        kept = sorted((c for c in components if 10 * len(c) >= largest), key=lambda c: -len(c))
        assert boxes.tolist() == [list(around(c)) for c in kept]
        for number, component in enumerate(kept, 1):
            assert {
                (int(y), int(x)) for y, x in zip(*np.nonzero(objects == number), strict=True)
            } == component


def test_a_constant_map_has_no_object() -> None:
    for several in (False, True):
        boxes, objects = objects_at(np.zeros((6, 6), np.float32), 0.3, several)
        assert boxes.shape == (0, 4) and not objects.any()


def test_boxes_stay_in_the_image() -> None:
    cells = np.array([[0, 0, 224, 224], [223, 223, 224, 224], [0, 0, 1, 1], [56, 112, 112, 168]])
    assert to_pixels(cells, (224, 224), (448, 112)).tolist() == [
        [0, 0, 448, 112], [446, 111, 448, 112], [0, 0, 2, 1], [112, 56, 224, 84],
    ]  # fmt: skip
    assert to_pixels(cells, (224, 224), (1, 2)).tolist()[1] == [0, 1, 1, 2]  # never empty


@pytest.mark.parametrize("several", [False, True])
def test_photographs(several: bool) -> None:
    model = localizer()
    dataset = rectangles(7, bad=(2,))
    found = list(predict_boxes(MapPredictor(model, "cam", 64, batch=3), dataset, 0.4, several))
    bad = [one for one in found if not isinstance(one, BoxPrediction)]
    good = [one for one in found if isinstance(one, BoxPrediction)]
    assert len(bad) == 1 and "2.png" in bad[0].message
    assert sorted(one.position for one in good) == [0, 1, 3, 4, 5, 6]
    for one in good:
        assert one.size == dataset.image(one.position).size
        assert (one.boxes >= 0).all() and (one.boxes[:, 2:] <= one.size).all()
        assert (one.scores > 0).all() and (one.scores <= one.probability).all()
        for (x0, y0, x1, y1), mask in zip(one.boxes, object_masks(one), strict=True):
            ys, xs = np.nonzero(mask)
            assert mask.shape == one.size[::-1]
            assert (
                np.abs(
                    np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) - (x0, y0, x1, y1)
                ).max()
                <= 1
            )
    with pytest.raises(ValueError, match=r"threshold.*\b1\.5\b"):
        threshold_for(model, Path(), 1.5)


def test_boxes_of_a_large_jpeg_are_in_its_pixels(tmp_path: Path) -> None:
    """Decoded at a quarter of its size, and upright: the boxes are those of the whole picture."""
    pixels = np.full((901, 1200, 3), 30, np.uint8)
    pixels[100:500, 700:1100] = 220
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=exif)
    dataset = pack([Record("a.jpg")], tmp_path, "large")
    model = localizer()
    (whole,) = predict_boxes(MapPredictor(model, "cam", 64), dataset, 0.4)
    model.backbone.preprocessing = replace(model.backbone.preprocessing, scaled_decoding=True)
    predictor = MapPredictor(model, "cam", 64)
    assert predictor.transform().min_side == 128
    (scaled,) = predict_boxes(predictor, dataset, 0.4)
    assert isinstance(whole, BoxPrediction) and isinstance(scaled, BoxPrediction)
    assert scaled.size == whole.size == (901, 1200)
    assert scaled.boxes.max() > 300  # a quarter of the long side
    assert np.abs(scaled.boxes - whole.boxes).max() < 60  # less than a cell of the map
    photo = open_photo(tmp_path / "a.jpg", "a", model.backbone.preprocessing, InputSize((4, 4), 64))
    assert photo.size == (901, 1200) and max(photo.picture.size) <= 1024


def test_a_kept_threshold(tmp_path: Path) -> None:
    model = localizer()
    save_model(model, tmp_path)
    assert read_threshold(tmp_path) is None
    assert threshold_for(model, tmp_path, None)[0].kind == "object"
    assert threshold_for(model, tmp_path, None, "cam")[0].value == DEFAULTS["cam"]
    result = localize(model, rectangles(), rectangles(5), resamples=0, cases=0)
    result.calibration("rectangles", "val").save(tmp_path)
    kept = read_threshold(tmp_path)
    assert (
        kept is not None
        and kept.value == pytest.approx(result.threshold)
        and (kept.kind, kept.size) == ("cam", 64)
    )
    assert "5" in kept.source and "rectangles" in kept.source and "val" in kept.source
    assert (
        threshold_for(model, tmp_path, None)[0]
        == threshold_for(model, tmp_path, None, "cam", 64)[0]
        == kept
    )
    given, predictor = threshold_for(model, tmp_path, 0.7)  # of the calibrated maps
    assert given[:3] == (0.7, "cam", 64) and (predictor.kind, predictor.size) == ("cam", 64)
    other, _ = threshold_for(model, tmp_path, None, "cam", 96)
    assert other.value == DEFAULTS["cam"] and other.size == 96 and "64" in other.source
    save_model(localizer("max"), tmp_path)
    with pytest.raises(ValueError, match=r"localization\.json.*--calibrate"):
        read_threshold(tmp_path)
    (tmp_path / FILE).write_text('{"threshold": "high"}')
    with pytest.raises(ValueError, match=r"localization\.json.*'high'"):
        read_threshold(tmp_path)
