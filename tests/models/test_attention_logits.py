"""AttentionLogits are what the softmax of the last attention is given, up to a constant, and carry
its gradient.
"""

import pytest
import torch

from cenote.losses import spatial_entropy
from cenote.models import create_model
from cenote.models.attention_maps import AttentionLogits


@pytest.mark.parametrize("backbone", ["vit_micro", "test_vit", "cait_xxs24_224"])
def test_of_cls_their_softmax_is_the_attention(backbone: str) -> None:
    size = {"cait_xxs24_224": 64}.get(backbone)
    model = create_model(backbone, "cls", 3, img_size=size).eval()
    side = size or model.backbone.preprocessing.size
    images = torch.randn(2, 3, side, side)
    with AttentionLogits(model) as seen:
        model(images)
    scores = seen.last()
    shown = model.attend(images, "cls", heads="all", normalise=True)
    assert scores.shape == shown.shape
    torch.testing.assert_close(
        scores.flatten(2).softmax(-1).view_as(shown), shown, rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize("backbone", ["vit_micro", "resnet_micro", "test_convnext"])
def test_of_a_pool_they_are_its_own(backbone: str) -> None:
    model = create_model(
        backbone, "simpool", 3, stride=4 if backbone == "resnet_micro" else 1
    ).eval()
    images = torch.randn(2, 3, 64, 64)
    with AttentionLogits(model) as seen:
        model(images)
    shown = model.attend(images, "pool")
    torch.testing.assert_close(
        seen.last().flatten(2).softmax(-1).view_as(shown), shown, rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("pool", ["cls", "simpool"])
def test_the_loss_reaches_queries_and_keys(pool: str) -> None:
    torch.manual_seed(
        0
    )  # with weights whose map has several components: one alone has no entropy to lose
    model = create_model("vit_micro", pool, 3).train()
    with AttentionLogits(model) as seen:
        model(torch.randn(2, 3, 64, 64))
    spatial_entropy(seen.last()).backward()
    moved = {
        name
        for name, p in model.named_parameters()
        if p.grad is not None and p.grad.abs().sum() > 0
    }
    assert any("attn.qkv" in name for name in moved)
    assert not any(name.startswith("head") for name in moved)


def test_a_pool_without_a_map_is_refused() -> None:
    with pytest.raises(ValueError, match="'gap'"):
        AttentionLogits(create_model("vit_micro", "gap", 3))
