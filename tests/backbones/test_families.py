"""One small member of every kind of family, with real values."""

import copy

import pytest
import torch
from torch import Tensor

from cenote.backbones import Backbone, create_backbone
from cenote.backbones.cls import class_tokens
from cenote.backbones.survey import check_backbone

# name -> (grid, CLS, removable, any size)
MEMBERS = {
    "resnet10t": ((6, 6), False, False, True),
    "mobilenetv3_small_050": ((7, 7), False, False, True),
    "convnext_atto": ((7, 7), False, False, True),
    "vit_tiny_patch16_224": ((14, 14), True, True, True),
    "deit_tiny_distilled_patch16_224": ((14, 14), True, True, True),
    "eva02_tiny_patch14_224": ((16, 16), True, True, True),
    "xcit_nano_12_p16_224": ((14, 14), True, True, True),
    "convit_tiny": ((14, 14), True, True, False),
    "pit_ti_224": ((7, 7), True, True, False),
    "coat_lite_tiny": ((7, 7), True, False, False),
    "crossvit_9_240": ((14, 14), True, False, False),
    "efficientvim_m1": ((4, 4), False, False, True),
    "levit_128s": ((4, 4), False, False, False),
    "maxvit_rmlp_pico_rw_256": ((8, 8), False, False, False),
}
LARGE_MEMBERS = {"convmixer_768_32": ((32, 32), False, False, True)}
SLIM = {"embed_dim": 48, "num_heads": 3, "depth": 2}  # the large ones, made small
SLIM_MEMBERS = {
    "vit_small_patch14_reg4_dinov2": {**SLIM, "img_size": 56},
    "vit_small_patch16_dinov3": {**SLIM, "img_size": 64},
    "beit_base_patch16_224": {**SLIM, "img_size": 64},
    "vit_relpos_base_patch16_cls_224": {**SLIM, "img_size": 64},
    "cait_xxs24_224": {"embed_dim": 48, "num_heads": 3, "depth": 2, "img_size": 64},
    "xcit_nano_12_p16_224": {"depth": 2, "img_size": 64},
    "convit_tiny": {"depth": 11, "img_size": 64},
    "volo_d1_224": {"img_size": 64},
    "deit_tiny_distilled_patch16_224": {"depth": 2, "img_size": 64},
    "vit_tiny_patch16_224": {"depth": 2, "img_size": 64},
}


@pytest.mark.parametrize(
    "name", [*MEMBERS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE_MEMBERS)]
)
def test_the_check_of_one_member(name: str) -> None:
    torch.manual_seed(0)
    found = check_backbone(name)
    expected = (True, *(MEMBERS | LARGE_MEMBERS)[name])
    assert (found.ok, found.grid, found.cls, found.cls_removable, found.any_size) == expected, (
        found.why
    )


@pytest.mark.parametrize(
    "name", ["hiera_tiny_224", "vit_giant_patch14_dinov2", "swin_tiny_patch4_window7_224"]
)
def test_shapes_alone_are_enough_for_giants(name: str) -> None:
    found = check_backbone(name, values=False)
    assert found.ok and found.parameters > 2e7 and min(found.grid) > 1, found.why


def slim(name: str) -> Backbone:
    torch.manual_seed(0)
    options = dict(SLIM_MEMBERS[name])
    backbone = create_backbone(name, img_size=options.pop("img_size"), **options).eval()
    for parameter in (
        backbone.parameters()
    ):  # initial zeros (layer scale, biases of position) would hide mistakes
        torch.nn.init.normal_(parameter, std=0.2)
    return backbone


def images_for(backbone: Backbone) -> Tensor:
    size = 56 if "patch14" in backbone.name else 64
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))


def with_another_cls(backbone: Backbone) -> Tensor:
    backbone = copy.deepcopy(backbone)
    for token in class_tokens(backbone.model).values():
        torch.nn.init.normal_(token, std=3.0)
    tokens: Tensor = backbone(images_for(backbone)).tokens
    return tokens


@pytest.mark.parametrize("name", SLIM_MEMBERS)
@torch.no_grad()
def test_removal_is_what_masking_cls_would_give(name: str) -> None:
    """Patches attend to [CLS; patches]. With a CLS that nobody sees they must come out as with
    none.
    """
    backbone = slim(name)
    x = images_for(backbone)
    before = backbone(x)
    assert before.cls is not None and before.cls.shape == (1, backbone.dim)
    if backbone.family in ("cait", "volo"):  # here the patches never saw CLS
        expected = before.tokens
    elif backbone.family == "xcit":  # nor here; but the last blocks also act on the patches
        expected = None
    else:
        assert not torch.allclose(before.tokens, with_another_cls(backbone))
        expected = unseen_cls(backbone, x)
    registers = backbone.prefix - sum(
        token.shape[1] for token in class_tokens(backbone.model).values()
    )
    backbone.remove_cls()
    after = backbone(x)
    assert (
        after.cls is None
        and not backbone.has_cls
        and after.grid == before.grid
        and backbone.prefix == registers
    )
    assert not [n for n, p in backbone.named_parameters() if "cls_token" in n or "dist_token" in n]
    if expected is not None:
        torch.testing.assert_close(after.tokens, expected, rtol=1e-4, atol=1e-4)


def unseen_cls(backbone: Backbone, x: Tensor) -> Tensor:
    """The full model, with the softmax of every attention blind to the class tokens."""
    n_cls = sum(token.shape[1] for token in class_tokens(backbone.model).values())
    softmax, tokens = torch.Tensor.softmax, backbone.prefix + backbone(x).tokens.shape[1]

    def blind(scores: Tensor, dim: int = -1, **rest: object) -> Tensor:
        if scores.ndim == 4 and scores.shape[-1] == tokens:
            scores = scores.clone()
            scores[..., :n_cls] = -torch.inf
        return softmax(scores, dim=dim)

    blinded = copy.deepcopy(backbone)
    for module in blinded.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "softmax", blind)
        patch.setattr(torch.nn.functional, "softmax", blind)
        out: Tensor = blinded(x).tokens
    return out


@pytest.mark.parametrize("name", ["tnt_s_legacy_patch16_224", "coat_lite_tiny", "crossvit_9_240"])
def test_a_cls_that_must_stay_is_refused(name: str) -> None:
    backbone = create_backbone(name)
    with pytest.raises(ValueError, match=f"'{name}'.*keep_cls=True"):
        backbone.remove_cls()
    assert backbone.has_cls


def test_registers_are_not_among_the_tokens() -> None:
    backbone = slim("vit_small_patch14_reg4_dinov2")
    x = images_for(backbone)
    inside = backbone.model.forward_features(x)  # type: ignore[operator]
    assert backbone.prefix == 5
    torch.testing.assert_close(backbone(x).tokens, inside[:, 5:])
    backbone.remove_cls()
    assert backbone.prefix == 4 and backbone(x).tokens.shape[1] == 16
    assert backbone.model.reg_token.shape[1] == 4  # type: ignore[union-attr, index]


@torch.no_grad()
def test_large_and_wide_pictures() -> None:
    backbone = create_backbone("vit_tiny_patch16_224", depth=1, embed_dim=24, num_heads=1).eval()
    assert backbone(torch.randn(1, 3, 896, 896)).grid == (56, 56)
    backbone.remove_cls()
    assert backbone(torch.randn(1, 3, 64, 160)).grid == (4, 10)


def test_a_size_that_does_not_fit_is_refused() -> None:
    dinov2 = slim("vit_small_patch14_reg4_dinov2")
    with pytest.raises(ValueError, match=r"\b100x130\b.*\b14\b.*\b98x126\b"):
        dinov2(torch.randn(1, 3, 100, 130))
    with pytest.raises(ValueError, match=r"\b192x256\b.*\b64x64\b.*img_size="):
        slim("beit_base_patch16_224")(torch.randn(1, 3, 192, 256))


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"'resnet5'.*'resnet50'"):
        create_backbone("resnet5")


@torch.no_grad()
def test_depth_changes() -> None:
    backbone = create_backbone("vit_tiny_patch16_224", img_size=32, depth=3).eval()
    backbone.set_depth(-1)
    assert len(backbone.model.blocks) == 2  # type: ignore[arg-type]
    backbone.set_depth(2)
    assert len(backbone.model.blocks) == 4 and backbone(torch.randn(1, 3, 32, 32)).grid == (2, 2)  # type: ignore[arg-type]


def test_without_cls_the_patches_lie_in_order() -> None:
    """A transposed residual stream makes every block slower than the CLS token did."""
    backbone = create_backbone("test_vit")
    backbone.remove_cls()
    seen: list[bool] = []
    backbone.model.blocks[-1].register_forward_pre_hook(
        lambda m, args: seen.append(args[0].is_contiguous())
    )
    backbone(torch.randn(2, 3, 160, 160))
    assert seen == [True]
