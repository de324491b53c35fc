"""`cenote fit --freeze --layers`: probes of several layers, resumed, reported, and refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from cenote.backbones import create_backbone
from cenote.cli import main
from cenote.models import load
from cenote.predict.feature_cache import FeatureCache
from cenote.train.configure import configure
from cenote.train.fit import fit
from tests.synthetic import squares

from .running import stopped_after


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """A frozen ViT of known random weights."""
    torch.manual_seed(0)
    path = tmp_path / "vit.safetensors"
    save_file(create_backbone("vit_micro").model.state_dict(), path)
    names = {"backbone": "vit_micro", "weights": path, "pool": "cae", "tokens": "summary"}
    return {**names, "freeze": True, "epochs": 3, "batch": 6}


def test_the_report_has_the_attention_to_each_layer(
    options: dict[str, Any], tmp_path: Path
) -> None:
    data, out = squares(), tmp_path / "run"
    report = fit(data, out, configure("fit", layers=(4, 2), **options), object_map=False)
    assert report.layers is not None and list(report.layers) == ["2", "4"]
    model, val = load(out), data.split("val")
    transform = model.backbone.preprocessing.transform()
    with torch.no_grad():
        images = torch.stack([transform(val.image(i)) for i in range(len(val))])
        maps = model.pool_features(model.features(images))[1]  # (B, heads, layers, 2)
    assert maps is not None
    expected = sum(maps[i].mean(0) for i in range(len(val))) / len(val)
    weights = torch.tensor([[row["cls"], row["mean"]] for row in report.layers.values()])
    torch.testing.assert_close(weights, expected, atol=1e-3, rtol=1e-2)  # features in float16
    assert json.loads((out / "results.json").read_text())["layers"] == report.layers
    (store,) = FeatureCache().stores()
    assert store["layout"]["grid"] == [2, 2] and store["made_by"]["layers"] == [2, 4]
    plain = configure("fit", **{**options, "pool": "gap", "tokens": "patches"})
    assert fit(data, tmp_path / "plain", plain, object_map=False).layers is None


def test_attention_over_layers_learns_as_fast_as_the_head(options: dict[str, Any]) -> None:
    summary = {**options, "layers": (2, 4)}
    assert configure("fit", **summary).train.pool_lr_factor == 1
    assert configure("fit", pool_lr_factor=0.5, **summary).train.pool_lr_factor == 0.5
    assert configure("fit", **{**summary, "tokens": "patches"}).train.pool_lr_factor == 0.03


@pytest.mark.parametrize("tokens", ["patches", "summary"])
def test_a_resumed_probe_ends_the_same(
    tokens: str, options: dict[str, Any], tmp_path: Path
) -> None:
    data, changes = squares(), {**options, "tokens": tokens, "layers": (2, 4)}
    config = configure("fit", settings={"checkpoint_minutes": 0.0}, **changes)
    whole = fit(data, tmp_path / "whole", config, object_map=False)
    with stopped_after(9):
        fit(data, tmp_path / "part", config, object_map=False)
    resumed = fit(data, tmp_path / "part", config, resume=True, object_map=False)
    assert (resumed.val, resumed.rates, resumed.layers) == (whole.val, whole.rates, whole.layers)
    one, other = (load(tmp_path / name).state_dict() for name in ("whole", "part"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    fewer = configure("fit", settings={"checkpoint_minutes": 0.0}, **{**changes, "layers": (4,)})
    with pytest.raises(ValueError, match="feature_layers"):
        fit(data, tmp_path / "part", fewer, resume=True, object_map=False)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--layers", "3,thirteen"), "--layers"),
        (("--layers", "0"), "--layers"),
        (("--layers", "3,40"), "got layer 40"),
        (("--tokens", "summary"), "--layers"),
        (("--layers", "3", "--pool", "own"), "for its last layer"),
        (("--layers", "2,3", "--backbone", "lite0"), "--fpn P3"),
    ],
)
def test_mistakes_are_reported_before_images_are_read(
    flags: tuple[str, ...], message: str, options: dict[str, Any], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    command = ["fit", str(tmp_path / "empty"), "-o", str(tmp_path / "run"), "--freeze"]
    if "--backbone" not in flags:
        command += ["--backbone", "vit_micro", "--weights", str(options["weights"])]
    assert main([*command, *flags]) == 2
    assert message in capsys.readouterr().err
