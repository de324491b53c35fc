"""`pool="own"`: what timm's `forward_head(x, pre_logits=True)` gives, for every family."""

import copy
from pathlib import Path

import pytest
import timm
import torch
from torch import nn
from torch.testing import assert_close

from cenote.backbones import Backbone, create_backbone
from cenote.backbones.survey import select
from cenote.models import PooledModel, create_model, load
from cenote.models.export import export_model
from cenote.models.frozen import FrozenBackbone
from cenote.models.pooled import assemble
from cenote.pooling.own import OwnPool

TINY = {"embed_dim": 48, "depth": 2, "num_heads": 3}
# What the pool comes to, options that make the architecture small, and its name.
SMALL = [
    ("cls", "test_vit", {}),
    ("gap", "test_vit2", {}),  # with a norm behind it
    ("own", "test_vit3", {}),  # attention over a register as well
    ("own", "vit_base_patch16_siglip_224", {**TINY, "img_size": 64}),
    ("own", "vit_pe_core_tiny_patch16_384", {"embed_dim": 48, "depth": 2, "img_size": 64}),
    ("gap", "vit_tiny_patch16_dinov3_qkvb", {"embed_dim": 48, "depth": 2, "img_size": 64}),
    ("cls", "vit_small_patch14_reg4_dinov2", {**TINY, "img_size": 56}),
    ("own", "deit_tiny_distilled_patch16_224", {**TINY, "img_size": 64}),
    ("own", "pit_ti_distilled_224", {}),
    ("gap", "beit_base_patch16_224", {**TINY, "img_size": 64}),
    ("gap", "test_resnet", {}),
    ("gap", "test_convnext", {}),
    ("own", "test_resnet", {"global_pool": "avgmax"}),
    ("own", "test_resnet", {"global_pool": "catavgmax"}),
    ("own", "test_resnet", {"global_pool": "max"}),
    ("own", "test_byobnet", {"head_type": "attn_abs", "img_size": 64}),
    ("own", "test_byobnet", {"head_type": "attn_rot", "img_size": 64}),
    ("own", "test_mambaout", {}),
    ("own", "mobilenetv3_small_050", {}),
    ("own", "vit_tiny_patch16_224", {**TINY, "img_size": 64, "global_pool": "prr"}),
    ("own", "vit_tiny_patch16_224", {**TINY, "img_size": 64, "global_pool": "avgmax"}),
    ("gap", "hiera_tiny_224", {"embed_dim": 24, "stages": (1, 1, 1, 1)}),
    ("gap", "swin_tiny_patch4_window7_224", {"embed_dim": 24, "depths": (1, 1, 1, 1)}),
    ("gap", "levit_128s", {}),
    # Several maps: the CLS token of each, or the mean of each.
    ("own", "crossvit_tiny_240", {"embed_dim": (24, 48), "depth": ((1, 1, 0),) * 3}),
    ("own", "crossvit_tiny_240", {"embed_dim": (24, 48), "global_pool": "avg"}),
    ("own", "coat_tiny", {"embed_dims": (16, 48, 48, 48), "serial_depths": (1,) * 4}),
    ("own", "efficientvim_m1", {"embed_dim": (16, 24, 48), "depths": (1, 1, 1)}),
]
small = pytest.mark.parametrize(
    ("comes_to", "name", "options"),
    [pytest.param(*case, id="-".join([case[1], *map(str, case[2].values())])) for case in SMALL],
)


def own_and_timm(name: str, **options: object) -> tuple[PooledModel, nn.Module]:
    """Return the model with its own pooling, and timm's with the same random weights."""
    torch.manual_seed(0)
    backbone = create_backbone(name, **options).eval()
    for parameter in backbone.parameters():  # initial zeros would hide mistakes
        if parameter.numel() < 1e7:
            parameter.data += 0.02 * torch.randn_like(parameter)
    reference = copy.deepcopy(backbone.model)
    return assemble(backbone, "own", 0).eval(), reference


@torch.no_grad()
def deviation(model: PooledModel, reference: nn.Module, size: tuple[int, int]) -> float:
    """Return the largest deviation from timm's vectors, relative to their largest value."""
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    expected = reference.forward_head(reference.forward_features(images), pre_logits=True)
    vectors = model.embed(images)
    assert vectors.shape == expected.shape
    return float((vectors - expected).abs().max() / expected.abs().max())


@small
def test_it_equals_timm(comes_to: str, name: str, options: dict) -> None:
    model, reference = own_and_timm(name, **options)
    assert model.label == comes_to
    assert deviation(model, reference, model.backbone.native_size()) < 1e-5


# Options that make the largest ones quick.
LARGE = {
    "deepseek_vit_412m": {"depth": 1, "embed_dim": 64, "num_heads": 4},
    "gemma4_vit_167m": {"depth": 1, "embed_dim": 96, "num_heads": 3, "intermediate_size": 96},
    "qwen3_vit_88m": {"depth": 1, "embed_dim": 48, "num_heads": 3},
}
ATTENTION_POOLS = ("resnet50_clip", "vit_base_patch16_siglip_224", "naflexvit_base_patch16_siglip")


@pytest.mark.survey
@pytest.mark.parametrize("name", [*select(), *ATTENTION_POOLS])
def test_it_equals_timm_in_every_family(name: str) -> None:
    model, reference = own_and_timm(name, **LARGE.get(name, {}))
    assert deviation(model, reference, model.backbone.native_size()) < 1e-5


MAPS = [(name, options) for _, name, options in SMALL if "siglip" in name or "pe_core" in name]


@pytest.mark.parametrize(("name", "options"), MAPS)
def test_an_attention_pool_has_a_map_at_any_size(name: str, options: dict) -> None:
    model, reference = own_and_timm(name, **options)
    images = torch.randn(2, 3, 64, 96)
    maps = model.attend(images)
    assert model.map_kinds()[0] == "pool" and maps.shape[2:] == (4, 6)
    assert (maps >= 0).all() and (maps.flatten(2).sum(-1) <= 1 + 1e-5).all()
    assert deviation(model, reference, (64, 96)) < 1e-5


def test_dinov3_shows_the_attention_of_cls() -> None:
    model, _ = own_and_timm("vit_tiny_patch16_dinov3_qkvb", embed_dim=48, depth=2, img_size=64)
    maps = model.attend(torch.randn(2, 3, 64, 96))
    assert model.map_kinds() == ["cls"] and maps.shape == (2, 1, 4, 6)


SAVED = [
    ("test_vit3", {}),
    ("crossvit_tiny_240", {"embed_dim": (24, 48)}),
    ("deit_tiny_distilled_patch16_224", {**TINY, "img_size": 64}),
    ("vit_pe_core_tiny_patch16_384", {"embed_dim": 48, "depth": 2, "img_size": 64}),
    ("mobilenetv3_small_050", {}),
    ("vit_tiny_patch16_dinov3_qkvb", {"embed_dim": 48, "depth": 2, "img_size": 64}),
]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("name", "options"), SAVED)
def test_saved_and_loaded(name: str, options: dict, frozen: bool, tmp_path: Path) -> None:
    pool_options = {"frozen": True} if frozen else None
    model = create_model(name, "own", 5, pool_options=pool_options, **options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    model.save(tmp_path)
    loaded = load(tmp_path)
    images = torch.randn(2, 3, *model.backbone.native_size())
    assert_close(loaded(images), model(images))
    assert loaded.label == model.label
    if isinstance(model.pool, OwnPool):
        assert [p.requires_grad for p in loaded.pool.parameters()] == [
            not frozen for _ in model.pool.parameters()
        ]


def test_the_classifier_stays_where_it_fits() -> None:
    """The logits of timm's model, with layers between pooling and classifier."""
    torch.manual_seed(0)
    reference = timm.create_model("mobilenetv3_small_050").eval()
    model = assemble(Backbone(copy.deepcopy(reference), "mobilenetv3_small_050"), "own").eval()
    images = torch.randn(2, 3, 64, 64)
    assert_close(model(images), reference(images))
    assert "cam" not in model.map_kinds() and "gradcam" in model.map_kinds()


def test_frozen_features_have_what_it_needs() -> None:
    """A head on features of a frozen backbone is equal to the whole model."""
    for name, options in SAVED:
        torch.manual_seed(0)
        backbone = create_backbone(name, **options).eval()
        reference = copy.deepcopy(backbone.model)
        frozen = FrozenBackbone(backbone)
        head = frozen.create_head("own", 0).eval()
        model = frozen.create_model(head).eval()
        assert deviation(model, reference, model.backbone.native_size()) < 1e-5
        twin = frozen.create_head("own", 0)
        if twin.pool is not None:
            pairs = zip(head.pool.parameters(), twin.pool.parameters(), strict=True)
            assert all(a is not b and torch.equal(a, b) for a, b in pairs)


def test_other_pools_do_not_see_its_registers() -> None:
    backbone = create_backbone("deit_tiny_distilled_patch16_224", **TINY, img_size=64)
    frozen = FrozenBackbone(backbone)
    features = frozen.backbone(torch.randn(1, 3, 64, 64))
    assert features.registers.shape == (1, 1, 48)
    head = frozen.create_head("ep", 0, tokens="all")
    assert head.pooled_tokens(features).shape == (1, 17, 48)
    assert frozen.create_head("own", 0).pooled_tokens(features).shape == (1, 18, 48)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), SAVED[:5])
def test_exported(name: str, options: dict, tmp_path: Path) -> None:
    model = create_model(name, "own", 5, **options).eval()
    exported = export_model(model, tmp_path / "model.pt2", "torch")
    assert exported.difference < 1e-4
    assert ("map" in exported.outputs) == (not model.pool.no_attention)


def test_refusals_name_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"pyramid.*another pool"):
        create_model("test_resnet", "own", fpn="P2")
    with pytest.raises(ValueError, match="'gamma'"):
        create_model("test_resnet", "own", pool_options={"gamma": 2})
    model = create_model("test_resnet", "own", 0)
    with pytest.raises(ValueError, match="num_classes"):
        model.attend(torch.randn(1, 3, 64, 64))
