"""Weakly supervised training: finer maps are trained and saved, and the epoch that is kept is the best by its maps."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.data import BadImage, Dataset
from cenote.data.transforms import Cutout
from cenote.metrics import max_box_acc, pixel_average_precision, prepare_maps, resize_mask
from cenote.models import PooledModel, create_model, load
from cenote.train.choices import Choices
from cenote.train.engine import Engine
from cenote.train.fit import fit
from cenote.train.located import Located
from cenote.train.recipe_choices import choices_of
from cenote.train.recipes import load_recipe, parse_recipe
from cenote.train.run_choices import choices_from_run
from cenote.train.settings import Settings
from cenote.train.supervised import Supervised

from .marked import Marked, marked

CPU = torch.device("cpu")
RECIPE = "model: {backbone: lite0, pool: gap, stride: 2}\ntrain: {epochs: 1}\ndata: cub\npaper: {}\n"


def quiet(sentence: str) -> None: ...


def small(pool: str = "gap", **options: Any) -> PooledModel:
    torch.manual_seed(0)
    narrow: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (4, 8, 8, 8), "stride": 4}
    model = create_model("resnet18", pool, 3, **narrow, **options)
    model.backbone.preprocessing = dataclasses.replace(model.backbone.preprocessing, size=32)
    return model.eval()


def slow_maps(model: PooledModel, dataset: Dataset) -> list[np.ndarray]:
    """One image at a time, squeezed, not cropped; the pool's map, or the CAM of the true class."""
    found = []
    for i, label in enumerate(dataset.labels.tolist()):
        image = model.backbone.preprocessing.whole()(dataset.image(i))[None]
        own = model.pool is not None and not model.pool.no_attention
        with torch.no_grad():
            maps = model.attend(image, "pool") if own else model.attend(image, "cam", classes=[label])
        found.append(prepare_maps(maps[0].mean(0), 32).numpy())
    return found


@pytest.mark.parametrize("pool", ["gap", "max", "simpool"])
def test_localization_on_validation_is_that_of_the_metrics(pool: str) -> None:
    model, val = small(pool), marked(40).split("val")
    maps = slow_maps(model, val)
    boxes, sizes = [[box[:4] for box in record.boxes] for record in val], [val.image(i).size for i in range(len(val))]
    expected = max_box_acc(maps, boxes, sizes).score
    assert 0 < expected < 1
    assert Located(val, Settings(select="boxes", batch=3), CPU)(model) == pytest.approx(100 * expected)
    masks = [resize_mask(val.mask(i), 32) for i in range(len(val))]
    expected = pixel_average_precision(maps, masks)
    assert Located(val, Settings(select="pixels", batch=3), CPU)(model) == pytest.approx(100 * expected)


def test_images_without_boxes_are_left_out_and_none_at_all_is_a_sentence(tmp_path: Path) -> None:
    val = marked(40, unboxed=(3, 11)).split("val")
    assert len(val) == 10 and Located(val, Settings(select="boxes"), CPU).counted(small()).count == 8
    for by, data in {"boxes": marked(24, unboxed=range(24)), "pixels": without_masks()}.items():
        choices = Choices("resnet10t", "gap", scratch=True, size=32, settings={"select": by, "epochs": 1})
        with pytest.raises(
            ValueError, match=rf"select={by} .* the 6 validation images of marked have no (boxes|masks)"
        ):
            fit(data, tmp_path / by, choices, say=quiet)


def test_a_wrong_box_or_mask_is_left_out_and_named_once(tmp_path: Path) -> None:
    """One that nobody can find would count as missed; a broken one ended the run after its first epoch."""
    val = marked(40).split("val")
    boxes, masks, images = (marked(40).split("val") for _ in range(3))
    ends, corners, *rest = boxes.columns["boxes"]
    moved = corners.copy()
    moved[7] += 400
    boxes.columns = {**boxes.columns, "boxes": (ends, moved, *rest)}
    masks.pixels = Broken(3, 11)
    images.pixels = Broken(3, 11, images=True)
    model = small()
    for by, data, bad in (("boxes", boxes, 1), ("pixels", masks, 2), ("boxes", images, 2)):
        told: list[str] = []
        located = Located(data, Settings(select=by, batch=1), CPU, told.append)
        assert located.counted(model).count == 10 - bad and located(model) == located(model)
        assert len(told) == bad and told == [f"left out of {by}: {sentence}" for sentence in located.bad]
    left = [i for i in range(10) if i != 1]
    expected = Located(val.select(left), Settings(select="boxes"), CPU)(model)
    assert Located(boxes, Settings(select="boxes"), CPU)(model) == pytest.approx(expected)

    data = marked(24)
    data.pixels = Broken(3, 7)
    told = []
    choices = Choices("resnet10t", "gap", scratch=True, size=32, settings={"select": "pixels", "epochs": 2, "batch": 8})
    fit(data, tmp_path, choices, say=told.append)
    lines = [line for line in told if line.startswith("left out")]
    assert lines == [
        "left out of pixels: 3.mask.png: damaged",
        "left out of pixels: marked/7.png: its mask has 9 x 9 pixels, the image 48 x 32",
    ]
    data.pixels = Broken(*range(24))
    with pytest.raises(ValueError, match=r"select=pixels: no image of marked could be judged: marked/7.png: its mask"):
        Located(data.split("val").select([1]), Settings(select="pixels"), CPU)(model)


class Broken(Marked):
    """The first mask of these is damaged, the others are of another size; or the images are no images."""

    def __init__(self, *rows: int, images: bool = False) -> None:
        super().__init__(rows[:1])
        self.others, self.bad_images = rows[1:], rows if images else ()

    def image(self, row: int) -> Image.Image:
        if row in self.bad_images:
            raise BadImage(f"{row}.png", "damaged")
        return super().image(row)

    def mask(self, row: int) -> np.ndarray:
        return np.zeros((9, 9), np.uint8) if row in self.others else super().mask(row)


def without_masks() -> Dataset:
    data = marked(24)
    data.pixels, plain = None, data.pixels
    data.image = plain.image  # type: ignore[method-assign, union-attr]
    return data


def test_the_epoch_that_is_kept_is_the_best_by_its_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([3.0, 9.0, 5.0])
    monkeypatch.setattr(Located, "__call__", lambda self, model: next(found))
    data, settings = marked(24), Settings(epochs=3, batch=6, select="boxes")
    model = small()
    transform = model.backbone.preprocessing.whole()
    task = Supervised(model, data.split("train"), data.split("val"), settings, transform, transform)
    Engine(task, settings, tmp_path, quiet).run()
    (contender,) = task.contenders
    assert (contender.best_epoch, contender.best_score) == (1, 9.0)
    lines = [json.loads(line)["results"]["model"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["boxes"] for line in lines] == [3.0, 9.0, 5.0] == [line["score"] for line in lines]
    assert all(0 <= line["accuracy"] <= 100 for line in lines)


def test_fit_reports_both_and_tests_with_the_thresholds_of_val(tmp_path: Path) -> None:
    settings = {"select": "boxes", "epochs": 2, "batch": 8, "lr": 1e-3}
    choices = Choices("resnet10t", "gap", scratch=True, size=32, stride=4, cutout=0.3, settings=settings)
    data = marked(40, test=True)
    report = fit(data, tmp_path, choices, say=quiet)
    model = load(tmp_path)
    assert model.config["stride"] == 4 and model.features(torch.zeros(1, 3, 32, 32)).grid == (4, 4)
    val, test = (Located(data.split(n), Settings(select="boxes"), CPU).counted(model) for n in ("val", "test"))
    assert report["val"]["boxes"] == pytest.approx(100 * val.result().score)
    assert report["test"]["thresholds"] == pytest.approx(val.result().thresholds)
    assert report["test"]["boxes"] == pytest.approx(100 * test.at(val.result().thresholds).score)
    assert report["test"]["boxes_oracle"] == pytest.approx(100 * test.result().score)
    assert {"accuracy", "top5"} <= report["val"].keys() & report["test"].keys() and report["test"]["images"] == 10
    for change in ({"stride": 2}, {"cutout": 0.0}, {"settings": {**settings, "select": "accuracy"}}):
        (name, value), *_ = change.items()
        told = "select" if name == "settings" else name
        with pytest.raises(ValueError, match=f"must keep its settings: {told} was"):
            fit(data, tmp_path, dataclasses.replace(choices, **{name: value}), resume=True, say=quiet)


def test_a_pyramid_is_trained_and_saved(tmp_path: Path) -> None:
    choices = Choices("resnet10t", "max", scratch=True, size=32, fpn="P3", settings={"epochs": 1, "batch": 8})
    fit(marked(16), tmp_path, choices, say=quiet)
    model = load(tmp_path)
    assert model.config["fpn"] == "P3" and model.features(torch.zeros(1, 3, 32, 32)).grid == (4, 4)


def test_frozen_features_may_be_finer(tmp_path: Path) -> None:
    options: dict[str, Any] = {"size": 64, "rates": (1e-2,), "settings": {"epochs": 2, "batch": 8}}
    choices = Choices("lite0", "gap", freeze=True, stride=2, **options)
    fit(marked(16), tmp_path / "frozen", choices, say=quiet)
    model = load(tmp_path / "frozen")
    assert model.config["stride"] == 2 and model.features(torch.zeros(1, 3, 64, 64)).grid == (4, 4)

    again = choices_from_run(tmp_path / "frozen", settings={"epochs": 1, "batch": 8})
    begun = again.model(5)
    assert begun.head is not None and begun.head.classes == 5 and begun.backbone.preprocessing.size == 64
    for name, value in begun.state_dict().items():
        if not name.startswith("head."):
            assert torch.equal(value, model.state_dict()[name]), name
    report = fit(marked(16), tmp_path / "all", again, say=quiet)
    assert (report["pool"], report["backbone"]) == ("gap", "lite0")
    moved = load(tmp_path / "all").state_dict()
    assert any(not torch.equal(moved[n], v) for n, v in model.state_dict().items() if n.startswith("backbone."))
    recipe = parse_recipe(RECIPE, "mine")
    by_recipe = choices_of(recipe, weights=tmp_path / "all").model(3)
    assert all(torch.equal(moved[n], v) for n, v in by_recipe.state_dict().items() if not n.startswith("head."))
    with pytest.raises(ValueError, match=r"holds another model than the one that is asked for: pool\."):
        choices_from_run(tmp_path / "frozen", pool="simpool").model(3)
    with pytest.raises(ValueError, match="is a saved model, from which all weights are trained on"):
        choices_from_run(tmp_path / "frozen", freeze=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"freeze": True, "fpn": "P3"}, "a feature pyramid must be trained"),
        ({"freeze": True, "cutout": 0.3}, "no --cutout with --freeze"),
        ({"freeze": True, "settings": {"select": "boxes"}}, "an epoch is chosen by accuracy"),
        ({"cutout": 1.5}, "cutout is a share of the image's side from 0 to 1, got 1.5"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Choices(**options)


def test_a_word_that_no_setting_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="select is one of accuracy, boxes, pixels, got 'boxs'"):
        Choices(settings={"select": "boxs"}).training()


def test_cutout_hides_a_part_of_the_picture() -> None:
    model = small()
    white = Image.new("RGB", (40, 40), "white")
    for cutout, hidden in ((0.0, False), (1.0, True)):
        transform = Choices(cutout=cutout).augmentation(model)
        torch.manual_seed(3)
        shown = torch.stack([transform(white) for _ in range(20)])
        assert bool(shown.min() < 0) == hidden  # black, where white is above 2


def test_a_recipe_s_finer_map_and_cutout_may_be_changed() -> None:
    recipe = load_recipe("localization/cub-gap")
    own = choices_of(recipe)
    assert (own.stride, own.fpn, own.cutout, own.training().select) == (4, None, 0.25, "boxes")
    twin = choices_of(recipe.scaled_down(), stride=1, fpn="P3", cutout=0.0)
    model = twin.model(4)
    assert model.config["fpn"] == "P3" and model.config["stride"] == 1
    assert not any(isinstance(step, Cutout) for step in twin.augmentation(model).transforms)
    assert any(isinstance(step, Cutout) for step in choices_of(recipe.scaled_down()).augmentation(model).transforms)
    with pytest.raises(ValueError, match="has an augmentation of its own, without Cutout"):
        choices_of(load_recipe("simpool/vit-small-supervised"), cutout=0.2)


SCRIPT = """
import sys
import torch
from cenote.train.distributed import processes, rank
from cenote.train.located import Located
from cenote.train.settings import Settings
from tests.train.marked import marked
from tests.train.test_weak import small

with processes() as device:
    val = marked(28).split("val")  # seven images: the processes' shares differ
    found = [Located(val, Settings(select=by, batch=4), device)(small()) for by in ("boxes", "pixels")]
    if rank() == 0:
        print("FOUND", *found)
"""


def test_two_processes_count_every_image_once() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    command = [*torchrun, sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]
    together = [float(value) for value in done.stdout.split("FOUND")[1].split()[:2]]
    val = marked(28).split("val")
    alone = [Located(val, Settings(select=by, batch=4), CPU)(small()) for by in ("boxes", "pixels")]
    assert together == pytest.approx(alone)
