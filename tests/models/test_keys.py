"""Keys are the last block's, heads side by side, without CLS and registers; SimPool's own; or the
feature map.
"""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from cenote.backbones import Backbone
from cenote.models import create_model, replace_pool
from cenote.models.attention_maps import last_keys
from tests.toy_models import NARROW

SMALL: dict[str, Any] = {"depth": 2, "embed_dim": 48, "num_heads": 3, "dynamic_img_size": True}
VITS = {  # CLS; CLS and registers; rotation and registers
    "vit_tiny_patch16_224": SMALL,
    "vit_small_patch14_reg4_dinov2": SMALL,
    "vit_small_patch16_dinov3": SMALL,
}
CNNS: dict[str, dict[str, Any]] = {
    "resnet18": NARROW,
    "test_convnext": {},
    "tf_efficientnet_lite0": {},
}


def make(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    return timm.create_model(name, **options).eval()


def pictures(name: str) -> Tensor:
    side = 14 if "patch14" in name else 16
    return torch.randn(2, 3, 4 * side, 6 * side, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("name", VITS)
def test_the_last_block_s_keys(name: str, removed: bool) -> None:
    model = make(name, **VITS[name])
    backbone = Backbone(model, name)
    if removed:
        backbone.remove_cls()
    seen: list[Tensor] = []
    handle = model.blocks[-1].attn.qkv.register_forward_hook(lambda m, i, out: seen.append(out))
    keys = last_keys(backbone, pictures(name))
    handle.remove()
    projected = seen[0].chunk(3, -1)[1]  # (B, prefix + N, heads d): before any rotation
    assert_close(keys.values, projected[:, backbone.prefix :])
    assert keys.grid == (4, 6) and keys.source == "block" and keys.values.shape == (2, 24, 48)


@torch.no_grad()
@pytest.mark.parametrize("name", CNNS)
def test_the_map_of_a_convolutional_network(name: str) -> None:
    model = make(name, **CNNS[name])
    images = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(1))
    keys = last_keys(Backbone(model, name), images)
    assert_close(keys.values, model.forward_features(images).flatten(2).mT)
    assert keys.source == "map" and keys.grid == (2, 3)


@torch.no_grad()
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18"])
def test_simpool_s_keys_are_s_14(name: str) -> None:
    model = replace_pool(make(name, **(VITS | CNNS)[name]), "simpool").eval()
    nn.init.normal_(model.pool.norm.weight)
    images = pictures(name)
    x = model.features(images).tokens
    normed = (x - x.mean(-1, keepdim=True)) / (
        x.var(-1, keepdim=True, unbiased=False) + 1e-6
    ).sqrt()
    by_hand = torch.einsum(
        "bnd,ed->bne", normed * model.pool.norm.weight + model.pool.norm.bias, model.pool.wk.weight
    )
    keys = last_keys(model, images)
    assert_close(keys.values, by_hand, atol=1e-4, rtol=1e-4)
    assert keys.source == "pool" and last_keys(model, images, "map").source == "map"


@torch.no_grad()
def test_simpool_s_keys_of_embedded_positions() -> None:
    model = create_model("vit_micro", "simpool", pool_options={"local": 8}).eval()
    images = torch.randn(1, 3, 64, 64)
    embedded = model.pool.local(model.features(images).tokens)
    assert_close(last_keys(model, images).values, model.pool.wk(model.pool.norm(embedded)))


@torch.no_grad()
def test_another_pool_leaves_the_block_s_keys() -> None:
    model = replace_pool(make("vit_tiny_patch16_224", **SMALL), "gap", keep_cls=True).eval()
    images = pictures("")
    assert_close(last_keys(model, images).values, last_keys(model.backbone, images).values)
    assert last_keys(model, images).source == "block"


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "source", "values"),
    [
        ("resnet18", "block", "'resnet18'"),
        ("resnet18", "pool", "'block', 'map'"),
        ("resnet18", "key", "auto, pool, block, map.*'key'"),
    ],
)
def test_keys_that_do_not_exist_are_refused(name: str, source: str, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        last_keys(Backbone(make(name, **CNNS[name]), name), pictures(""), source)


@torch.no_grad()
def test_windows_have_no_keys_of_the_whole_picture() -> None:
    name = "swin_tiny_patch4_window7_224"
    model = make(name, img_size=128, window_size=2, embed_dim=24, depths=(1, 1, 1, 1))
    keys = last_keys(Backbone(model, name), torch.randn(1, 3, 128, 128))
    assert keys.source == "map" and keys.grid == (4, 4)
