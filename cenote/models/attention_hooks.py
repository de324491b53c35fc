"""Seeing what attention layers hand to `scaled_dot_product_attention`, while a backbone runs as it
always does.

Queries and keys come after rotation and normalisation, with position biases and registers, whatever
the family adds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..backbones import Backbone, Features

T = TypeVar("T")


class AttentionCall(NamedTuple):
    """One call of attention: q (B, h, Nq, d), k and v (B, h, N, d)."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    scale: float | None = None

    def scores(self, rows: slice = slice(None)) -> Tensor:
        """What the softmax gets, for some queries: q k^T / sqrt d plus the position biases,
        (B, h, rows, N).
        """
        scale = self.q.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = self.q[..., rows, :] @ self.k.mT * scale
        if self.mask is None:
            return scores
        mask = self.mask if self.mask.shape[-2] == 1 else self.mask[..., rows, :]
        return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask


class AttentionHook(TorchFunctionMode, Generic[T]):
    """While it is on, `seen` collects `look(call)` of every attention, the last `keep` of them."""

    def __init__(self, look: Callable[[AttentionCall], T], keep: int | None = None) -> None:
        super().__init__()
        self.look = look
        self.seen: deque[T] = deque(maxlen=keep)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Five dimensions are windows, in an order of their own.
        if (
            func is F.scaled_dot_product_attention
            and not kwargs.get("is_causal")
            and args[0].ndim == 4
        ):
            self.seen.append(self.look(_call(*args, **kwargs)))
        return func(*args, **kwargs)


def _call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionCall:
    if enable_gqa:  # several query heads share one key head
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    return AttentionCall(query, key, value, attn_mask, scale)


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """Fused attention in every layer that can, for this run: it is the place where we look."""
    off = [m for m in model.modules() if getattr(m, "fused_attn", None) is False]
    for module in off:
        module.fused_attn = True  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in off:
            module.fused_attn = False  # type: ignore[assignment]


def run_with_hook(
    model: nn.Module, images: Tensor, look: Callable[[AttentionCall], T], keep: int | None = None
) -> tuple[Features, list[T]]:
    """Run the backbone once: its features, and what was seen. For those who need both, such as a
    loss on attention.
    """
    backbone = backbone_of(model)
    with fused(backbone), AttentionHook(look, keep) as watch:
        features: Features = backbone(images)
    return features, list(watch.seen)


def backbone_of(model: nn.Module) -> Backbone:
    backbone = getattr(model, "backbone", model)
    if not isinstance(backbone, Backbone):
        raise TypeError(
            f"attention maps take a model of create_model or a backbone, got {type(model).__name__}"
        )
    return backbone
