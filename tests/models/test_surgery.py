"""Stride removal, feature pyramids and SAR's last block: what stays equal, and that a config makes
them again.
"""

import copy
import math
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torchvision.ops import FeaturePyramidNetwork

from cenote.models import create_model, replace_pool
from cenote.models.attention_maps import cls_attention
from cenote.models.surgery import without_last_stride
from tests.toy_models import NARROW

IMAGES = torch.randn(2, 3, 65, 97, generator=torch.Generator().manual_seed(0))


BOTTLENECKS: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 16, 32, 64)}
SLIM: dict[str, Any] = {"embed_dim": 48, "num_heads": 3}
SHALLOW: dict[str, Any] = {"depths": (1, 1, 1, 1), "dims": (8, 16, 32, 64)}
STRIDED: dict[str, dict[str, Any]] = {
    "resnet18": NARROW,
    "resnet26": BOTTLENECKS,
    "regnetx_002": {},
}


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """float32 through a whole network, whose convolutions add in different orders."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("gain", [2, 4])
def test_every_other_position_of_the_finer_map_is_the_old_map(name: str, gain: int) -> None:
    """A strided convolution sees every other position; dilation lets the later ones see the same
    ones again.
    """
    torch.manual_seed(0)
    options = STRIDED[name]
    strided = create_model(name, "gap", 3, **options).eval()
    finer = create_model(name, "gap", 3, stride=gain, **options).eval()
    finer.load_state_dict(strided.state_dict())  # the same weights, name for name
    (old, grid, *_), (new, fine, *_) = strided.features(IMAGES), finer.features(IMAGES)
    assert [-(-n // gain) for n in fine] == list(grid)
    picked = new.unflatten(1, fine)[:, ::gain, ::gain].flatten(1, 2)
    assert_close(picked, old)


def block_by_hand(x: Tensor, block: Any, stride: int) -> Tensor:
    """A basic or bottleneck block from its weights: 3 x 3 convolutions padded by one, never dilated."""
    way = x
    convolutions = [(block.conv1, block.bn1), (block.conv2, block.bn2)]
    strided = 0
    if hasattr(block, "conv3"):
        convolutions, strided = [*convolutions, (block.conv3, block.bn3)], 1
    for i, (layer, norm) in enumerate(convolutions):
        step = stride if i == strided else 1
        x = norm(conv2d(x, layer.weight, stride=step, padding=layer.weight.shape[-1] // 2))
        x = x.relu() if i < len(convolutions) - 1 else x
    if block.downsample is not None:
        way = block.downsample[1](conv2d(way, block.downsample[0].weight, stride=stride))
    return (x + way).relu()


@pytest.mark.parametrize("name", ["resnet18", "resnet26"])
@pytest.mark.parametrize(("gain", "strides"), [(2, (1, 2, 2, 1)), (4, (1, 2, 1, 1))])
def test_without_dilation_strides_become_one_and_nothing_else_changes(
    name: str, gain: int, strides: tuple[int, ...]
) -> None:
    """Choe et al.'s ResNetCam; with gradients."""
    torch.manual_seed(0)
    # timm starts a block's last norm at zero, which would hide its convolutions.
    options = STRIDED[name] | {"layers": (1, 1, 2, 2), "zero_init_last": False}
    model = create_model(name, "gap", 3, stride=gain, no_dilation=True, **options).eval()
    encoder: Any = model.backbone.model
    images = IMAGES[:, :, :64, :96]
    x = encoder.maxpool(encoder.bn1(conv2d(images, encoder.conv1.weight, None, 2, 3)).relu())
    for i, stride in enumerate(strides, 1):
        for j, block in enumerate(getattr(encoder, f"layer{i}")):
            x = block_by_hand(x, block, 1 if j else stride)
    features = model.features(images)
    assert features.grid == (2 * gain, 3 * gain)
    assert_close(features.tokens, x.flatten(2).mT)
    weights = [encoder.conv1.weight, encoder.layer4[1].conv2.weight]
    expected = torch.autograd.grad(x.square().sum(), weights)
    for ours, by_hand in zip(
        torch.autograd.grad(features.tokens.square().sum(), weights), expected, strict=True
    ):
        torch.testing.assert_close(ours, by_hand, rtol=1e-3, atol=1e-3 * float(by_hand.abs().max()))
    dilated = create_model(name, "gap", 3, stride=gain, **options).eval()
    dilated.load_state_dict(model.state_dict())
    assert not torch.allclose(dilated.features(images).tokens, features.tokens, atol=1e-2)
    assert model.config["no_dilation"] is True


def test_without_dilation_even_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'convnext_atto'.*--no-dilation"):
        create_model("convnext_atto", "gap", 3, stride=4, no_dilation=True)
    with pytest.raises(ValueError, match=r"no_dilation.*stride"):
        create_model("resnet18", "gap", 3, no_dilation=True, **NARROW)


def test_stride_removal_of_other_families() -> None:
    model = create_model("lite0", "gap", stride=2, pretrained=True).eval()
    assert model.features(torch.randn(1, 3, 128, 128)).grid == (8, 8)
    assert model.config["stride"] == 2 and "output_stride" not in model.config
    for name in ("vit_tiny_patch16_224", "vgg11"):
        with pytest.raises(ValueError, match=f"stride.*'{name}'"):
            create_model(name, "gap", stride=2)
    with pytest.raises(ValueError, match=r"stride.*\b3\b"):
        create_model("resnet18", "gap", stride=3)
    with pytest.raises(ValueError, match=r"'resnet188'.*'resnet18'"):
        create_model("resnet188", "gap", stride=2)


@torch.no_grad()
def test_the_last_stride_is_removed_from_the_same_architecture() -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {**NARROW, "stem_type": "deep", "stem_width": 4, "act_layer": "gelu"}
    backbone = create_model("resnet18", "gap", 3, **options).eval().backbone
    finer = without_last_stride(backbone).eval()
    old, new = backbone(IMAGES), finer(IMAGES)
    assert_close(new.tokens.unflatten(1, new.grid)[:, ::2, ::2].flatten(1, 2), old.tokens)
    # An attention pool has a position for each cell of the coarse map.
    attentive = create_model("test_byobnet", "own", 0, head_type="attn_abs", img_size=64).backbone
    assert attentive.stride() == (32, 32)
    assert without_last_stride(attentive).stride() == (16, 16)
    backbone.model.layer4 = nn.Identity()  # changed: weights of a new network have no place
    assert without_last_stride(backbone) is backbone
    unknown = replace_pool(timm.create_model("resnet18", **NARROW), "gap", 3).backbone
    assert without_last_stride(unknown) is unknown


SWIN = {"img_size": (64, 96), "embed_dim": 24, "depths": (1, 1, 1, 1)}
PYRAMIDS = [
    ("resnet18", NARROW),
    ("convnext_atto", SHALLOW),
    ("lite0", {}),
    ("swin_tiny_patch4_window7_224", SWIN),
]


@pytest.mark.parametrize(("name", "options"), PYRAMIDS)
@pytest.mark.parametrize("level", ["P2", "P3", "P4"])
def test_a_level_of_the_pyramid(name: str, options: dict[str, Any], level: str) -> None:
    model = create_model(name, "gap", 4, fpn=level, fpn_dim=16, **options)
    images = IMAGES[..., :64, :96] if "img_size" in options else IMAGES
    stride = 2 ** int(level[1])
    up = -(-65 // stride), -(-97 // stride)
    down = 64 // stride, 96 // stride
    features = model.features(images)
    assert features.grid == (down if "img_size" in options or name == "convnext_atto" else up)
    assert features.tokens.shape == (2, features.grid[0] * features.grid[1], 16)
    model(images).square().sum().backward()
    for n, p in model.named_parameters():
        assert p.grad is not None and p.grad.isfinite().all(), n
    assert model.eval().attend(images).shape == (2, 1, *features.grid)


@torch.no_grad()
def test_the_level_is_that_of_the_whole_pyramid() -> None:
    """Nothing finer than the level is computed; the level is the same."""
    model = create_model("resnet18", "gap", 4, fpn="P3", fpn_dim=16, **NARROW).eval()
    torch.manual_seed(0)
    whole, fpn = FeaturePyramidNetwork([8, 16, 32, 64], 16), model.backbone.fpn
    for i in range(3):
        fpn.inner_blocks[i].load_state_dict(whole.inner_blocks[i + 1].state_dict())
    fpn.layer_blocks[0].load_state_dict(whole.layer_blocks[1].state_dict())
    net: Any = timm.create_model(
        "resnet18", features_only=True, out_indices=(1, 2, 3, 4), **NARROW
    ).eval()
    net.load_state_dict(model.backbone.model.state_dict())
    maps = whole({str(i): m for i, m in enumerate(net(IMAGES))})
    assert_close(model.features(IMAGES).tokens, maps["1"].flatten(2).transpose(1, 2))


def test_impossible_pyramids_are_refused() -> None:
    for options, values in (
        ({"fpn": "P7"}, "P2, P3, P4, P5.*'P7'"),
        ({"fpn": "P3", "fpn_dim": 0}, r"fpn_dim.*\b0\b"),
        ({"fpn": "P3", "norm": "before"}, "'resnet18'.*norm="),
    ):
        with pytest.raises(ValueError, match=values):
            create_model("resnet18", "gap", 3, **NARROW, **options)
    with pytest.raises(ValueError, match=r"'vit_micro'"):
        create_model("vit_micro", "gap", 3, fpn="P3")


def vit(name: str = "vit_tiny_patch16_224") -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(
        name, depth=2, embed_dim=48, num_heads=3, dynamic_img_size=True, drop_path_rate=0.5
    )
    return model


FORMULAS = {
    "A": lambda b, z: (y := z + b.attn(b.norm1(z))) + b.mlp(b.norm2(y)),
    "B": lambda b, z: (y := b.attn(b.norm1(z))) + b.mlp(b.norm2(y)),
    "C": lambda b, z: (y := b.attn(b.norm1(z))) + b.mlp(y),
    "D": lambda b, z: b.mlp(b.attn(b.norm1(z))),
    "E": lambda b, z: (y := z + b.attn(b.norm1(z))) + b.mlp(b.norm2(y)),
    "F": lambda b, z: (y := b.attn(b.norm1(z))) + b.mlp(y),
}


@torch.no_grad()
@pytest.mark.parametrize("row", ["sar", *FORMULAS])
def test_the_rows_of_sar_s_table(row: str) -> None:
    plain = vit().eval()
    block, last = copy.deepcopy(plain.blocks[-1]), plain.blocks[:-1]
    z: Tensor = last(plain._pos_embed(plain.patch_embed(IMAGES[..., :64, :96])))
    expected = plain.norm(FORMULAS["C" if row == "sar" else row](block, z))
    model = replace_pool(plain, "cls", 3, last_block=row).eval()
    features = model.features(IMAGES[..., :64, :96])
    assert features.cls is not None
    assert_close(torch.cat([features.cls[:, None], features.tokens], 1), expected)


def test_without_a_skip_nothing_may_be_dropped_or_left_without_a_gradient() -> None:
    """Drop path at its strongest would erase tokens that have no other way; a LayerNorm unused
    would never learn.
    """
    model = replace_pool(vit(), "cls", 3, last_block="sar").train()
    z = torch.randn(64, 5, 48)
    torch.manual_seed(0)
    assert (model.backbone.model.blocks[-1].attn.train()(z).abs().sum((1, 2)) > 0).all()
    assert (model.backbone.model.blocks[-1](z).abs().sum((1, 2)) > 0).all()
    model(IMAGES[..., :64, :96]).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@torch.no_grad()
@pytest.mark.parametrize("name", ["vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3"])
def test_sar_of_rotary_and_register_models_still_shows_its_attention(name: str) -> None:
    model = replace_pool(vit(name), "cls", 3, last_block="sar").eval()
    side = 14 if "patch14" in name else 16
    maps = cls_attention(model, torch.randn(1, 3, 4 * side, 6 * side), heads="all")
    assert maps.shape == (1, 3, 4, 6) and maps.isfinite().all()


def test_impossible_last_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"A, B, C, D, E, F.*'G'"):
        replace_pool(vit(), "cls", 3, last_block="G")
    with pytest.raises(ValueError, match=r"'resnet18'.*last_block"):
        create_model("resnet18", "gap", 3, last_block="sar", **NARROW)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "pool", "options"),
    [
        ("resnet18", "gap", {"stride": 2, "no_dilation": True} | NARROW),
        ("resnet18", "simpool", {"stride": 4, "fpn": "P2", "fpn_dim": 24} | NARROW),
        ("convnext_atto", "gap", {"fpn": "P4", "fpn_dim": 24} | SHALLOW),
        ("lite0", "gem", {"fpn": "P3", "fpn_dim": 24}),
        ("vit_tiny_patch16_224", "cls", {"last_block": "sar", "depth": -10} | SLIM),
        ("vit_tiny_patch16_224", "simpool", {"last_block": "B", "depth": -10} | SLIM),
    ],
)
def test_the_config_makes_the_same_model_again(
    name: str, pool: str, options: dict[str, Any]
) -> None:
    model = create_model(name, pool, 3, **options).eval()
    again = create_model(**model.config).eval()
    again.load_state_dict(model.state_dict())
    images = IMAGES[..., :64, :96]
    assert_close(again(images), model(images))
    assert_close(again.attend(images), model.attend(images))
    assert again.config == model.config


def slow_cubic(line: list[float], new: int) -> list[float]:
    """Cubic convolution (a = -0.75) of m values at a scale of (new + 0.1) / m, edges repeated."""
    m, result = len(line), []
    for i in range(new):
        at, total = (i + 0.5) * m / (new + 0.1) - 0.5, 0.0
        for tap in range(math.floor(at) - 1, math.floor(at) + 3):
            d = abs(at - tap)
            weight = 1.25 * d**3 - 2.25 * d**2 + 1
            if d > 1:
                weight = -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
            total += weight * line[min(max(tap, 0), m - 1)]
        result.append(total)
    return result


@torch.no_grad()
@pytest.mark.parametrize(
    ("pool", "size", "resampled"),
    [
        ("simpool", (160, 160), True),  # the slip of SimPool's program
        ("simpool", (96, 208), True),
        ("cls", (160, 160), False),
        ("cls", (208, 96), True),
    ],
)
def test_dinos_positions(pool: str, size: tuple[int, int], resampled: bool) -> None:
    torch.manual_seed(0)
    model = create_model("test_vit", pool, 0, dino_positions=True).eval()
    encoder: Any = model.backbone.model
    encoder.pos_embed.normal_()
    rows, columns = size[0] // 16, size[1] // 16
    added = encoder._pos_embed(torch.zeros(1, rows, columns, 64))[0]
    prefix = int(pool == "cls")
    assert len(added) == prefix + rows * columns
    old = encoder.pos_embed[0, prefix:].unflatten(0, (10, 10))
    if prefix:
        torch.testing.assert_close(added[0], (encoder.cls_token + encoder.pos_embed)[0, 0])
    for channel in (0, 63):
        expected = old[..., channel].tolist()
        if resampled:
            across = [slow_cubic(line, columns) for line in expected]
            down = [slow_cubic(list(line), rows) for line in zip(*across, strict=True)]
            expected = [list(line) for line in zip(*down, strict=True)]
        actual = added[prefix:, channel].unflatten(0, (rows, columns))
        torch.testing.assert_close(actual, torch.tensor(expected), rtol=1e-4, atol=1e-4)
    images = torch.randn(2, 3, *size)
    again = create_model(**model.config).eval()
    again.load_state_dict(model.state_dict())
    for twin in (again, copy.deepcopy(model)):
        assert_close(twin.embed(images), model.embed(images))
    plain = create_model(**model.config | {"dino_positions": False}).eval()
    plain.load_state_dict(model.state_dict())
    differs = (plain.embed(images) - model.embed(images)).abs().max() > 1e-4
    assert differs == resampled


def test_only_a_vit_has_dinos_positions() -> None:
    for name in ("resnet18", "test_vit3"):
        with pytest.raises(ValueError, match=rf"'{name}'.*DINO"):
            create_model(name, "gap", 0, dino_positions=True)
