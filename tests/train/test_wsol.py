"""Training with the methods of weakly supervised localization and with DRLoc, as commands do it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cenote.data import Record, pack
from cenote.data.splits import Splits
from cenote.evaluate.validators import LocalizationValidator
from cenote.models import PooledModel, load
from cenote.models.wsol.ivr import InferiorValueRemoval
from cenote.models.wsol.registry import METHODS, create_method
from cenote.train.config import OptimizationConfig, RunConfig
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.recipes import load_recipe
from cenote.train.wsol import choose_percentile
from tests.synthetic import rectangles, squares
from tests.toy_models import NARROW, localizer
from tests.train.running import stopped_after

SMALL: dict[str, Any] = {
    "backbone": "resnet18",
    "scratch": True,
    "size": 32,
    "epochs": 2,
    "batch": 6,
    "model": NARROW,
}


def small(**options: Any) -> RunConfig:
    return configure("fit", **{**SMALL, **options})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load(folder).state_dict()


@pytest.mark.parametrize(
    "options", [*({"wsol": name} for name in METHODS), {"drloc": 0.5}], ids=str
)
def test_an_interrupted_run_resumes_to_the_same_weights(options: Any, tmp_path: Path) -> None:
    config = small(**options)
    report = fit(squares(), tmp_path / "whole", config, object_map=False)
    with stopped_after(4):
        fit(squares(), tmp_path / "resumed", config, object_map=False)
    fit(squares(), tmp_path / "resumed", config, resume=True, object_map=False)
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "resumed")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())
    model = load(tmp_path / "whole")
    assert report.pool == METHODS[options["wsol"]].pool if "wsol" in options else "simpool"
    assert (model.wsol is not None) == ("wsol" in options) and not hasattr(model, "drloc")


@pytest.mark.parametrize("name", ["has", "adl", "acol", "ki"])
def test_a_method_changes_what_is_learned(name: str, tmp_path: Path) -> None:
    fit(squares(), tmp_path / "plain", small(pool="gap"), object_map=False)
    fit(squares(), tmp_path / "method", small(wsol=name), object_map=False)
    plain, other = weights(tmp_path / "plain"), weights(tmp_path / "method")
    assert not torch.allclose(
        plain["backbone.model.conv1.weight"], other["backbone.model.conv1.weight"]
    )


@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name].changes_images])
def test_frozen_features(name: str, tmp_path: Path) -> None:
    config = configure("fit", freeze=True, wsol=name, size=64, epochs=1, lr=(1e-3, 1e-2))
    report = fit(squares(), tmp_path, config, object_map=False)
    model = load(tmp_path)
    assert report.rates is not None and len(report.rates) == 2
    assert model.wsol is not None and model.wsol.name == name and model.map_kinds()[0] == "cam"


def test_ivr_chooses_the_percentile_of_the_validation_boxes() -> None:
    model, data = localizer(), rectangles(24)
    model.wsol = create_method("ivr", model, {})
    choose_percentile(model, data, OptimizationConfig(batch=8))
    assert isinstance(model.wsol, InferiorValueRemoval)
    validator = LocalizationValidator(data, "boxes")
    chosen, scores = int(model.wsol.percentile), {}
    for percentile in range(0, 100, 10):
        model.wsol.percentile.fill_(percentile)
        scores[percentile] = validator(model)
    assert chosen == max(scores, key=lambda p: scores[p]) and len(set(scores.values())) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wsol": "hass"}, "did you mean 'has'"),
        ({"wsol": "adl", "wsol_options": {"drop": 1}}, "'adl' has no option 'drop'"),
        ({"wsol_options": {"threshold": 0.5}}, "give a method"),
        ({"wsol": "has", "freeze": True, "scratch": None, "backbone": "lite0"}, "no --freeze"),
        ({"wsol": "acol", "pool": "cls"}, "--pool gap"),
        ({"drloc": 0.1, "freeze": True, "scratch": None, "backbone": "lite0"}, "excludes --freeze"),
        ({"drloc": -1.0}, "at least 0"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    given = {k: v for k, v in {**SMALL, "model": {}, **options}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        configure("fit", **given)


def test_several_classes_of_an_image_are_refused(tmp_path: Path) -> None:
    records = [Record(f"{i}.jpg", labels=("a", "b")) for i in range(4)]
    data = pack(records, tmp_path, "made")
    with pytest.raises(ValueError, match="one class for each image"):
        fit(Splits(data, data, None), tmp_path, small(wsol="acol"))


def test_a_run_continues_with_another_method(tmp_path: Path) -> None:
    fit(squares(), tmp_path / "plain", small(pool="gap", epochs=1), object_map=False)
    config = configure("fit", weights=tmp_path / "plain", wsol="acol", epochs=1, batch=6)
    fit(squares(), tmp_path / "acol", config, object_map=False)
    model = load(tmp_path / "acol")
    assert isinstance(model, PooledModel) and model.wsol is not None
    fit(squares(), tmp_path / "on", configure("fit", weights=tmp_path / "acol", epochs=1, batch=6))
    assert load(tmp_path / "on").wsol is not None


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_recipe(name: str) -> None:
    recipe = load_recipe(f"localization/cub-{name}")
    model = configure("fit", recipe).model
    assert (model.wsol, model.pool) == (name, METHODS[name].pool) and recipe.left_out
