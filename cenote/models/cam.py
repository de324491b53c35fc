"""Class activation maps: the head's linear layer, applied to the tokens before they are pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..backbones import Features
from .embedding import Embedding
from .head import Head

if TYPE_CHECKING:
    from .pooled import PooledModel

Classes = int | Sequence[int] | Tensor | None


def cam(
    model: PooledModel, images: Tensor, classes: Classes = None, positive: bool = False
) -> Tensor:
    """(B, m, H, W), m = 1 for one class an image: what each position adds to the logit, without the
    bias.

    `classes`: one for all, one for each image (B,), several for each (B, m), or None for the
    predicted ones. For average pooling the mean of the map plus the bias is the logit, also where a
    norm stands between pool and head. `positive=True` drops what speaks against the class.
    """
    return cam_of_features(model, model.features(images), classes, positive)


def cam_of_features(
    model: PooledModel, features: Features, classes: Classes = None, positive: bool = False
) -> Tensor:
    """The same of features computed before, for instance from a cache."""
    head = linear_head(model)
    pooled = model.pool_features(features)[0]
    u = pooled if pooled.ndim == 3 else pooled[:, None]  # (B, k, D)
    v = model.refine(u)
    logits = head.linear(_settled(head, v if v.ndim == 3 else v[:, None]))  # (B, k, classes)
    class_ids = as_classes(classes, logits.amax(1))  # (B, m)
    winner = logits.gather(2, class_ids[:, None].expand(-1, u.shape[1], -1)).argmax(
        1
    )  # (B, m): which of the k vectors
    w = head.linear.weight[class_ids]  # (B, m, D)
    images = torch.arange(len(u), device=u.device)
    maps = []
    for i in range(class_ids.shape[1]):
        x = _settled(head, _behind(model, features.tokens, u[images, winner[:, i]]))  # (B, N, D)
        maps.append((x @ w[:, i, :, None]).squeeze(-1))  # (B, N)
    out = torch.stack(maps, 1).unflatten(-1, features.grid)
    return out.clamp_min(0) if positive else out


def minmax(maps: Tensor) -> Tensor:
    """Each map scaled to 0..1; a constant one, or one that is not finite, becomes zero."""
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    fine = (high > low) & low.isfinite() & high.isfinite()
    return torch.where(fine, (maps - low) / torch.where(fine, high - low, 1), 0)


def linear_head(model: PooledModel) -> Head:
    """The head, if a class activation map of it says anything; else a sentence."""
    head, pool = model.head, model.pool
    if head is None:
        raise ValueError("a class activation map needs a head: num_classes=... makes one")
    if pool is None:
        raise ValueError(
            "the CLS token is not pooled from positions, so there is no CAM: kind='cls' or 'gradcam'"
        )
    if head.project is not None:
        raise ValueError(
            "combine='concat' weighs each pooled vector in its own way, so a position has no single CAM"
        )
    if pool.out_dim != pool.dim:
        raise ValueError(
            f"'{pool.name}' makes {pool.out_dim} channels of {pool.dim}: the head does not fit the unpooled tokens; "
            "kind='gradcam' works"
        )
    if pool.k > 1 and isinstance(model.embedding, Embedding):
        raise ValueError(
            "the embedding weighs each pooled vector in its own way, so a position has no single CAM"
        )
    return head


def as_classes(classes: Classes, logits: Tensor) -> Tensor:
    """(B, m) indices, checked against logits (B, classes)."""
    if classes is None:
        return logits.argmax(-1, keepdim=True)
    class_ids = torch.as_tensor(classes, device=logits.device)
    if class_ids.is_floating_point() or class_ids.dtype == torch.bool:
        raise ValueError(f"classes are whole numbers, got {class_ids.dtype}")
    class_ids = class_ids.long()
    if class_ids.ndim == 0:
        class_ids = class_ids.expand(len(logits))
    class_ids = class_ids[:, None] if class_ids.ndim == 1 else class_ids
    if class_ids.ndim != 2 or len(class_ids) != len(logits):
        raise ValueError(
            f"classes are one number, (B,) or (B, m) for {len(logits)} images, got {tuple(class_ids.shape)}"
        )
    bad = class_ids[(class_ids < 0) | (class_ids >= logits.shape[-1])]
    if bad.numel():
        raise ValueError(f"there are {logits.shape[-1]} classes, from 0: no class {int(bad[0])}")
    return class_ids


def _settled(head: Head, x: Tensor) -> Tensor:
    """The head's BatchNorm with the statistics it has gathered: a map must not depend on the other
    images.
    """
    return x if head.norm is None else head.norm.settled(x)


def _behind(model: PooledModel, tokens: Tensor, u: Tensor) -> Tensor:
    """What the pooled vector u (B, D) goes through on its way to the head, on tokens."""
    x = _after(model.after, tokens, u)
    if not isinstance(model.embedding, Embedding):
        return x
    z: Tensor = model.embedding.linear(_after(model.embedding.norm, x, model.after(u)))
    return z


def _after(norm: nn.Module, tokens: Tensor, u: Tensor) -> Tensor:
    """The norm behind the pool, on tokens, with the statistics of the pooled vector u (B, D).

    So it stays the affine map that the vector went through, and the parts still add up to the
    logit.
    """
    if isinstance(norm, nn.Identity):
        return tokens
    if isinstance(norm, nn.LayerNorm):
        variance, mean = torch.var_mean(u, -1, correction=0, keepdim=True)  # (B, 1)
        x = (tokens - mean[:, None]) * (variance[:, None] + norm.eps).rsqrt()
        return (
            x if norm.weight is None else x * norm.weight + (0 if norm.bias is None else norm.bias)
        )
    if hasattr(norm, "running_mean"):
        return norm(tokens.transpose(1, 2)).transpose(1, 2)
    raise ValueError(
        f"no CAM through a {type(norm).__name__} between pool and head: norm='before' or 'none' allows it"
    )
