"""Interpolated examples: how much of each, whom with whom, and what they are like without building
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def beta_draws(
    alpha: float, shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor
) -> Tensor:
    """λ ~ Beta(α, α). Drawn where the generator lives, then moved: the same on every device."""
    concentration = torch.full((2, *shape), alpha, dtype=torch.float64, device=_home(generator))
    g = torch._standard_gamma(concentration, generator=generator).clamp(min=1e-300)
    return (g[0] / g.sum(0)).to(like)


def at_most(allowed: Tensor, most: int | None, generator: torch.Generator | None) -> Tensor:
    """(F, B) bool -> the same with at most so many True in a row, chosen at random."""
    if most is None or most >= allowed.shape[1]:
        return allowed
    noise = torch.rand(allowed.shape, generator=generator, device=_home(generator)).to(
        allowed.device
    )
    return largest(noise, allowed, most)


def largest(values: Tensor, allowed: Tensor, most: int) -> Tensor:
    """(F, B) -> bool: the `most` largest allowed values of each row."""
    places = (
        values.detach().masked_fill(~allowed, -torch.inf).topk(min(most, allowed.shape[1])).indices
    )
    return torch.zeros_like(allowed).scatter(1, places, True) & allowed


def mixed_similarity(
    anchors: Tensor, firsts: Tensor, seconds: Tensor, which: Tensor, lam: Tensor
) -> Tensor:
    """Cosines of anchors (A, D), of length one, and mix(b, c), b one of firsts (F, D) and c any of
    seconds (B, D).

    which (A, K): the rows b that each anchor is compared with; lam (F, B): how much of b is in it.
    -> (A, K, B). With l = lam: (l <a,b> + (1-l) <a,c>) / |l b + (1-l) c|; all of it follows from
    inner products, no mixture is built.
    """
    # (F, B); one product is enough where anchors, firsts and seconds are the same
    gram = _Gram.apply(firsts) if firsts is seconds else firsts @ seconds.T
    to_second = gram if anchors is firsts else anchors @ seconds.T  # (A, B)
    to_first = to_second if firsts is seconds else anchors @ firsts.T  # (A, F)
    scale = mixed_scale(firsts, seconds, gram, lam)  # (F, B)
    return (
        torch.lerp(to_second[:, None], to_first.gather(1, which)[..., None], lam[which])
        * scale[which]
    )  # (A, K, B)


def mixed_scale(firsts: Tensor, seconds: Tensor, gram: Tensor, lam: Tensor) -> Tensor:
    """1 / |l b + (1-l) c| of every pair, (F, B), from their inner products."""
    c = gram.diagonal() if firsts is seconds else seconds.square().sum(1)
    b = c if firsts is seconds else firsts.square().sum(1)
    complement = 1 - lam
    squared_norm = torch.addcmul(lam.square() * b[:, None], complement.square(), c)
    squares = torch.addcmul(squared_norm, lam * complement, gram, value=2)
    # Opposite vectors mixed half and half have no direction: what is left is rounding, measured by
    # their own size.
    return squares.masked_fill(squares.detach() <= 1e-12 * squared_norm.detach(), 1).rsqrt()


class _Gram(torch.autograd.Function):
    """x xᵀ, whose gradient (g + gᵀ) x is one product where autograd makes two."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x @ x.T

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return (g + g.T) @ x


def mixed_vectors(
    source: Tensor,
    b: Tensor,
    c: Tensor,
    lam: Tensor,
    run: Callable[[Tensor], Tensor],
    chunk: int,
    again: bool,
) -> Tensor:
    """run(mix(source[b], source[c])) in equal chunks, (M, D), none of a single mixture if there are
    more: a batch norm cannot do with one. `again`: computed once more for the gradient, not kept.
    """

    def one(source: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        weight = lam.to(source.dtype).view(-1, *[1] * (source.ndim - 1))
        return run(torch.lerp(source.index_select(0, c), source.index_select(0, b), weight))

    chunks = []
    count = max(min(-(-len(b) // chunk), len(b) // 2), 1)
    for rows in torch.arange(len(b), device=b.device).tensor_split(count):
        arguments = (source, b[rows], c[rows], lam[rows])
        chunks.append(
            checkpoint(one, *arguments, use_reentrant=False) if again else one(*arguments)
        )
    return torch.cat(chunks)


def rows_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(A, B) bool -> the columns that are True in each row, padded to (A, K), and which of them are
    meant.
    """
    count = mask.sum(1)
    width = max(int(count.max()), 1) if len(count) else 1
    which = mask.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :width]
    return which, torch.arange(width, device=mask.device) < count[:, None]


def _home(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device
