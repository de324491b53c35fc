"""Multi-head cross attention of few queries over many tokens, in which no key and no value is ever
computed.

Keys and values are linear in x, so q·(W_K x_j) = (W_K^T q)·x_j and sum_j a_j W_V x_j = W_V sum_j
a_j x_j: the key map moves to the query and the value map behind the pooling. Same parameters, same
function, without the two N x D products. k queries of m heads make k m maps, the heads of a query
side by side [SimPool Eq. B49].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .framework import DOT, Algorithm, Component, Variables

Tokens = Callable[[Variables], Tensor]
M = TypeVar("M", bound=nn.Module)


def head_count(dim: int, heads: int | None, usual: int) -> int:
    """`heads`, or by default the largest divisor of `dim` that is not above the `usual` number."""
    if heads is not None:
        return heads
    return next(m for m in range(max(1, min(usual, dim)), 0, -1) if dim % m == 0)


def check_split(dim: int, parts: int, option: str) -> None:
    """Refuse `parts` blocks that do not divide `dim` channels."""
    if parts < 1 or dim % parts:
        near = head_count(dim, None, parts)
        raise ValueError(f"{option}={parts} does not split {dim} channels evenly; {near} does")


class CrossAttention(nn.Module):
    """softmax((W_Q u)ᵀ W_K X / √d) over each head, W_U of the pooled values."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        out_dim: int | None = None,
        q_map: bool = True,
        bias: bool = True,
        key_bias: bool = True,
        proj: bool = True,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        check_split(dim, heads, "heads")
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.q = nn.Linear(dim, dim, bias) if q_map else nn.Identity()
        self.k = nn.Linear(dim, dim, bias and key_bias)
        self.v = nn.Linear(dim, dim, bias)
        self.proj = nn.Linear(dim, out_dim or dim) if proj else nn.Identity()
        init_linear(self, std)

    def forward(self, u: Tensor, x: Tensor, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Queries u, (k, D) for all images or (B, k, D), over tokens x (B, N, D), and over the
        tokens `own` if given.

        Returns (B, k, D') and the maps over x, (B, k m, N); with `own` these sum to less than one.
        """
        w, c = self.fold(u)
        s = w @ x.mT + c  # (B, k m, N)
        if own is None:
            a = s.softmax(-1)
            return self.value(a @ x), a
        a = torch.cat([w @ own.mT + c, s], -1).softmax(-1)
        a_own, a = torch.split(a, [own.shape[1], x.shape[1]], -1)
        return self.value(a @ x + a_own @ own), a

    def fold(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """u (..., k, D) -> W_K,hᵀ q_h / √d (..., k m, D), and the key bias' part (..., k m, 1)."""
        q = split(self.q(u) * self.scale, -1, self.heads)  # (..., k, m, d)
        weight = split(self.k.weight, 0, self.heads)
        w = torch.einsum("...md,mdc->...mc", q, weight)  # (..., k, m, D)
        # One number per query, which the softmax ignores: kept for the (zero) gradient of the bias.
        b = torch.zeros_like(self.k.weight[0]) if self.k.bias is None else self.k.bias
        c = (q * split(b, 0, self.heads)).sum(-1, keepdim=True)  # (..., k, m, 1)
        return w.flatten(-3, -2), c.flatten(-3, -2)

    def value(self, z: Tensor) -> Tensor:
        """Pooled tokens (B, k m, D) -> W_U (W_V,h z_h + b_V,h), (B, k, D'); maps sum to one."""
        z = torch.unflatten(z, 1, (-1, self.heads))  # (B, k, m, D)
        y: Tensor = self.proj(apply_blocks(z, self.v.weight, self.v.bias))
        return y

    def among(self, x: Tensor) -> Tensor:
        """Self attention, all tokens over all tokens: (B, N, D) -> (B, N, D')."""
        q, k, v = (split(f(x), -1, self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        y: Tensor = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return y


def split(x: Tensor, axis: int, parts: int) -> Tensor:
    """g_m: an axis of D channels as (m, D / m)."""
    return torch.unflatten(x, axis, (parts, -1))


def apply_blocks(z: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The h-th rows of `weight` (D', D) on the h-th vector: z (B, k, m, D) -> (B, k, D')."""
    y = torch.einsum("bkmc,mdc->bkmd", z, split(weight, 0, z.shape[2])).flatten(2)
    return y if bias is None else y + bias


def mlp(dim: int, ratio: float, std: float = 0.02) -> nn.Sequential:
    hidden = int(dim * ratio)
    if hidden < 1:
        raise ValueError(f"mlp_ratio={ratio} leaves no hidden channel for dim={dim}")
    layers = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
    return init_linear(layers, std)


def init_linear(module: M, std: float) -> M:
    """Truncated normal weights, zero biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=std)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module


def learned(*shape: int, std: float = 0.02) -> nn.Parameter:
    return nn.Parameter(nn.init.trunc_normal_(torch.empty(shape), std=std))


# The same attention with its keys and values, as rows of Algorithm 1.


def block_diagonal(q: Tensor, heads: int) -> Tensor:
    """One query as m in orthogonal subspaces [SimPool Eq. B49]: (B, k, D) -> (B, k m, D)."""
    return (q.unsqueeze(2) * _blocks(q, heads)).flatten(1, 2)


def own_blocks(z: Tensor, heads: int) -> Tensor:
    """Of the h-th pooled vector the h-th block, g_m⁻¹: (B, k m, D) -> (B, k, D)."""
    return (torch.unflatten(z, 1, (-1, heads)) * _blocks(z, heads)).sum(2)


def _blocks(x: Tensor, heads: int) -> Tensor:
    """(m, D), ones where a channel belongs to a head."""
    eye = torch.eye(heads, dtype=x.dtype, device=x.device)
    return eye.repeat_interleave(x.shape[-1] // heads, 1)


def shared(u: Tensor) -> Component:
    """U⁰ learned, the same for all images: u (k, D) -> (B, k, D)."""
    return Component("U", lambda c: u.expand(c.x.shape[0], -1, -1))


def attention_row(
    layer: Callable[[Variables], CrossAttention],
    *,
    init: Component,
    query: Tokens,  # what W_Q maps
    keys: Tokens,  # what W_K maps
    values: Tokens | None = None,  # what W_V maps, where that differs
    own: Tokens | None = None,  # further tokens, attended before the features
    out: Callable[[Variables, Tensor], Tensor] | None = None,  # what follows W_U
    labels: tuple[str, str, str, str] = ("g_m(W_Q U)", "g_m(W_K X)", "g_m(W_V X)", "W_U g_m⁻¹(Z)"),
    phi_x: Component | None = None,
    iterations: int = 1,
) -> Algorithm:
    """The row of a method built on `CrossAttention`. Labels: φ_Q, φ_K, φ_V, φ_U."""
    values = values or keys

    def phi_k(c: Variables) -> Tensor:
        x = keys(c)
        k: Tensor = layer(c).k(x if own is None else torch.cat([own(c), x], 1))
        return k

    def over_all(c: Variables) -> Tensor:
        return torch.softmax(c.s * layer(c).scale, -1)

    def attention(c: Variables) -> Tensor:
        return over_all(c)[..., -c.x.shape[1] :]

    def phi_u(c: Variables) -> Tensor:
        z = c.z
        if own is not None:
            z = z + over_all(c)[..., : -c.x.shape[1]] @ layer(c).v(own(c))
        y: Tensor = layer(c).proj(own_blocks(z, layer(c).heads))
        return y if out is None else out(c, y)

    return Algorithm(
        init=init,
        phi_q=Component(labels[0], lambda c: block_diagonal(layer(c).q(query(c)), layer(c).heads)),
        phi_k=Component(labels[1], phi_k),
        similarity=DOT,
        attention=Component("σ₂(S_i/√d)", attention),
        phi_v=Component(labels[2], lambda c: layer(c).v(values(c))),
        phi_x=phi_x,
        phi_u=Component(labels[3], phi_u),
        iterations=iterations,
    )
