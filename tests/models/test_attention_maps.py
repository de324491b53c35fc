"""Attention seen through fused kernels against timm's own explicit attention, and against products
done by hand.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from cenote.backbones import Backbone
from cenote.models.attention_maps import cls_attention, cls_scores, last_qkv, rollout
from tests.toy_models import narrow_resnet

# CLS alone; CLS and distillation token; CLS and registers; rotation; rotation and registers;
# position biases.
VITS: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"depth": 3, "dynamic_img_size": True},
    "deit_tiny_distilled_patch16_224": {"depth": 2, "dynamic_img_size": True},
    "vit_small_patch14_reg4_dinov2": {
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 3,
        "dynamic_img_size": True,
    },
    "vit_small_patch16_dinov3": {
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 3,
        "dynamic_img_size": True,
    },
    "eva02_tiny_patch14_224": {
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 3,
        "dynamic_img_size": True,
    },
    "vit_small_patch16_rope_mixed_224": {
        "depth": 2,
        "embed_dim": 48,
        "num_heads": 3,
        "dynamic_img_size": True,
    },
    "beit_base_patch16_224": {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": (64, 96)},
    "vit_tiny_r_s16_p8_224": {"depth": 2, "dynamic_img_size": True},
}
LATE = {"cait_xxs24_224": {"depth": 1, "img_size": (64, 96)}, "xcit_nano_12_p16_224": {"depth": 1}}


def assert_close(actual: Tensor, expected: Tensor, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Fused and explicit attention add float32 values in different orders, in a few blocks one
    after the other.
    """
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def make(name: str) -> Backbone:
    torch.manual_seed(0)
    backbone = Backbone(timm.create_model(name, **(VITS | LATE)[name]), name).eval()
    for (
        n,
        p,
    ) in (
        backbone.named_parameters()
    ):  # LayerScale and position biases start where nothing can be seen
        if p.ndim < 2 or "relative_position_bias_table" in n or "qkv.weight" in n:
            nn.init.normal_(p, std=0.2)
    return backbone


def pictures(name: str, batch: int = 2) -> Tensor:
    torch.manual_seed(1)
    side = 14 if "patch14" in name else 16
    return torch.randn(batch, 3, 4 * side, 6 * side)


@contextmanager
def explicit(backbone: Backbone) -> Iterator[list[Tensor]]:
    """With fused attention off, timm computes every attention matrix and hands it to
    `attn_drop`.
    """
    seen: list[Tensor] = []
    switched = [m for m in backbone.modules() if getattr(m, "fused_attn", False)]
    drops = [m for n, m in backbone.named_modules() if n.endswith("attn_drop")]
    handles = [m.register_forward_hook(lambda m, i, out: seen.append(out)) for m in drops]
    for m in switched:
        m.fused_attn = False
    yield seen
    for m in switched:
        m.fused_attn = True
    for handle in handles:
        handle.remove()


@torch.no_grad()
@pytest.mark.parametrize("name", VITS)
def test_cls_attention_is_timm_s_explicit_attention(name: str) -> None:
    backbone, images = make(name), pictures(name)
    with explicit(backbone) as matrices:
        grid = backbone(images).grid
    rows = [a[:, :, 0, backbone.prefix :].unflatten(-1, grid) for a in matrices]
    assert_close(cls_attention(backbone, images, block=None, heads="all"), torch.cat(rows, 1))
    assert_close(cls_attention(backbone, images), rows[-1].mean(1, keepdim=True))
    assert_close(cls_attention(backbone, images, block=0, heads="all"), rows[0])
    assert rows[0].std() > 1e-3, "a uniform map would prove nothing"


@torch.no_grad()
@pytest.mark.parametrize("name", LATE)
def test_class_attention_blocks(name: str) -> None:
    backbone, images = make(name), pictures(name)
    with explicit(backbone) as matrices:
        backbone(images)
    rows = [a[:, :, 0, 1:] for a in matrices if a.shape[-2:] == (1, 25)]
    assert len(rows) == 2
    assert_close(
        cls_attention(backbone, images, block=None, heads="all").flatten(2), torch.cat(rows, 1)
    )
    assert last_qkv(backbone, images).q is None, "the patches ask nothing in class attention"
    assert last_qkv(backbone, images).k.shape == (2, 24, backbone.dim)


@torch.no_grad()
def test_cls_attention_by_hand() -> None:
    backbone, images = make("vit_tiny_patch16_224"), pictures("vit")
    model: Any = backbone.model
    found: list[Tensor] = []
    handle = model.blocks[-1].attn.qkv.register_forward_hook(lambda m, i, out: found.append(out))
    maps = cls_attention(backbone, images, heads="all")
    handle.remove()
    q, k, _ = found[0].chunk(3, -1)  # (B, 1 + N, 3 heads of 64)
    for head in range(3):
        part = slice(64 * head, 64 * head + 64)
        scores = torch.einsum("bd,bnd->bn", q[:, 0, part], k[..., part]) / 8
        a = scores.exp() / scores.exp().sum(-1, keepdim=True)
        assert_close(maps[:, head].flatten(1), a[:, 1:])
    sums = maps.sum((-2, -1))
    assert (maps >= 0).all() and (sums < 1).all(), "the rest lies on CLS"
    assert_close(cls_attention(backbone, images, normalise=True).sum((-2, -1)), torch.ones(2, 1))


@torch.no_grad()
@pytest.mark.parametrize("name", VITS)
def test_rollout_is_the_product_of_the_blocks(name: str) -> None:
    backbone, images = make(name), pictures(name)
    with explicit(backbone) as matrices:
        grid = backbone(images).grid
    product = torch.eye(matrices[0].shape[-1]).expand(len(images), -1, -1)
    for a in matrices:
        a = a.mean(1) + torch.eye(a.shape[-1])
        product = a / a.sum(-1, keepdim=True) @ product
    assert_close(
        rollout(backbone, images)[:, 0], product[:, 0, backbone.prefix :].unflatten(-1, grid)
    )


@torch.no_grad()
def test_rollout_without_cls_starts_from_all_patches() -> None:
    backbone, images = make("vit_tiny_patch16_224"), pictures("vit")
    backbone.remove_cls()
    with explicit(backbone) as matrices:
        backbone(images)
    product = torch.eye(24).expand(2, -1, -1)
    for a in matrices:
        product = (a.mean(1) + torch.eye(24)) / 2 @ product
    assert_close(rollout(backbone, images).flatten(1), product.mean(1))


@torch.no_grad()
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2", "vit_tiny_r_s16_p8_224"]
)
def test_last_qkv_is_what_the_last_qkv_layer_gives(name: str, removed: bool) -> None:
    backbone, images = make(name), pictures(name)
    if removed:
        backbone.remove_cls()
    model: Any = backbone.model
    found: list[Tensor] = []
    handle = model.blocks[-1].attn.qkv.register_forward_hook(lambda m, i, out: found.append(out))
    out = last_qkv(backbone, images)
    handle.remove()
    for ours, theirs in zip(out[:3], found[0].chunk(3, -1), strict=True):
        assert_close(ours, theirs[:, backbone.prefix :], rtol=0, atol=0)
    assert out.k.shape[1] == out.grid[0] * out.grid[1]


@torch.no_grad()
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", "vit_small_patch16_rope_mixed_224"])
def test_rotated_and_unrotated_keys(name: str, removed: bool) -> None:
    backbone, images = make(name), pictures(name)
    if removed:
        backbone.remove_cls()
    model: Any = backbone.model
    found: list[Tensor] = []
    layer = model.blocks[-1].attn
    handle = layer.qkv.register_forward_hook(lambda m, i, out: found.append(out))
    with explicit(backbone) as matrices:
        backbone(images)
    handle.remove()
    plain, turned = last_qkv(backbone, images, rotated=False), last_qkv(backbone, images)
    assert_close(plain.k, found[0].chunk(3, -1)[1][:, backbone.prefix :], atol=1e-4)
    assert (turned.k - plain.k).abs().max() > 0.1
    assert_close(
        turned.k.unflatten(-1, (3, 16)).norm(dim=-1), plain.k.unflatten(-1, (3, 16)).norm(dim=-1)
    )
    assert turned.q is not None
    q, k = (x.unflatten(-1, (3, 16)).transpose(1, 2) for x in (turned.q, turned.k))
    a = matrices[-1][..., backbone.prefix :, backbone.prefix :]
    assert_close((q @ k.mT / 4).softmax(-1), a / a.sum(-1, keepdim=True))


@torch.no_grad()
def test_896_pixels_give_56_by_56_and_leave_the_switches_alone() -> None:
    backbone = Backbone(
        timm.create_model(
            "vit_tiny_patch16_224", depth=1, embed_dim=24, num_heads=1, dynamic_img_size=True
        ),
        "vit",
    ).eval()
    backbone.model.blocks[0].attn.fused_attn = False
    assert cls_attention(backbone, torch.randn(1, 3, 896, 896)).shape == (1, 1, 56, 56)
    assert backbone.model.blocks[0].attn.fused_attn is False


def test_maps_do_not_depend_on_the_batch_and_can_be_learned_from() -> None:
    backbone, images = make("vit_small_patch14_reg4_dinov2"), pictures("patch14", batch=3)
    both, alone = cls_attention(backbone, images), cls_attention(backbone, images[1:2])
    assert_close(both[1:2], alone)
    assert_close(cls_attention(backbone, images), both, rtol=0, atol=0)
    both.square().sum().backward()
    grad = backbone.model.blocks[-1].attn.qkv.weight.grad
    assert grad is not None and grad.isfinite().all() and grad.abs().max() > 0


def test_scores_are_the_logarithm_of_attention() -> None:
    backbone, images = make("vit_tiny_patch16_224"), pictures("vit")
    (scores,), grid = cls_scores(backbone, images)
    assert scores.shape == (2, 3, 25) and grid == (4, 6)
    assert_close(
        scores.softmax(-1)[..., 1:].unflatten(-1, grid),
        cls_attention(backbone, images, heads="all"),
    )


def windows() -> Backbone:
    name = "swin_tiny_patch4_window7_224"
    return Backbone(
        timm.create_model(name, img_size=128, window_size=2, embed_dim=24, depths=(1, 1, 1, 1)),
        name,
    )


def differential() -> Backbone:
    options = {
        "depth": 1,
        "embed_dim": 48,
        "num_heads": 2,
        "attn_layer": "diff",
        "dynamic_img_size": True,
    }
    return Backbone(
        timm.create_model("vit_tiny_patch16_224", **options), "a differential transformer"
    )


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (
            lambda: cls_attention(make("vit_tiny_patch16_224"), pictures("vit"), heads="max"),
            "mean, all.*'max'",
        ),
        (lambda: rollout(make("xcit_nano_12_p16_224"), pictures("xcit")), "'xcit_nano_12_p16_224'"),
        (lambda: cls_attention(narrow_resnet("gap"), pictures("")), "'resnet18'.*keep_cls=True"),
        (lambda: last_qkv(narrow_resnet("gap"), pictures("")), "'resnet18'"),
        (lambda: cls_attention(differential(), pictures("")), "'a differential transformer'"),
        (
            lambda: last_qkv(windows(), torch.randn(1, 3, 128, 128)),
            "'swin_tiny_patch4_window7_224'",
        ),
    ],
)
def test_what_cannot_be_shown_names_the_model(call: Any, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        call()
