"""The SimPool authors' checkpoints load under their own names; what does not fit is listed and the
model stays.
"""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import cenote
from cenote.models import PooledModel, create_model, load_released
from tests.models.bomb import MARK, Bomb
from tests.toy_models import assert_same_model, images, narrow_resnet


def released_network(model: PooledModel, pool: str, head: str) -> dict[str, Tensor]:
    """The model's tensors under the names of the authors' networks."""
    renamed = {}
    for name, value in model.state_dict().items():
        name = name.replace("pool.norm.", "pool.norm_patches.")
        for ours, theirs in {
            "backbone.model.": "",
            "pool.": f"{pool}.",
            "head.linear.": head,
            "after.": "norm.",
        }.items():
            if name.startswith(ours):
                name = theirs + name.removeprefix(ours)
                break
        renamed[name] = value.clone()
    return renamed


def test_a_released_dino_vit_loads(tmp_path: Path) -> None:
    """As DINO writes it: teacher and student, two prefixes, a projection head, arguments and NumPy
    learning rates.
    """
    import argparse

    import numpy as np

    def vit() -> PooledModel:
        options = {"gamma": 1.25, "floor": "batch"}
        return create_model("test_vit", "simpool", 0, norm="after", pool_options=options).eval()

    source, model = vit(), vit()
    network = {
        f"module.backbone.{n}": v for n, v in released_network(source, "simpool", "-").items()
    }
    network["module.backbone.simpool.beta"] = torch.tensor([0.5])
    network["module.head.mlp.0.weight"] = torch.zeros(8, 64)
    other = {name: torch.zeros_like(value) for name, value in network.items()}
    path = tmp_path / "checkpoint.pth"
    besides = {
        "epoch": 100,
        "args": argparse.Namespace(lr=1.0),
        "optimizer": {"lr": np.float64(0.1)},
    }
    torch.save({"student": other, "teacher": network, **besides}, path)
    assert "module.head.mlp.0.weight" in load_released(model, path)
    source.pool.beta = nn.Parameter(torch.tensor([0.5]))  # type: ignore[union-attr, assignment]
    with torch.no_grad():
        torch.testing.assert_close(model(images(160)), source(images(160)))
    expected = source.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    model.save(tmp_path / "m")
    assert_same_model(model, cenote.load(tmp_path / "m"), 160)


def test_a_released_dino_convnext_loads(tmp_path: Path) -> None:
    """Under the layers' first names, which timm's own reader of those files confirms."""
    import re

    from timm.models.convnext import checkpoint_filter_fn

    def convnext() -> PooledModel:
        model = create_model("test_convnext", "simpool", 0, norm="after", conv_mlp=False).eval()
        for value in model.state_dict().values():
            value.add_(torch.rand_like(value) * 0.01)
        return model

    source, model = convnext(), convnext()
    network = {}
    for name, value in released_network(source, "simpool", "-").items():
        name = re.sub(r"^stem\.", "downsample_layers.0.", name)
        name = re.sub(r"^stages\.(\d)\.downsample\.", r"downsample_layers.\1.", name)
        name = re.sub(r"^stages\.(\d)\.blocks\.", r"stages.\1.", name)
        name = name.replace(".conv_dw.", ".dwconv.").replace(".mlp.fc", ".pwconv")
        network[name] = value
    backbone = {n: v for n, v in network.items() if n.startswith(("downsample_layers.", "stages."))}
    own = source.backbone.model.state_dict()
    assert set(checkpoint_filter_fn(dict(backbone), source.backbone.model)) == set(own)
    torch.save(
        {"teacher": {f"module.backbone.{n}": v for n, v in network.items()}}, tmp_path / "c.pth"
    )
    assert load_released(model, tmp_path / "c.pth") == ""
    assert_same_model(source, model)


def test_a_released_supervised_resnet_loads(tmp_path: Path) -> None:
    source, model = (
        narrow_resnet(pool_options={"gamma": 2.0}),
        narrow_resnet(pool_options={"gamma": 2.0}),
    )
    for value in source.state_dict().values():
        if value.is_floating_point():
            value.add_(torch.rand_like(value) * 0.01)
    network = released_network(source, "global_pool.pool", "fc.")
    torch.save({"state_dict": network, "arch": "resnet18", "epoch": 3}, tmp_path / "r.pth.tar")
    assert load_released(model, tmp_path / "r.pth.tar") == ""
    assert_same_model(source, model)
    save_file(network, tmp_path / "r.safetensors")
    assert load_released(narrow_resnet(), tmp_path / "r.safetensors") == ""


def test_a_released_supervised_vit_loads(tmp_path: Path) -> None:
    """Its pool is inside timm's selection of pools: gp.pool."""
    source, model = (create_model("test_vit", "simpool", 5).eval() for _ in range(2))
    torch.save({"state_dict": released_network(source, "gp.pool", "head.")}, tmp_path / "v.pth")
    assert load_released(model, tmp_path / "v.pth") == ""
    assert_same_model(source, model, 160)


@pytest.mark.parametrize(
    ("pool", "head", "place", "wrong"),
    [("simpool", "-", "after", "before"), ("gp.pool", "head.", "before", "after")],
)
def test_a_last_norm_elsewhere_is_refused_and_the_model_stays(
    tmp_path: Path, pool: str, head: str, place: str, wrong: str
) -> None:
    source = create_model("test_vit", "simpool", 0, norm=place)
    model = create_model("test_vit", "simpool", 0, norm=wrong)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.save({"teacher": released_network(source, pool, head)}, tmp_path / "v.pth")
    with pytest.raises(ValueError, match=rf"v\.pth.*norm='{place}'"):
        load_released(model, tmp_path / "v.pth")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_does_not_fit_is_listed_and_the_model_stays(tmp_path: Path) -> None:
    model, path = narrow_resnet(), tmp_path / "r.pth"
    before = {name: value.clone() for name, value in model.state_dict().items()}
    network = released_network(narrow_resnet(), "simpool", "fc.")
    for value in network.values():
        value.add_(1)
    del network["layer4.0.bn2.weight"]
    network["simpool.wq.weight"] = torch.zeros(7, 7)
    torch.save(network, path)
    with pytest.raises(
        ValueError, match=r"backbone\.model\.layer4\.0\.bn2\.weight.*pool\.wq\.weight.*\(7, 7\)"
    ):
        load_released(model, path)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.save({"teacher": {"x": torch.zeros(1)}}, path)
    with pytest.raises(ValueError, match=r"r\.pth"):
        load_released(model, path)
    torch.save({"teacher": network, "args": Bomb()}, path)
    with pytest.raises(ValueError, match=r"r\.pth"):
        load_released(model, path)
    assert not os.path.exists(MARK)
    with pytest.raises(ValueError, match="pool='simpool'"):
        load_released(narrow_resnet("gap"), path)


def test_a_head_of_other_classes_is_left_as_it_is(tmp_path: Path) -> None:
    torch.save(released_network(narrow_resnet(num_classes=7), "simpool", "fc."), tmp_path / "r.pth")
    model = narrow_resnet()
    head = model.head.linear.weight.detach().clone()  # type: ignore[union-attr]
    message = load_released(model, tmp_path / "r.pth")
    assert all(
        name in message
        for name in ("fc.weight", "fc.bias", "head.linear.weight", "head.linear.bias")
    )
    assert torch.equal(model.head.linear.weight, head)  # type: ignore[union-attr]
