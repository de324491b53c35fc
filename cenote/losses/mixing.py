"""Interpolated examples: λ, which examples are mixed, and similarities without building mixtures.

Positivity [Dissertation Eqs. 2.14-2.23] is how often positive-negative mixtures are pulled, by λ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..unit import unit
from .forms import FORMS, Settings, softplus
from .generic import log_sum
from .metric import GenericLoss, MetricLoss


class Mixable(NamedTuple):
    """A batch of a training step, and how to embed mixtures of it."""

    labels: Tensor  # (B,)
    z: Tensor  # (B, D), not normalised
    maps: Tensor | None = None  # (B, ...) of the last layer
    images: Tensor | None = None  # (B, 3, H, W)
    embed: Callable[[Tensor], Tensor] | None = None  # maps -> z: pool and embedding
    network: Callable[[Tensor], Tensor] | None = None  # images -> z
    # pool and embedding are linear (GAP, Linear): mixed maps give mixed z, nothing is built
    linear: bool = False
    # (maps, b, c, lam) -> z, nothing is built
    mixed: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None


def takes_soft_labels(loss: MetricLoss, user: str) -> GenericLoss:
    if not isinstance(loss, GenericLoss):
        raise ValueError(
            f"{user} needs a loss with soft labels (see `cenote losses`), '{loss.name}' has none"
        )
    return loss


# Random numbers are drawn on the generator's device, then moved: the same on every device.


def beta_draws(
    alpha: float, shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor
) -> Tensor:
    """Draw λ ~ Beta(α, α)."""
    concentration = torch.full((2, *shape), alpha, dtype=torch.float64, device=device(generator))
    g = torch._standard_gamma(concentration, generator=generator).clamp(min=1e-300)
    return (g[0] / g.sum(0)).to(like)


def uniform_draws(
    shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor
) -> Tensor:
    return torch.rand(shape, generator=generator, device=device(generator)).to(like)


def device(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device


def at_most(allowed: Tensor, most: int | None, generator: torch.Generator | None) -> Tensor:
    """Keep at most this number of True in each row of (F, B), chosen at random."""
    if most is None or most >= allowed.shape[1]:
        return allowed
    noise = torch.rand(allowed.shape, generator=generator, device=device(generator))
    return largest(noise.to(allowed.device), allowed, most)


def largest(values: Tensor, allowed: Tensor, most: int) -> Tensor:
    """Return (F, B) bool: the `most` largest allowed values of each row."""
    values = values.detach().masked_fill(~allowed, -torch.inf)
    columns = values.topk(min(most, allowed.shape[1])).indices
    return torch.zeros_like(allowed).scatter(1, columns, True) & allowed


def mixed_similarity(
    anchors: Tensor, firsts: Tensor, seconds: Tensor, which: Tensor, lam: Tensor
) -> Tensor:
    """Return cosines (A, K, B) of anchors (A, D), of length one, and mix(b, c).

    b is one of firsts (F, D) and c any of seconds (B, D). which (A, K): the rows b that each anchor
    is compared with; lam (F, B): how much of b is in the mixture. With l = lam:
    (l <a,b> + (1-l) <a,c>) / |l b + (1-l) c|; all of it follows from inner products, no mixture is
    built.
    """
    # (F, B); one product is enough where anchors, firsts and seconds are the same
    gram = _Gram.apply(firsts) if firsts is seconds else firsts @ seconds.T
    to_second = gram if anchors is firsts else anchors @ seconds.T  # (A, B)
    to_first = to_second if firsts is seconds else anchors @ firsts.T  # (A, F)
    scale = mixed_scale(firsts, seconds, gram, lam)  # (F, B)
    mixed = torch.lerp(to_second[:, None], to_first.gather(1, which)[..., None], lam[which])
    return mixed * scale[which]  # (A, K, B)


def mixed_scale(firsts: Tensor, seconds: Tensor, gram: Tensor, lam: Tensor) -> Tensor:
    """Return 1 / |l b + (1-l) c| of every pair, (F, B), from their inner products."""
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
    """Return run(mix(source[b], source[c])), (M, D), computed in equal chunks.

    No chunk has a single mixture if there are more: a batch norm needs two. `again`: compute them
    once more for the gradient instead of keeping them in memory.
    """

    def one(source: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        weight = lam.to(source.dtype).view(-1, *[1] * (source.ndim - 1))
        return run(torch.lerp(source.index_select(0, c), source.index_select(0, b), weight))

    chunks = []
    count = max(min(-(-len(b) // chunk), len(b) // 2), 1)
    for rows in torch.arange(len(b), device=b.device).tensor_split(count):
        mixture = (source, b[rows], c[rows], lam[rows])
        if again:
            chunks.append(checkpoint(one, *mixture, use_reentrant=False))
        else:
            chunks.append(one(*mixture))
    return torch.cat(chunks)


def rows_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the columns that are True in each row of (A, B), padded to (A, K), and which count."""
    count = mask.sum(1)
    width = max(count.tolist(), default=1) or 1
    which = mask.to(torch.int8).sort(dim=1, descending=True, stable=True).indices[:, :width]
    return which, torch.arange(width, device=mask.device) < count[:, None]


class Positivity(NamedTuple):
    lam: Tensor  # (bins,) the middle of each
    # share of mixtures whose derivative is not positive [Dissertation Eq. 2.16], NaN in an empty bin
    empirical: Tensor
    theoretical: Tensor  # F_λ at the threshold [Dissertation Eq. 2.23]
    total: Tensor  # mixtures in a bin


class Mixtures(NamedTuple):
    """Each anchor's positive-negative mixtures, (A, V) each."""

    similarity: Tensor
    lam: Tensor
    mask: Tensor


def positivity(
    batches: Sequence[Mixtures], settings: Settings | None = None, bins: int = 20
) -> Positivity:
    """Return the curve of multi-similarity [Dissertation Eq. 2.13] over mixtures of batches."""
    rows = []  # empirical, theoretical, λ of each mixture
    for batch in batches:
        columns = (*positive(batch, settings), batch.lam)
        rows.append(torch.stack([column[batch.mask].double() for column in columns]))
    empirical, theoretical, lam = torch.cat(rows, 1)
    place = (lam * bins).long().clamp(0, bins - 1)
    count = torch.bincount(place, minlength=bins)
    shares = [torch.bincount(place, t, minlength=bins) / count for t in (empirical, theoretical)]
    middle = (torch.arange(bins, dtype=torch.float64, device=lam.device) + 0.5) / bins
    return Positivity(middle, shares[0], shares[1], count)


def positive(mixtures: Mixtures, settings: Settings | None = None) -> tuple[Tensor, Tensor]:
    """Return whether each mixture acts as positive, (A, V) bool, by the derivative and the threshold."""
    s, lam, mask = (t.double() for t in mixtures)
    o = {**FORMS["multi-similarity"].settings, **(settings or {})}
    t = s - o["m"]
    pull, push = -o["beta"] * t, o["gamma"] * t
    ups, downs = lam * mask, (1 - lam) * mask
    # [Dissertation Eq. 2.16] with all of V(a) in the denominators, both sides as logarithms: no
    # e^(γt) is formed.
    up = lam.log() + pull - softplus(log_sum(pull, ups))[:, None]
    down = (-lam).log1p() + push - softplus(log_sum(push, downs))[:, None]
    # [Dissertation Eq. 2.22]
    return down <= up, s <= lam.logit() / (o["beta"] + o["gamma"]) + o["m"]


@torch.no_grad()
def mixtures_of(
    z: Tensor, labels: Tensor, alpha: float = 2.0, generator: torch.Generator | None = None
) -> Mixtures:
    """Return all positive-negative mixtures of embeddings in a batch, as Metrix/embed meets them."""
    x = unit(z)
    same = labels[:, None] == labels
    which, is_pair = rows_of(same & ~torch.eye(len(x), dtype=torch.bool, device=x.device))
    lam = beta_draws(alpha, (len(x), len(x)), generator, x)
    s = mixed_similarity(x, x, x, which, lam)
    mask = is_pair[..., None] & ~same[:, None]
    return Mixtures(s.flatten(1), lam[which].flatten(1), mask.flatten(1))
