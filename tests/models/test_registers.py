"""Test-time registers: outliers that are put into a ViT, those of a real one, and what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from cenote.backbones import Backbone, create_backbone
from cenote.data import open_dataset
from cenote.models.attention_maps import cls_attention, last_qkv, rollout
from cenote.models.registers import add_register, find_register_neurons, fit_register
from cenote.predict.feature_cache import describe_features
from cenote.predict.object_map import ObjectMapper
from cenote.predict.openvino_engine import MIN_PIXELS, NetworkRunner
from tests.shared_data import shared_data

PATCHES = [7, 28]  # that become outliers
BLOCK, NEURON = 1, 5  # by this neuron


def encoder(backbone: Backbone) -> Any:
    return backbone.model


def small_vit(**options: Any) -> Backbone:
    """A ViT of 6 x 6 patches with fixed random weights, whose patches differ by position."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"img_size": 96, "embed_dim": 48, "depth": 4, "num_heads": 3}
    backbone = create_backbone("vit_tiny_patch16_224", pretrained=False, **sizes, **options)
    with torch.no_grad():
        encoder(backbone).pos_embed.normal_()
        for block in encoder(backbone).blocks:
            block.attn.qkv.weight.mul_(4)
    return backbone.eval()


def random_images(count: int = 4, size: int = 96) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def inputs_of(backbone: Backbone, layer: nn.Module, images: Tensor) -> Tensor:
    inputs = list[Tensor]()
    handle = layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    backbone(images)
    handle.remove()
    return inputs[0]


@torch.no_grad()
def fire_at(
    backbone: Backbone, images: Tensor, block: int, neuron: int, patches: list[int], column: Tensor
) -> Backbone:
    """Return a copy in which a neuron fires at these patches and adds `column` to them."""
    backbone = copy.deepcopy(backbone)
    mlp = encoder(backbone).blocks[block].mlp
    tokens = F.pad(inputs_of(backbone, mlp.fc1, images), (0, 1), value=1)  # and 1 for the bias
    target = torch.full(tokens.shape[:2], -1.0)
    target[:, [1 + i for i in patches]] = 1
    # Both kinds of tokens count the same, or few patches would not fire.
    weight = torch.where(target > 0, (target.shape[1] / len(patches)) ** 0.5, 1.0).flatten()
    rows = weight[:, None] * tokens.flatten(0, 1)
    solution = torch.linalg.lstsq(rows, weight * target.flatten()).solution
    mlp.fc1.weight[neuron], mlp.fc1.bias[neuron] = 100 * solution[:-1], 100 * solution[-1]
    mlp.fc2.weight[:, neuron] = column
    return backbone


def with_outliers(backbone: Backbone, images: Tensor) -> Backbone:
    """Return a copy of the small ViT with outliers that CLS attends to in the last block."""
    last = encoder(backbone).blocks[-1]
    q, k, _ = last.attn.qkv.weight.detach().chunk(3)
    cls = inputs_of(backbone, last.attn, images)[:, 0].mean(0)
    column = F.normalize(k.T @ (q @ cls), dim=0)
    return fire_at(backbone, images, BLOCK, NEURON, PATCHES, column)


@torch.no_grad()
def norm_ratios(backbone: Backbone, images: Tensor) -> Tensor:
    """The norms of the patches behind the last block over their median, (B, N)."""
    norms = inputs_of(backbone, encoder(backbone).norm, images)[:, backbone.prefix :].norm(dim=-1)
    return norms / norms.median()


def with_register(backbone: Backbone, images: Tensor) -> Backbone:
    backbone = copy.deepcopy(backbone)
    add_register(backbone, find_register_neurons(backbone, images))
    return backbone


@torch.no_grad()
def map_distance(first: Backbone, second: Backbone, images: Tensor) -> float:
    """Half the sum of the absolute differences of CLS attention in the last block, in [0, 1]."""
    a, b = (cls_attention(x, images, normalise=True) for x in (first, second))
    return float((a - b).abs().sum((-2, -1)).mean() / 2)


@torch.no_grad()
def test_an_injected_neuron_is_found_and_moved() -> None:
    plain, images = small_vit(), random_images()
    edited = with_outliers(plain, images)
    assert find_register_neurons(plain, images) == {}
    assert find_register_neurons(edited, images) == {BLOCK: [NEURON]}
    ratios = norm_ratios(edited, images)
    assert ratios[:, PATCHES].min() > 3
    clean = with_register(edited, images)
    assert norm_ratios(clean, images).max() < 1.1 * norm_ratios(plain, images).max()
    assert clean.prefix == plain.prefix + 1 and clean(images).grid == (6, 6)
    assert map_distance(edited, plain, images) > 0.05
    assert map_distance(clean, plain, images) < 0.1 * map_distance(edited, plain, images)
    cls, cls_edited, cls_clean = (x(images).cls for x in (plain, edited, clean))
    assert (cls_clean - cls).norm() < (cls_edited - cls).norm()
    assert F.cosine_similarity(cls_clean, cls).min() > 0.99
    object_map, *maps = (ObjectMapper(x, 96).maps(images) for x in (plain, edited, clean))
    error_edited, error_clean = ((x - object_map).abs().mean() for x in maps)
    assert error_clean < 0.1 * error_edited


@torch.no_grad()
def test_the_register_gets_the_largest_activation() -> None:
    """Image by image and neuron by neuron, as the method is defined."""
    backbone, images, neurons = small_vit(), random_images(), [3, 5, 40]
    fc2 = encoder(backbone).blocks[BLOCK].mlp.fc2
    add_register(backbone, {BLOCK: neurons})
    hook = list(fc2._forward_pre_hooks.items())
    fc2._forward_pre_hooks.clear()
    before = inputs_of(backbone, fc2, images)
    fc2._forward_pre_hooks.update(hook)
    after = inputs_of(backbone, fc2, images)
    expected = before.clone()
    for i in range(len(images)):
        for j in neurons:
            values = before[i, 1:, j].tolist()
            expected[i, 1:, j] = 0
            expected[i, 1, j] = max(values, key=abs)
    torch.testing.assert_close(after, expected)
    tokens = inputs_of(backbone, encoder(backbone).blocks[0].norm1, images)
    assert tokens.shape[1] == 1 + 1 + 36 and not tokens[:, 1].any()


@torch.no_grad()
def test_copies_other_sizes_and_caches_have_the_register() -> None:
    images = random_images()
    plain = with_outliers(small_vit(), images)
    clean = with_register(plain, images)
    tokens = clean(images).tokens
    assert not torch.allclose(tokens, plain(images).tokens, atol=1e-2)
    torch.testing.assert_close(copy.deepcopy(clean)(images).tokens, tokens)
    torch.testing.assert_close(clean(images[:1]).tokens, tokens[:1], rtol=1e-4, atol=1e-4)
    large = random_images(2, 128)
    assert clean(large).grid == (8, 8)
    assert cls_attention(clean, large).shape == rollout(clean, large).shape == (2, 1, 8, 8)
    assert last_qkv(clean, large).k.shape == (2, 64, 48)
    described = [describe_features(x, x.preprocessing) for x in (plain, clean)]
    assert described[0] != described[1]


@pytest.mark.slow
@torch.no_grad()
def test_an_export_has_the_register() -> None:
    clean, images = small_vit(), random_images()
    add_register(clean, {BLOCK: [NEURON]})
    exported = torch.export.export(clean, (images,)).module()
    tokens = clean(images).tokens
    torch.testing.assert_close(exported(images).tokens, tokens, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_openvino_does_not_run_a_backbone_with_a_register() -> None:
    clean, runner = small_vit(), NetworkRunner()
    add_register(clean, {BLOCK: [NEURON]})
    images = random_images(MIN_PIXELS // 96**2 + 1)
    torch.testing.assert_close(runner.run(clean, images).tokens, clean(images).tokens)
    assert not runner.converted and not runner.failed


def test_a_backbone_without_outliers_is_unchanged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i, image in enumerate(random_images()):
        pixels = image.permute(1, 2, 0).mul(60).add(128).clamp(0, 255).byte().numpy()
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    backbone = small_vit()
    with caplog.at_level("INFO"):
        assert not fit_register(backbone, open_dataset(tmp_path))
    assert "no register, its maps are unchanged" in caplog.text
    assert backbone.prefix == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet18", "is not a plain ViT of timm"),
        ("vit_small_patch14_reg4_dinov2", "has registers already"),
        ("swin_tiny_patch4_window7_224", "is not a plain ViT of timm"),
    ],
)
def test_other_backbones_are_refused(name: str, words: str) -> None:
    with torch.device("meta"):
        backbone = create_backbone(name, pretrained=False)
    with pytest.raises(ValueError, match=words):
        add_register(backbone, {0: [0]})


@pytest.mark.slow
@torch.no_grad()
def test_a_real_vit_has_outliers_at_the_corners() -> None:
    weights = shared_data("weights/vit_tiny_patch16_224.safetensors")
    plain = create_backbone("vit_tiny_patch16_224", pretrained=False, weights=weights).eval()
    paths = sorted((shared_data("pets") / "images").rglob("*.jpg"))[::120]
    transform = plain.preprocessing.whole()
    images = torch.stack([transform(Image.open(path).convert("RGB")) for path in paths])
    corners = [0, 13, 182, 195]
    assert norm_ratios(plain, images)[:, corners].median() > 10
    neurons = find_register_neurons(plain, images)
    assert 417 in neurons[7]
    clean, without = copy.deepcopy(plain), copy.deepcopy(plain)
    add_register(clean, neurons)
    for block, indices in neurons.items():  # what these neurons did is lost
        encoder(without).blocks[block].mlp.fc2.weight[:, indices] = 0
    assert norm_ratios(clean, images).max() < 3
    a, a_clean = (cls_attention(x, images).flatten(2)[..., corners] for x in (plain, clean))
    assert a_clean.sum(-1).mean() < 0.3 * a.sum(-1).mean()
    cls, cls_clean, cls_without = (x(images).cls for x in (plain, clean, without))
    similarity = F.cosine_similarity(cls, cls_clean)
    assert similarity.min() > 0.95
    assert similarity.mean() > F.cosine_similarity(cls, cls_without).mean() + 0.03
    # The same outliers at two more patches, which are not at a corner.
    column = encoder(plain).blocks[7].mlp.fc2.weight[:, 417]
    edited = fire_at(plain, images, 7, 100, [33, 40], column)
    neurons = find_register_neurons(edited, images)
    assert {100, 417} <= set(neurons[7])
    add_register(edited, neurons)
    assert norm_ratios(edited, images).max() < 3
    assert map_distance(edited, clean, images) < 0.5 * map_distance(edited, plain, images)
