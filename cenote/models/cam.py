"""Class activation maps: the head's linear layer, applied to the tokens before they are pooled; and
Grad-CAM, for any backbone, pool and head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..extras import require
from ..pooling.own import OwnPool
from .head import Embedding, PoolAndHead

Classes = int | Sequence[int] | Tensor | None


def cam(model: PoolAndHead, features: Features, classes: Classes = None) -> Tensor:
    """(B, m, H, W), m = 1 for one class an image: what each position adds to the logit, without the
    bias.

    `classes`: one for all, one for each image (B,), several for each (B, m), or None for the
    predicted ones. For average pooling the mean of the map plus the bias is the logit, also where a
    norm stands between pool and head. A method of localization may weigh channels in its own way,
    or join the maps of several classifiers, each from 0 to 1.
    """
    if problem := why_no_cam(model):
        raise ValueError(problem)
    if model.wsol is None:
        return linear_cam(model, features, classes)
    class_ids = as_classes(classes, model.classify(features))
    maps = [linear_cam(*branch, class_ids) for branch in model.wsol.branches(model, features)]
    if len(maps) == 1:
        return maps[0]
    return torch.stack([minmax(branch_maps) for branch_maps in maps]).amax(0)


def linear_cam(model: PoolAndHead, features: Features, classes: Classes = None) -> Tensor:
    """Return `cam` of one classifier."""
    head, pool = model.head, model.pool
    assert head is not None and pool is not None
    features = model.before_pool(features)
    tokens, u = pool.local(features.tokens), model.pool_prepared(features)[0]
    u = u if u.ndim == 3 else u[:, None]  # (B, k, D)
    logits = _logits_of_vectors(model, u)  # (B, k, classes)
    class_ids = as_classes(classes, logits.amax(1))  # (B, m)
    scores = logits.gather(2, class_ids[:, None].expand(-1, u.shape[1], -1))
    winner = scores.argmax(1)  # (B, m): which of the k vectors
    images = torch.arange(u.shape[0], device=u.device)  # len(u) would fix the batch of an export
    maps = []
    for i in range(class_ids.shape[1]):
        x = head.settled(_behind(model, tokens, u[images, winner[:, i]]))  # (B, N, D)
        w = head.linear.weight[class_ids[:, i]]  # (B, D)
        if model.wsol is not None:
            w = model.wsol.class_weights(w)
        maps.append((x @ w[..., None]).squeeze(-1))  # (B, N)
    return torch.stack(maps, 1).unflatten(-1, features.grid)


@torch.no_grad()
def target_cam(model: PoolAndHead, features: Features, labels: Tensor) -> Tensor:
    """Return the map (B, 1, H, W) of each image's class from 0 to 1, as a target without gradient.

    Of mixed labels (B, classes) the class is the largest.
    """
    return minmax(linear_cam(model, features, labels.argmax(1) if labels.ndim == 2 else labels))


def why_no_cam(model: PoolAndHead) -> str:
    """Why a class activation map of this model would say nothing; empty if it has one."""
    head, pool = model.head, model.pool
    if head is None:
        return "a class activation map needs a head: num_classes=... makes one"
    if pool is None:
        return "the CLS token is not pooled from positions: no CAM, but kind='cls' or 'gradcam'"
    if isinstance(pool, OwnPool):
        return "the pooling has layers of its own before the head: no CAM, but kind='gradcam' works"
    if pool.out_dim != pool.dim:
        return (
            f"'{pool.name}' makes {pool.out_dim} channels of {pool.dim}: the head does not fit the "
            "unpooled tokens; kind='gradcam' works"
        )
    if head.project is not None or (pool.k > 1 and isinstance(model.embedding, Embedding)):
        return (
            "an embedding, or combine='concat', weighs each of several pooled vectors in its own "
            "way: a position has no single CAM"
        )
    return ""


def map_of_features(
    model: PoolAndHead, features: Features, classes: Tensor, kind: str = "auto"
) -> Tensor:
    """The map (B, H, W) for one class of each image (B,): the pool's own, or a CAM.

    `kind` is "pool", "cam", or "auto": the first that there is. Of several vectors that are judged
    one by one the map of the deciding one is taken, otherwise the mean of the maps.
    """
    pool = model.pool
    assert pool is not None, "without a pool the maps are the backbone's"
    if kind == "cam" or (kind == "auto" and pool.no_attention):
        return cam(model, features, classes)[:, 0]
    u, a = model.pool_features(features)
    if a is None:
        raise ValueError(f"'{pool.name}' has no attention map of its own: {pool.no_attention}")
    if not judges_each_vector(model) or a.shape[1] != pool.k:
        return a.mean(1)
    logits = _logits_of_vectors(model, u)  # (B, k, classes)
    winner = logits.gather(2, classes[:, None, None].expand(-1, pool.k, 1)).argmax(1)[:, 0]  # (B,)
    return a[torch.arange(len(a), device=a.device), winner]


def judges_each_vector(model: PoolAndHead) -> bool:
    """Whether the head judges each of several vectors by itself and takes the best."""
    if model.pool is None or model.pool.k == 1 or isinstance(model.embedding, Embedding):
        return False
    return model.head is not None and model.head.project is None


def minmax(maps: Tensor) -> Tensor:
    """Each map scaled to 0..1; a constant one, or one that is not finite, becomes zero."""
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    usable = (high > low) & low.isfinite() & high.isfinite()
    return torch.where(usable, (maps - low) / torch.where(usable, high - low, 1), 0)


def as_classes(classes: Classes, logits: Tensor) -> Tensor:
    """(B, m) indices, checked against logits (B, classes)."""
    if classes is None:
        return logits.argmax(-1, keepdim=True)
    class_ids = torch.as_tensor(classes, device=logits.device)
    if class_ids.ndim == 0:
        class_ids = class_ids.expand(len(logits))
    if class_ids.ndim == 1:
        class_ids = class_ids[:, None]
    integers = not class_ids.is_floating_point() and class_ids.dtype != torch.bool
    if not integers or class_ids.ndim != 2 or len(class_ids) != len(logits):
        raise ValueError(
            f"classes are one whole number, (B,) or (B, m) for {len(logits)} images, got "
            f"{tuple(class_ids.shape)} of {class_ids.dtype}"
        )
    bad = class_ids[(class_ids < 0) | (class_ids >= logits.shape[-1])]
    if bad.numel():
        raise ValueError(f"there are {logits.shape[-1]} classes, from 0: no class {int(bad[0])}")
    return class_ids.long()


def _logits_of_vectors(model: PoolAndHead, u: Tensor) -> Tensor:
    """(B, k, D) -> (B, k, classes), or (B, 1, classes) behind an embedding."""
    assert model.head is not None
    v = model.refine(u)
    logits: Tensor = model.head.linear(model.head.settled(v if v.ndim == 3 else v[:, None]))
    return logits


def _behind(model: PoolAndHead, tokens: Tensor, u: Tensor) -> Tensor:
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
        if norm.weight is not None:
            x = x * norm.weight
        return x if norm.bias is None else x + norm.bias
    if hasattr(norm, "running_mean"):
        return norm(tokens.transpose(1, 2)).transpose(1, 2)
    raise ValueError(
        f"no CAM through a {type(norm).__name__} between pool and head: norm='before' or 'none'"
    )


def grad_cam(
    model: PoolAndHead,
    backbone: Backbone,
    images: Tensor,
    classes: Classes = None,
    method: str = "GradCAM",
) -> Tensor:
    """(B, m, H, W), each map from 0 to 1. `method` is a class of the package `grad-cam`:
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
            features: Features = backbone(images)
            class_ids = as_classes(classes, model.classify(features))
        tail = _Tail(model, backbone)
        layer = tail.seen if model.pool is not None else _last_norm(backbone)
        grid, patches = features.grid, features.grid[0] * features.grid[1]

        def to_map(x: Tensor) -> Tensor:  # (B, prefix + N, D) or (B, D, H, W) -> (B, D, H, W)
            return x if x.ndim == 4 else x[:, -patches:].transpose(1, 2).unflatten(2, grid)

        maps = []
        target = package.utils.model_targets.ClassifierOutputTarget
        with maker(model=tail, target_layers=[layer], reshape_transform=to_map) as run:
            run.get_target_width_height = lambda _: grid[::-1]  # do not resize the maps
            for column in class_ids.T:
                targets = [target(int(c)) for c in column]
                maps.append(torch.from_numpy(run(images.detach().requires_grad_(), targets)))
    return torch.stack(maps, 1).to(images)


class _Tail(nn.Module):
    """The model with a place to look at: the feature map as (B, D, H, W) goes through `seen`."""

    def __init__(self, model: PoolAndHead, backbone: Backbone) -> None:
        super().__init__()
        self.model, self.backbone, self.seen = model, backbone, nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        if self.model.pool is None:
            return self.model.classify(self.backbone(images))
        with torch.no_grad():  # the gradient ends at the map
            features: Features = self.backbone(images)
        tokens, grid = features.tokens, features.grid
        x = self.seen(tokens.transpose(1, 2).unflatten(2, grid).requires_grad_())
        return self.model.classify(features._replace(tokens=x.flatten(2).transpose(1, 2)))


def _last_norm(backbone: Backbone) -> nn.Module:
    """The LayerNorm at the entrance of the last block in which CLS attends."""
    for name in ("blocks_token_only", "cls_attn_blocks", "blocks"):
        blocks = getattr(backbone.model, name, None)
        if isinstance(blocks, nn.Sequential | nn.ModuleList) and len(blocks):
            norm = getattr(blocks[-1], "norm1", None)
            if isinstance(norm, nn.Module):
                return norm
    raise ValueError(f"Grad-CAM does not know where the CLS token of '{backbone.name}' attends")


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
