"""Create the pool `own`: the pooling that an encoder was trained with."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..pooling.own import Layout, OwnPool, take_head
from .surgery import on_vectors, take_norm_behind

log = logging.getLogger(__name__)
Own = OwnPool | str  # "cls" or "gap"
OWN_OPTIONS = ("frozen",)
OF_LAST_LAYER = (
    "the own pooling of an encoder is for its last layer: with several, use another pool"
)


class NoOwnPool(ValueError):
    """Raised for an encoder whose pooling is unknown, and for features of several layers."""


def create_own_pool(backbone: Backbone, frozen: bool = False) -> Own:
    """Return the encoder's own pooling, or "cls" or "gap" if it is the same as one of these.

    The encoder runs once. From then on its features have all tokens that the pool needs.
    """
    if not hasattr(backbone.model, "forward_head"):  # networks of the papers
        return "cls" if backbone.has_cls else "gap"
    training = backbone.training
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            pool = _create(backbone.eval())
        finally:
            backbone.train(training)
    if isinstance(pool, OwnPool) and frozen:
        pool.freeze()
    return pool


def default_pool(backbone: Backbone) -> Own:
    """Return the pool of a backbone that comes without one, for maps, vectors and search.

    It is the encoder's own pooling or, where that is unknown, the CLS token, else average pooling.
    """
    try:
        return create_own_pool(backbone)
    except NoOwnPool as error:
        log.info("note: %s, as is done here.", error)
        return "cls" if backbone.has_cls else "gap"


def copy_own_pool(pool: Own, frozen: bool = False) -> Own:
    """Return a pool with weights of its own, which do not change if it is `frozen`."""
    pool = copy.deepcopy(pool)
    if isinstance(pool, OwnPool) and frozen:
        pool.freeze()
    return pool


def own_tokens(pool: Own) -> str:
    """Return what is pooled: the "patches", or "all" if tokens in front of them count."""
    return "all" if isinstance(pool, OwnPool) and pool.prefix else "patches"


def _create(backbone: Backbone) -> Own:
    model: Any = backbone.model
    if not getattr(model, "has_own_pooling", True):  # of transformers
        raise NoOwnPool(
            f"the own pooling of '{backbone.name}' is not a function of its last feature map that "
            f"Cenote knows: use the pool '{'cls' if backbone.has_cls else 'gap'}'"
        )
    parameter = next(model.parameters())
    size = backbone.native_size()
    images = torch.randn(1, 3, *size, dtype=parameter.dtype, device=parameter.device)
    with torch.no_grad():
        x = model.forward_features(images)
        features: Features = backbone(images)
    head, gradient = take_head(model, x)
    if isinstance(x, Tensor):
        if name := _same_as(head, x, features, backbone.final_norm() is not None):
            return name
        pool = _of_one_map(backbone, head, x, gradient)
    else:
        pool = _of_several_maps(backbone, head, x)
    backbone.registers = max(pool.prefix - backbone.has_cls, 0)
    with torch.no_grad():
        features = backbone(images)
        tokens = features.all_tokens(registers=True) if pool.prefix else features.tokens
        pool.inspect(tokens, features.grid)
    return pool


def _of_one_map(backbone: Backbone, head: nn.Module, x: Tensor, gradient: Tensor) -> OwnPool:
    if x.ndim == 4:
        return OwnPool(backbone.dim, head, "NCHW" if backbone.is_channels_first(x) else "NHWC")
    counts = gradient[0, : backbone.prefix].abs().amax(-1) > 0
    prefix = max(counts.nonzero().flatten().tolist(), default=-1) + 1
    return OwnPool(backbone.dim, head, "tokens", prefix, backbone.prefix - prefix)


def _of_several_maps(backbone: Backbone, head: nn.Module, x: list[Tensor]) -> OwnPool:
    layout: Layout = "tokens" if x[-1].shape[2] == backbone.dim else "NCL"
    widths = tuple(m.shape[2 if layout == "tokens" else 1] for m in x[:-1])
    return OwnPool(backbone.dim, head, layout, backbone.has_cls + len(widths), widths=widths)


@torch.no_grad()
def _same_as(head: nn.Module, x: Tensor, features: Features, has_norm: bool) -> str:
    """Return the pool that makes the same vector of features x whatever the weights are.

    A norm may follow it, unless the encoder has one before it: see `place_norm`.
    """
    head = copy.deepcopy(head).eval()
    for tensor in (*head.parameters(), *head.buffers()):
        if tensor.is_floating_point():
            tensor.uniform_(0.5, 1.5)
    forward_head: Any = head.forward_head
    u = forward_head(x, pre_logits=True)
    norm = take_norm_behind(head)
    if any(True for _ in head.parameters()) or (norm is not None and has_norm):
        return ""
    after = nn.Identity() if norm is None else on_vectors(norm)
    vectors = {"cls": features.cls, "gap": features.tokens.mean(1)}
    return next((k for k, v in vectors.items() if v is not None and _close(after(v), u)), "")


def _close(vector: Tensor, other: Tensor) -> bool:
    return vector.shape == other.shape and torch.allclose(vector, other, 1e-4, 1e-5)
