"""The SimPool authors' checkpoints load under their own names; what does not fit is listed and the model stays."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import cenote
from cenote.models import PooledModel, create_model, load_released
from tests.models.bomb import MARK, Bomb
from tests.models.small import assert_same, images, small


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
    """As DINO writes it: teacher and student, two prefixes, a projection head, arguments and NumPy learning rates."""
    import argparse

    import numpy as np

    def vit() -> PooledModel:
        options = {"gamma": 1.25, "floor": "batch"}
        return create_model("vit_tiny_patch16_224", "simpool", 0, depth=-10, norm="after", pool_options=options).eval()

    source, model = vit(), vit()
    network = {f"module.backbone.{n}": v for n, v in released_network(source, "simpool", "-").items()}
    network["module.backbone.simpool.beta"] = torch.tensor([0.5])
    network["module.head.mlp.0.weight"] = torch.zeros(8, 192)
    other = {name: torch.zeros_like(value) for name, value in network.items()}
    path = tmp_path / "checkpoint.pth"
    besides = {"epoch": 100, "args": argparse.Namespace(lr=1.0), "optimizer": {"lr": np.float64(0.1)}}
    torch.save({"student": other, "teacher": network, **besides}, path)
    left = load_released(model, path)
    assert left == "not in the model: module.head.mlp.0.weight"
    with torch.no_grad():
        source.pool.beta = nn.Parameter(torch.tensor([0.5]))  # type: ignore[union-attr, assignment]
        assert torch.equal(model(images(224)), source(images(224)))
    model.save(tmp_path / "m")
    with torch.no_grad():
        assert torch.equal(cenote.load(tmp_path / "m")(images(224)), source(images(224)))


def test_a_released_dino_convnext_loads(tmp_path: Path) -> None:
    """Under the layers' first names, which timm's own reader of those files confirms."""
    import re

    from timm.models.convnext import checkpoint_filter_fn

    def convnext() -> PooledModel:
        model = create_model("convnext_atto", "simpool", 0, norm="after", depths=(1, 1, 2, 1), conv_mlp=False).eval()
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
    torch.save({"teacher": {f"module.backbone.{n}": v for n, v in network.items()}}, tmp_path / "c.pth")
    assert load_released(model, tmp_path / "c.pth") == ""
    assert_same(source, model)


def test_a_released_supervised_resnet_loads(tmp_path: Path) -> None:
    source, model = small(pool_options={"gamma": 2.0}), small(pool_options={"gamma": 2.0})
    for value in source.state_dict().values():
        if value.is_floating_point():
            value.add_(torch.rand_like(value) * 0.01)
    network = released_network(source, "global_pool.pool", "fc.")
    torch.save({"state_dict": network, "arch": "resnet18", "epoch": 3}, tmp_path / "r.pth.tar")
    assert load_released(model, tmp_path / "r.pth.tar") == ""
    assert_same(source, model)
    save_file(network, tmp_path / "r.safetensors")
    assert load_released(small(), tmp_path / "r.safetensors") == ""


def test_what_does_not_fit_is_listed_and_the_model_stays(tmp_path: Path) -> None:
    model, path = small(), tmp_path / "r.pth"
    before = {name: value.clone() for name, value in model.state_dict().items()}
    network = released_network(small(), "simpool", "fc.")
    for value in network.values():
        value.add_(1)
    del network["layer4.0.bn2.weight"]
    network["simpool.wq.weight"] = torch.zeros(7, 7)
    torch.save(network, path)
    with pytest.raises(
        ValueError, match=r"no tensor for backbone.model.layer4.0.bn2.weight, pool.wq.weight is \(7, 7\)"
    ):
        load_released(model, path)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.save({"teacher": {"x": torch.zeros(1)}}, path)
    with pytest.raises(ValueError, match="no tensor of this backbone"):
        load_released(model, path)
    torch.save({"teacher": network, "args": Bomb()}, path)
    with pytest.raises(ValueError, match="code in it is not run"):
        load_released(model, path)
    assert not os.path.exists(MARK)
    with pytest.raises(ValueError, match="needs a model with pool='simpool'"):
        load_released(small("gap"), path)


def test_a_head_of_other_classes_is_left_as_it_is(tmp_path: Path) -> None:
    torch.save(released_network(small(num_classes=7), "simpool", "fc."), tmp_path / "r.pth")
    assert load_released(small(), tmp_path / "r.pth") == (
        "not in the model: fc.weight, fc.bias; not in the file: head.linear.weight, head.linear.bias"
    )
