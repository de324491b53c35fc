"""Rivals of Metrix, which mix otherwise: i-Mix, MoCHi and Proxy Synthesis.

They are called as Metrix is: with the loss, the batch, a generator and a memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..options import check_number, check_words
from ..unit import unit
from .generic import generic_terms, per_anchor
from .metric import GenericLoss, Memory, MetricLoss
from .mixing import Mixable, at_most, beta_draws, mixed_vectors, takes_soft_labels, uniform_draws


@dataclass(frozen=True)
class IMix:
    """i-Mix (Lee et al., 2021): the anchor is a mixed image, and losses are mixed, not labels.

    Each image is mixed with one of another class, as Dissertation Table 2.4 compares it; `alpha` as
    published.
    """

    weight: float = 0.4
    alpha: float = 1.0
    needs_images = True
    needs_maps = False

    def __post_init__(self) -> None:
        check_number("weight of i-Mix", self.weight, least=0)
        check_number("alpha of i-Mix", self.alpha, above=0)

    def __call__(
        self,
        loss: MetricLoss,
        batch: Mixable,
        generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        generic = takes_soft_labels(loss, "i-Mix")
        if generic.form.anchor == "proxy":
            raise ValueError(
                f"i-Mix mixes anchors, and those of '{loss.name}' are proxies: take another loss"
            )
        assert batch.images is not None and batch.network is not None, "i-Mix mixes images"
        clean: Tensor = loss(batch.z, batch.labels, memory)
        labels = batch.labels
        b, c = at_most(labels[:, None] != labels, 1, generator).nonzero(as_tuple=True)
        if not len(b):
            return clean
        lam = beta_draws(self.alpha, (len(b),), generator, unit(batch.z))
        v = mixed_vectors(batch.images, b, c, lam, batch.network, len(batch.z), again=False)
        with torch.autocast(v.device.type, enabled=False):
            first, second = (
                _per_mixture(generic, unit(v), unit(batch.z), labels[rows], labels)
                for rows in (b, c)
            )
        return clean + self.weight * (lam * first + (1 - lam) * second).mean()


def _per_mixture(loss: GenericLoss, v: Tensor, x: Tensor, own: Tensor, labels: Tensor) -> Tensor:
    """Return losses (M,) of anchors v if they were of the classes `own`."""
    if loss.form.other == "example":
        s, of = v @ x.T, labels
    else:
        s, of = loss.to_classes(v), torch.arange(loss.classes, device=labels.device)
    terms = generic_terms(s, own[:, None] == of, loss.form, loss.settings)
    return per_anchor(terms, loss.form, loss.settings)


@dataclass(frozen=True)
class MoCHi:
    """MoCHi (Kalantidis et al., 2020): mixtures of the hardest negatives, always negative.

    Each anchor meets `synthetic` mixtures of two of its `hardest` negatives, and as many of one of
    them with itself.
    """

    pairs: tuple[str, ...] = ("neg-neg", "anc-neg")
    hardest: int = 100
    synthetic: int = 100
    needs_images = False
    needs_maps = False

    def __post_init__(self) -> None:
        check_words("pairs of MoCHi", self.pairs, ("neg-neg", "anc-neg"))
        check_number("hardest of MoCHi", self.hardest, whole=True, least=1)
        check_number("synthetic of MoCHi", self.synthetic, whole=True, least=1)

    def __call__(
        self,
        loss: MetricLoss,
        batch: Mixable,
        generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """Return the loss with mixed negatives among the others. It takes no memory."""
        generic = takes_soft_labels(loss, "MoCHi")
        if generic.proxied or memory is not None:
            raise ValueError(
                "MoCHi mixes the negatives of a batch: it takes no proxies and no memory"
            )
        with torch.autocast(batch.z.device.type, enabled=False):
            generic.check(batch.z, batch.labels)
            x, labels = unit(batch.z), batch.labels
            g, same = x @ x.T, labels[:, None] == labels
            similarities, masks = [g], [~torch.eye(len(x), dtype=torch.bool, device=x.device)]
            negatives = g.detach().masked_fill(same, -torch.inf)
            order = negatives.sort(dim=1, descending=True, stable=True).indices
            count = (~same).sum(1, keepdim=True).clamp(max=self.hardest)  # (B, 1)
            shape = (len(x), self.synthetic)
            for pairs in self.pairs:
                # A position among the hardest, (B, S); an anchor without negatives takes any image
                # and is masked.
                b, c = (
                    order.gather(1, (uniform_draws(shape, generator, x) * count).long())
                    for _ in range(2)
                )
                lam = uniform_draws(shape, generator, x)
                if pairs == "anc-neg":
                    b = torch.arange(len(x), device=x.device)[:, None].expand_as(c)
                    lam = lam / 2  # less of the anchor than of the negative
                similarities.append(pair_similarity(g, b, c, lam))
                masks.append((count > 0).expand_as(c))
            s, mask = torch.cat(similarities, 1), torch.cat(masks, 1)
            label = torch.zeros_like(s)
            label[:, : len(x)] = same.to(s)
            return generic.judge(s, label, mask)


def pair_similarity(g: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
    """Return cosines of each row with mix(b, c), all (A, S), from the Gram matrix of unit vectors."""
    between = g.flatten().gather(0, (b * g.shape[1] + c).flatten()).view_as(b)
    # With itself an example has cosine 1, which rounding must not turn into a gradient.
    squares = lam**2 + (1 - lam) ** 2 + 2 * lam * (1 - lam) * between
    return (lam * g.gather(1, b) + (1 - lam) * g.gather(1, c)) / squares.clamp(min=1e-12).sqrt()


@dataclass(frozen=True)
class ProxySynthesis:
    """Proxy Synthesis (Gu et al., 2021): two mixed classes are a further class with its proxy.

    Each embedding is mixed with one of another class, and their proxies with the same λ.
    """

    alpha: float = 0.4  # as published
    needs_images = False
    needs_maps = False

    def __post_init__(self) -> None:
        check_number("alpha of Proxy Synthesis", self.alpha, above=0)

    def __call__(
        self,
        loss: MetricLoss,
        batch: Mixable,
        generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """Return the loss of the batch and the synthetic classes together. It takes no memory."""
        generic = takes_soft_labels(loss, "Proxy Synthesis")
        if not generic.proxied or memory is not None:
            raise ValueError(
                "Proxy Synthesis mixes proxies: it takes a loss that has them, and no memory"
            )
        with torch.autocast(batch.z.device.type, enabled=False):
            generic.check(batch.z, batch.labels)
            x, labels = unit(batch.z), batch.labels
            proxies = unit(generic.proxies).to(x).unflatten(0, (generic.classes, -1))  # (C, K, D)
            b, c = at_most(labels[:, None] != labels, 1, generator).nonzero(as_tuple=True)
            lam = beta_draws(self.alpha, (len(b), 1), generator, x)
            of = proxies.index_select(0, labels[b]), proxies.index_select(0, labels[c])
            synthetic = unit(lam[..., None] * of[0] + (1 - lam[..., None]) * of[1])  # (M, K, D)
            mixed = unit(lam * x.index_select(0, b) + (1 - lam) * x.index_select(0, c))
            proxies, x = torch.cat([proxies, synthetic]), torch.cat([x, mixed])
            numbers = torch.arange(len(proxies), device=labels.device)
            labels = torch.cat([labels, numbers[generic.classes :]])
            s = generic.of_centres(x @ proxies.flatten(0, 1).T)  # (B + M, C + M)
            same = labels[:, None] == numbers
            if generic.form.anchor == "proxy":
                s, same = s.T, same.T
            return generic.judge(s, same)
