"""Class activation maps: the parts add up to the logit, wherever the norm stands."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from cenote.backbones import Features
from cenote.models import PooledModel, create_model, replace_pool
from cenote.models.cam import Classes, minmax
from cenote.models.cam import cam as cam_of_features
from cenote.pooling import list_pools
from tests.toy_models import narrow_resnet

IMAGES = torch.randn(3, 3, 64, 96, generator=torch.Generator().manual_seed(0))


def assert_close(actual: Tensor, expected: Tensor, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    """float32 sums over hundreds of channels and positions, in different orders."""
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def cam(model: PooledModel, images: Tensor, classes: Classes = None) -> Tensor:
    return cam_of_features(model, model.features(images), classes)


def with_statistics(model: PooledModel) -> PooledModel:
    """A model whose norms and biases do something, in evaluation mode."""
    generator = torch.Generator().manual_seed(1)
    for module in (model.after, model.head):
        for t in [
            *module.parameters(),
            *(b for n, b in module.named_buffers() if n.endswith("running_mean")),
        ]:
            t.data = torch.randn(t.shape, generator=generator)
    return model.eval()


def small_vit(pool: str, **options: Any) -> PooledModel:
    vit = timm.create_model("vit_tiny_patch16_224", depth=2, dynamic_img_size=True)
    return with_statistics(replace_pool(vit, pool, 5, **options))


# A norm before the pool, LayerNorm behind it, none at all; BatchNorm in the head.
GAPS = {
    "before": lambda: small_vit("gap", norm="before"),
    "after": lambda: small_vit("gap", norm="after"),
    "behind": lambda: with_statistics(create_model("test_convnext", "gap", 5)),
    "none": lambda: with_statistics(narrow_resnet("gap", 5)),
    "batch": lambda: with_statistics(narrow_resnet("gap", 5, head_norm="batch")),
    "fpn": lambda: with_statistics(narrow_resnet("gap", 5, fpn="P3", fpn_dim=16)),
}


@torch.no_grad()
@pytest.mark.parametrize("which", GAPS)
def test_mean_of_the_map_plus_bias_is_the_logit_of_gap(which: str) -> None:
    model = GAPS[which]()
    logits = model(IMAGES)
    assert model.head is not None
    every = torch.arange(5).expand(3, 5)
    maps = cam(model, IMAGES, every)
    assert maps.shape == (3, 5, *model.features(IMAGES).grid)
    assert_close(maps.mean((-2, -1)) + model.head.linear.bias, logits)
    assert_close(cam(model, IMAGES), maps[torch.arange(3), logits.argmax(-1)][:, None])
    assert_close(cam(model, IMAGES, 2), maps[:, 2:3])
    assert_close(cam(model, IMAGES, [4, 0, 1]), maps[torch.arange(3), [4, 0, 1]][:, None])


@torch.no_grad()
def test_an_attentive_average_is_the_weighted_sum_of_the_map() -> None:
    """ABMILP: u = Σ a_j x_j, so the logit is Σ a_j CAM_j + b."""
    model = small_vit("abmilp", norm="before")
    assert model.head is not None
    u, a = model.pool_features(model.features(IMAGES))
    assert a is not None
    maps = cam(model, IMAGES, torch.arange(5).expand(3, 5))
    assert_close((a * maps).sum((-2, -1)) + model.head.linear.bias, model.head(u))


@torch.no_grad()
def test_the_largest_position_is_the_logit_of_max_for_a_class_of_one_channel() -> None:
    model = with_statistics(narrow_resnet("max", 5))
    assert model.head is not None
    model.head.linear.weight.data = torch.eye(5, 64)
    maps = cam(model, IMAGES, torch.arange(5).expand(3, 5))
    assert_close(maps.amax((-2, -1)) + model.head.linear.bias, model(IMAGES))


@torch.no_grad()
def test_the_best_of_k_vectors_gives_the_map() -> None:
    model = small_vit("slot", norm="after")
    head, pool = model.head, model.pool
    assert head is not None and pool is not None and pool.k == 3
    features = model.features(IMAGES)
    torch.manual_seed(0)
    u = model.pool_features(features)[0]  # (B, 3, D)
    torch.manual_seed(0)
    maps = cam_of_features(model, features, 1)
    best = head.linear(model.after(u))[..., 1].argmax(1)
    for image, k in enumerate(best):
        variance, mean = torch.var_mean(u[image, k], correction=0)
        x = (features.tokens[image] - mean) / (variance + model.after.eps).sqrt()  # type: ignore[operator]
        x = x * model.after.weight + model.after.bias  # type: ignore[operator]
        assert_close(maps[image].flatten(), x @ head.linear.weight[1])


@torch.no_grad()
@pytest.mark.parametrize("pool", list_pools())
def test_every_pool_has_a_cam_or_is_refused(pool: str) -> None:
    vit = timm.create_model(
        "vit_tiny_patch16_224", depth=1, embed_dim=32, num_heads=2, dynamic_img_size=True
    )
    model = replace_pool(vit, pool, 4).eval()
    assert model.pool is not None
    if model.pool.out_dim == model.pool.dim:
        maps = cam(model, IMAGES[..., :64, :80], 3)
        assert maps.shape == (3, 1, 4, 5) and maps.isfinite().all()
    else:
        with pytest.raises(ValueError, match=rf"\b{model.pool.out_dim}\b"):
            cam(model, IMAGES[..., :64, :80], 0)


def test_gradients_reach_the_tokens() -> None:
    model = small_vit("gap", norm="after")
    tokens = torch.randn(2, 6, 192, requires_grad=True)
    cam_of_features(model, Features(tokens, (2, 3)), 0).square().sum().backward()
    assert tokens.grad is not None and tokens.grad.isfinite().all() and tokens.grad.abs().max() > 0


def test_minmax() -> None:
    maps = torch.tensor([[1.0, 3.0], [2.0, 5.0]])
    assert_close(minmax(maps), (maps - 1) / 4)
    for dull in (
        torch.full((2, 2), 7.0),
        torch.tensor([[torch.nan, 1.0]]),
        torch.tensor([[torch.inf, 1.0]]),
    ):
        assert (minmax(dull) == 0).all()


@pytest.mark.parametrize(
    ("make", "classes", "values"),
    [
        (lambda: small_vit("gap"), 5, r"\b5\b.*\b5\b"),
        (lambda: small_vit("gap"), [1, 2], r"\b3\b.*\(2, 1\)"),
        (lambda: small_vit("gap"), 1.5, "torch.float32"),
        (lambda: small_vit("slot", combine="concat"), 0, "combine='concat'"),
        (lambda: small_vit("cls"), 0, "kind='cls'"),
        (lambda: narrow_resnet("gap", 0), 0, "num_classes="),
    ],
)
def test_what_has_no_cam_is_refused(make: Any, classes: Any, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        cam(make(), IMAGES, classes)


def grad_cam_inputs() -> tuple[PooledModel, Tensor]:
    pytest.importorskip(
        "pytorch_grad_cam", reason="grad-cam is not installed: pip install 'cenote[cam]'"
    )
    return with_statistics(narrow_resnet("gap", 5)), IMAGES


def test_grad_cam_of_a_linear_head_over_gap_is_cam() -> None:
    """The gradient of the logit by every position is w_c / N: the positive part of CAM, from 0 to
    1.
    """
    model, images = grad_cam_inputs()
    with torch.no_grad():
        expected = minmax(cam(model, images, 3).relu())
    assert_close(model.attend(images, "gradcam", classes=3), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pool", ["gap", "simpool", "cls"])
def test_grad_cam_leaves_the_model_as_it_was(pool: str) -> None:
    grad_cam_inputs()
    model = small_vit(pool).train()
    model.backbone.eval()
    model.backbone.requires_grad_(False)
    assert model.head is not None
    model.head.linear.weight.grad = kept = torch.ones_like(model.head.linear.weight)
    with torch.no_grad():
        maps = model.attend(IMAGES, "gradcam", classes=torch.tensor([[0, 1], [2, 3], [4, 0]]))
    assert maps.shape == (3, 2, 4, 6) and maps.min() >= 0 and maps.max() <= 1
    assert maps.amax((-2, -1)).min() > 0 or pool != "cls"
    assert model.training and not model.backbone.training
    assert model.head.linear.weight.grad is kept and (kept == 1).all()
    assert all(p.grad is None for p in model.backbone.parameters())


def test_grad_cam_refuses_unknown_methods_and_models_without_a_head() -> None:
    model, images = grad_cam_inputs()
    with pytest.raises(ValueError, match="'GradCam'"):
        model.attend(images, "gradcam", method="GradCam")
    with pytest.raises(ValueError, match="num_classes="):
        narrow_resnet("gap", 0).attend(images, "gradcam")
