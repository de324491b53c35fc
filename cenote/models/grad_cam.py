"""Grad-CAM and its relatives, computed by the package `grad-cam` for any backbone, pool and
head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..backbones import Features
from ..extras import require
from .cam import Classes, as_classes

if TYPE_CHECKING:
    from .pooled import PooledModel


def grad_cam(
    model: PooledModel, images: Tensor, classes: Classes = None, method: str = "GradCAM"
) -> Tensor:
    """(B, m, H, W), each map from 0 to 1. `method` is a class of `pytorch_grad_cam`:
    "GradCAMPlusPlus", "LayerCAM"...

    It looks at the tokens that are pooled; for a CLS model at the input of the last block, the last
    place where the patches still matter. Parameters, gradients and training mode are left as they
    were.
    """
    package = require("pytorch_grad_cam", extra="cam")
    maker = getattr(package, method, None)
    if not isinstance(maker, type):
        raise ValueError(
            f"grad-cam has no method '{method}' (GradCAM, GradCAMPlusPlus, LayerCAM, EigenCAM, ...)"
        )
    if model.head is None:
        raise ValueError("Grad-CAM needs a head: num_classes=... makes one")
    with _untouched(model), torch.enable_grad():
        with torch.no_grad():
            features = model.features(images)
            class_ids = as_classes(classes, model.head(model.embed_features(features)))
        tail = _Tail(model)
        layer = tail.seen if model.pool is not None else _last_norm(model)
        grid, patches = features.grid, features.grid[0] * features.grid[1]

        def to_map(x: Tensor) -> Tensor:  # (B, prefix + N, D) or (B, D, H, W) -> (B, D, H, W)
            return x if x.ndim == 4 else x[:, -patches:].transpose(1, 2).unflatten(2, grid)

        maps = []
        with maker(model=tail, target_layers=[layer], reshape_transform=to_map) as run:
            run.get_target_width_height = lambda _: grid[
                ::-1
            ]  # the grid's own size: resizing is for pictures
            for column in class_ids.T:
                targets = [
                    package.utils.model_targets.ClassifierOutputTarget(int(c)) for c in column
                ]
                maps.append(torch.from_numpy(run(images.detach().requires_grad_(), targets)))
    return torch.stack(maps, 1).to(images)


class _Tail(nn.Module):
    """The model with a place to look at: the feature map as (B, D, H, W) goes through `seen`."""

    def __init__(self, model: PooledModel) -> None:
        super().__init__()
        self.model, self.seen = model, nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        model = self.model
        assert model.head is not None
        if model.pool is None:
            return model(images)
        with torch.no_grad():  # the gradient ends at the map
            tokens, grid, cls = model.features(images)
        x = self.seen(tokens.transpose(1, 2).unflatten(2, grid).requires_grad_())
        return model.head(model.embed_features(Features(x.flatten(2).transpose(1, 2), grid, cls)))


def _last_norm(model: PooledModel) -> nn.Module:
    """The LayerNorm at the entrance of the last block in which CLS attends."""
    encoder = model.backbone.model
    names = ("blocks_token_only", "cls_attn_blocks", "blocks")
    blocks = next(
        (
            b
            for n in names
            if isinstance(b := getattr(encoder, n, None), nn.Sequential | nn.ModuleList)
        ),
        None,
    )
    norm = getattr(blocks[-1], "norm1", None) if blocks is not None and len(blocks) else None
    if not isinstance(norm, nn.Module):
        raise ValueError(
            f"Grad-CAM does not know where the CLS token of '{model.backbone.name}' last attends"
        )
    return norm


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """The package switches to eval and clears gradients; what a training loop had is put back."""
    modes = [(m, m.training) for m in model.modules()]
    grads = [(p, p.grad) for p in model.parameters()]
    for p, _ in grads:
        p.grad = None
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for p, grad in grads:
            p.grad = grad
