"""Weakly supervised training: finer maps are trained and saved, and the best epoch is chosen by its maps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.backbones import create_backbone
from cenote.data import Dataset
from cenote.data.table import BoxTable
from cenote.data.transforms import Cutout
from cenote.evaluate.validators import LocalizationValidator
from cenote.metrics import max_box_acc, pixel_average_precision, prepare_maps, resize_mask
from cenote.models import PooledModel, load
from cenote.train.augment import build_augmentation
from cenote.train.config import OptimizationConfig, RunConfig, WsolConfig
from cenote.train.configure import configure
from cenote.train.engine import Engine
from cenote.train.fit import build_classifier, fit
from cenote.train.recipes import load_recipe, parse_recipe
from cenote.train.tasks.supervised import Supervised
from tests.synthetic import ShapeImages, rectangle, split_rectangles
from tests.toy_models import narrow_resnet

from .small_recipes import scaled_down

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "backbone": "resnet_micro",
    "pool": "gap",
    "scratch": True,
    "size": 32,
}
RECIPE = "model: {backbone: resnet_micro, pool: gap, stride: 2}\ntrain: {epochs: 1}\ndata: cub\npaper: {}\n"


def small(pool: str = "gap", **options: Any) -> PooledModel:
    return narrow_resnet(pool, size=32, stride=4, **options)


def slow_maps(model: PooledModel, dataset: Dataset) -> list[np.ndarray]:
    """One image at a time, squeezed, not cropped; the pool's map, or the CAM of the true class."""
    found = []
    for i, label in enumerate(dataset.labels.tolist()):
        image = model.backbone.preprocessing.whole()(dataset.image(i))[None]
        own = model.pool is not None and not model.pool.no_attention
        with torch.no_grad():
            maps = (
                model.attend(image, "pool") if own else model.attend(image, "cam", classes=[label])
            )
        found.append(prepare_maps(maps[0].mean(0), 32).numpy())
    return found


@pytest.mark.parametrize("pool", ["gap", "max", "simpool"])
def test_localization_on_validation_is_that_of_the_metrics(pool: str) -> None:
    model, val = small(pool), split_rectangles(40).split("val")
    maps = slow_maps(model, val)
    boxes, sizes = (
        [[box[:4] for box in record.boxes] for record in val],
        [val.image(i).size for i in range(len(val))],
    )
    expected = max_box_acc(maps, boxes, sizes).score
    assert 0 < expected < 1
    # In a batch of another size a map may differ by rounding, and so the box of one image at one IoU.
    one_box = 100 / len(val) / 3
    assert LocalizationValidator(val, "boxes", batch=3)(model) == pytest.approx(
        100 * expected, abs=one_box
    )
    masks = [resize_mask(val.mask(i), 32) for i in range(len(val))]
    expected = pixel_average_precision(maps, masks)
    assert LocalizationValidator(val, "pixels", batch=3)(model) == pytest.approx(
        100 * expected, rel=1e-3
    )


def test_images_without_boxes_are_left_out_and_none_at_all_is_an_error(tmp_path: Path) -> None:
    val = split_rectangles(40, unboxed=(3, 11)).split("val")
    assert len(val) == 10 and LocalizationValidator(val, "boxes").evaluate(small()).count == 8
    for by, data in {
        "boxes": split_rectangles(24, unboxed=range(24)),
        "pixels": without_masks(),
    }.items():
        config = configure("fit", **SMALL, select=by, epochs=1)
        with pytest.raises(ValueError, match=rf"\bselect={by}\b.*\b6\b.*\brectangles\b"):
            fit(data, tmp_path / by, config)


def test_a_wrong_box_or_mask_is_left_out_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A box outside of the image would count as missed, and a broken mask would end the run."""
    caplog.set_level("INFO", "cenote")
    val = split_rectangles(40).split("val")
    boxes, masks, images = (split_rectangles(40).split("val") for _ in range(3))
    ends, corners, *rest = boxes.table.boxes
    moved = corners.copy()
    moved[7] += 400
    boxes.table = boxes.table._replace(boxes=BoxTable(ends, moved, *rest))
    masks.pixels = Broken(3, 11)
    images.pixels = Broken(3, 11, images=True)
    model = small()
    for by, data, bad in (("boxes", boxes, 1), ("pixels", masks, 2), ("boxes", images, 2)):
        caplog.clear()
        located = LocalizationValidator(data, by, batch=1)
        assert located.evaluate(model).count == 10 - bad and located(model) == located(model)
        assert len(caplog.messages) == len(located.bad) == bad
        pairs = zip(located.bad, caplog.messages, strict=True)
        assert all(reason in message for reason, message in pairs)
    left = [i for i in range(10) if i != 1]
    expected = LocalizationValidator(val.select(left), "boxes")(model)
    assert LocalizationValidator(boxes, "boxes")(model) == pytest.approx(expected, abs=100 / 9 / 3)

    data = split_rectangles(24)
    data.pixels = Broken(3, 7)
    caplog.clear()
    fit(data, tmp_path, configure("fit", **SMALL, select="pixels", epochs=2, batch=8))
    lines = [line for line in caplog.messages if ".png" in line]
    assert len(lines) == 2 and "3.mask.png" in lines[0]
    assert "rectangles/7.png" in lines[1] and "9 x 9" in lines[1] and "55 x 40" in lines[1]
    data.pixels = Broken(*range(24))
    with pytest.raises(ValueError, match=r"\bselect=pixels\b.*\brectangles/7\.png\b"):
        LocalizationValidator(data.split("val").select([1]), "pixels")(model)


class Broken(ShapeImages):
    """The first of these masks is damaged, the others are of another size; with `images`, the images are damaged."""

    def __init__(self, *rows: int, images: bool = False) -> None:
        super().__init__(rectangle, masks=True, bad=rows if images else (), bad_masks=rows[:1])
        self.others = rows[1:]

    def mask(self, row: int) -> np.ndarray | None:
        return np.zeros((9, 9), np.uint8) if row in self.others else super().mask(row)


def without_masks() -> Dataset:
    data = split_rectangles(24)
    data.pixels, plain = None, data.pixels
    data.image = plain.image  # type: ignore[method-assign, union-attr]
    return data


def test_the_epoch_that_is_kept_is_the_best_by_its_maps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([3.0, 9.0, 5.0])
    monkeypatch.setattr(LocalizationValidator, "__call__", lambda self, model: next(scores))
    data, settings = split_rectangles(24), OptimizationConfig(epochs=3, batch=6, select="boxes")
    model = small()
    transform = model.backbone.preprocessing.whole()
    task = Supervised(model, data.split("train"), data.split("val"), settings, transform)
    Engine(task, settings, tmp_path).run()
    (state,) = task.states
    assert (state.best_epoch, state.best_score) == (1, 9.0)
    lines = [
        json.loads(line)["results"]["model"]
        for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["boxes"] for line in lines] == [3.0, 9.0, 5.0] == [line["score"] for line in lines]
    assert all(0 <= line["accuracy"] <= 100 for line in lines)


def test_fit_reports_both_and_tests_with_the_thresholds_of_val(tmp_path: Path) -> None:
    given = {**SMALL, "stride": 4, "cutout": 0.3, "select": "boxes", "epochs": 2, "batch": 8}
    config = configure("fit", **given)
    data = split_rectangles(40, test=True)
    report = fit(data, tmp_path, config)
    model = load(tmp_path)
    assert model.config["stride"] == 4 and model.features(torch.zeros(1, 3, 32, 32)).grid == (4, 4)
    val, test = (
        LocalizationValidator(data.split(n), "boxes").evaluate(model) for n in ("val", "test")
    )
    # Loaded weights and other batches: rounding may move one box of the ten images, and so which threshold is the best.
    one_box, thresholds = 100 / 10 / 3, report.test["thresholds"]
    assert report.val["boxes"] == pytest.approx(100 * val.result().score, abs=one_box)
    assert 100 * val.at(thresholds).score == pytest.approx(100 * val.result().score, abs=one_box)
    assert report.test["boxes"] == pytest.approx(100 * test.at(thresholds).score, abs=one_box)
    assert report.test["boxes_oracle"] == pytest.approx(100 * test.result().score, abs=one_box)
    assert {"accuracy", "top5"} <= report.val.keys() & report.test.keys() and report.test[
        "images"
    ] == 10
    for name, value in {"stride": 2, "cutout": 0.0, "select": "accuracy"}.items():
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            fit(data, tmp_path, configure("fit", **{**given, name: value}), resume=True)


def test_a_pyramid_is_trained_and_saved(tmp_path: Path) -> None:
    config = configure("fit", **{**SMALL, "pool": "max"}, fpn="P3", epochs=1, batch=8)
    fit(split_rectangles(16), tmp_path, config)
    model = load(tmp_path)
    assert model.config["fpn"] == "P3" and model.features(torch.zeros(1, 3, 32, 32)).grid == (4, 4)


def test_frozen_features_may_be_finer(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    torch.save(create_backbone("resnet_micro").model.state_dict(), weights)
    given = {"backbone": "resnet_micro", "pool": "gap", "size": 64, "batch": 8}
    probe = configure("fit", **given, freeze=True, weights=weights, stride=2, lr=(1e-2,), epochs=2)
    fit(split_rectangles(16), tmp_path / "frozen", probe)
    model = load(tmp_path / "frozen")
    assert model.config["stride"] == 2 and model.features(torch.zeros(1, 3, 64, 64)).grid == (4, 4)

    again = configure("fit", weights=tmp_path / "frozen", epochs=1, batch=8)
    begun = build_classifier(again, 5)
    assert (
        begun.head is not None
        and begun.head.classes == 5
        and begun.backbone.preprocessing.size == 64
    )
    for name, value in begun.state_dict().items():
        if not name.startswith("head."):
            assert torch.equal(value, model.state_dict()[name]), name
    report = fit(split_rectangles(16), tmp_path / "all", again)
    assert (report.pool, report.backbone) == ("gap", "resnet_micro")
    moved = load(tmp_path / "all").state_dict()
    assert any(
        not torch.equal(moved[n], v)
        for n, v in model.state_dict().items()
        if n.startswith("backbone.")
    )
    recipe = parse_recipe(RECIPE, "mine")
    by_recipe = build_classifier(configure("fit", recipe, weights=tmp_path / "all"), 3)
    assert all(
        torch.equal(moved[n], v)
        for n, v in by_recipe.state_dict().items()
        if not n.startswith("head.")
    )
    with pytest.raises(ValueError, match=r"\bfrozen\b.*\bpool\."):
        build_classifier(configure("fit", weights=tmp_path / "frozen", pool="simpool"), 3)
    with pytest.raises(ValueError, match=r"\bfrozen\b.*--freeze"):
        configure("fit", weights=tmp_path / "frozen", freeze=True)


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"freeze": True, "fpn": "P3"}, "--fpn.*--freeze"),
        ({"freeze": True, "cutout": 0.3}, "--cutout.*--freeze"),
        ({"freeze": True, "settings": {"select": "boxes"}}, "--freeze.*accuracy"),
        ({"cutout": 1.5}, r"\bcutout\b.*\b1\.5\b"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        configure("fit", **options)


def test_a_word_that_no_setting_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\bselect\b.*'accuracy', 'boxes' or 'pixels'.*'boxs'"):
        configure("fit", settings={"select": "boxs"})


def test_cutout_hides_a_part_of_the_picture() -> None:
    model = small()
    white = Image.new("RGB", (40, 40), "white")
    for cutout, hidden in ((0.0, False), (1.0, True)):
        transform = build_augmentation(configure("fit", cutout=cutout), model)
        torch.manual_seed(3)
        shown = torch.stack([transform(white) for _ in range(20)])
        assert bool(shown.min() < 0) == hidden  # black, where white is above 2


def test_a_recipe_s_finer_map_and_cutout_may_be_changed() -> None:
    recipe = load_recipe("localization/cub-gap")
    config = configure("fit", recipe)
    assert (config.model.stride, config.model.fpn, config.train.select) == (4, None, "boxes")
    assert isinstance(config.augment, WsolConfig) and config.augment.cutout == 0.25

    def has_cutout(config: RunConfig) -> bool:
        steps = build_augmentation(config, build_classifier(config, 4)).transforms
        return any(isinstance(step, Cutout) for step in steps)

    twin = configure("fit", scaled_down(recipe), stride=1, fpn="P3", cutout=0.0)
    model = build_classifier(twin, 4)
    assert model.config["fpn"] == "P3" and model.config["stride"] == 1
    assert not has_cutout(twin) and has_cutout(configure("fit", scaled_down(recipe)))
    with pytest.raises(ValueError, match=r"simpool/vit-small-supervised.*\bcutout\b"):
        configure("fit", load_recipe("simpool/vit-small-supervised"), cutout=0.2)
