"""See what layers hand to fused attention: queries, keys and values of every call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

T = TypeVar("T")


class AttentionCall(NamedTuple):
    """One call of attention: q (B, h, Nq, d), k and v (B, h, N, d)."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    scale: float | None = None

    def scores(self, rows: slice = slice(None)) -> Tensor:
        """What the softmax gets: q k^T / sqrt d plus the position biases, (B, h, rows, N)."""
        scores = self.q[..., rows, :] @ self.k.mT * (self.scale or self.q.shape[-1] ** -0.5)
        if self.mask is None:
            return scores
        mask = self.mask.expand(*self.mask.shape[:-2], self.q.shape[-2], -1)[..., rows, :]
        if mask.dtype == torch.bool:
            return scores.masked_fill(~mask, -torch.inf)
        return scores + mask

    def cls_scores(self) -> Tensor:
        """<q_CLS, k> / sqrt d over all tokens, (B, h, prefix + N)."""
        return self.scores(slice(0, 1))[..., 0, :]


class AttentionHook(TorchFunctionMode, Generic[T]):
    """While it is on, `seen` collects `look(call)` of every attention, the last `keep` of them."""

    def __init__(self, look: Callable[[AttentionCall], T], keep: int | None = None) -> None:
        super().__init__()
        self.look = look
        self.seen: deque[T] = deque(maxlen=keep)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_attention = func is F.scaled_dot_product_attention and not kwargs.get("is_causal")
        if is_attention and args[0].ndim == 4:  # five dimensions are windows, in their own order
            self.seen.append(self.look(_call(*args, **kwargs)))
        return func(*args, **kwargs)


class CorrelativeAttention(TorchFunctionMode):
    """While it is on, attention is softmax(q q^T) v + softmax(k k^T) v [SCLIP Eq. 3].

    A position attends to those that are like it, and to itself first.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        call = _call(*args, **kwargs)
        alike = (call._replace(k=call.q), call._replace(q=call.k))
        return sum(pair.scores().softmax(-1) @ call.v for pair in alike)


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
