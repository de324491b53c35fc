"""Metrix [Dissertation Eqs. 2.4-2.10]: every loss with soft labels also sees interpolated images,
features or embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..options import check_number, check_words
from ..unit import unit, wide
from .metric import GenericLoss, Memory, MetricLoss
from .mixing import (
    at_most,
    beta_draws,
    largest,
    mixed_scale,
    mixed_similarity,
    mixed_vectors,
    rows_of,
)

WHERE = ("input", "feature", "embed")
PAIRS = ("pos-neg", "anc-neg", "pos-pos")
# Partners of an example where every mixture costs something, if not told otherwise:
OF_MAPS = 16  # a pass through the pool: 13 % of a ResNet-50 step for SimPool (benchmarks/metrix.py)
# mixtures, where the pool need not see them: all of 100 images; they are compared with every anchor
MOST = 20_000
# negatives of an anchor, where a mixture is a pass through the network [Dissertation Sec. 2.4.2]
HARDEST = 3
# at least, where a mixture is a row of similarities to all proxies, of which there may be ten
# thousand
OF_PROXIES = 4
# such similarities of a step, 80 MB: all pairs of 100 images and 100 classes take a million
TO_PROXIES = 20_000_000


class Mixable(NamedTuple):
    """What a training step has at hand."""

    labels: Tensor  # (B,)
    z: Tensor  # (B, D), not normalised
    maps: Tensor | None = None  # (B, ...) of the last layer
    images: Tensor | None = None  # (B, 3, H, W)
    embed: Callable[[Tensor], Tensor] | None = None  # maps -> z: pool and embedding
    network: Callable[[Tensor], Tensor] | None = None  # images -> z
    # pool and embedding are linear (GAP, Linear): mixed maps give mixed z, nothing is built
    linear: bool = False
    mixed: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = (
        None  # (maps, b, c, lam) -> z, nothing built
    )


@dataclass(frozen=True)
class Metrix:
    """clean + weight * mixed [Dissertation Eq. 2.10]. Of several `where` or `pairs`, one is drawn
    uniformly in each call.

    Mixed examples are shared: b and c mixed with one λ meet every anchor for which b is positive
    and c negative. Mixing maps under a pool that has to see them keeps `chunk` of them at a time,
    forward and backward: 26 MB for 64 maps of 7 x 7 x 2048, and what the pool makes of them. Mean
    and maximum need not see them: all pairs of 100 images take 0.3 GB. The backbone runs once,
    except for "input": there the mixed images pass through it. Pool and network see mixed batches
    too, and a batch norm in them counts these.
    """

    where: tuple[str, ...] = ("feature",)
    pairs: tuple[str, ...] = ("pos-neg", "anc-neg")
    weight: float = 0.4  # w
    alpha: float = 2.0  # λ ~ Beta(α, α), one for each mixed example [Dissertation Eq. 2.8]
    hardest: int | None = (
        # negatives of an anchor [Dissertation Sec. 2.4.4], in the place of `negatives`; None:
        # HARDEST of images
        None
    )
    negatives: int | None = (
        None  # partners of an example, drawn at random; None: all where they cost little
    )
    chunk: int = 64  # mixed maps in memory at a time

    def __post_init__(self) -> None:
        for name, values, choices in (("where", self.where, WHERE), ("pairs", self.pairs, PAIRS)):
            check_words(f"{name} of Metrix", values, choices)
        for name in ("hardest", "chunk", "negatives"):
            if name == "chunk" or getattr(self, name) is not None:
                check_number(f"{name} of Metrix", getattr(self, name), whole=True, least=1)
        check_number("alpha of Metrix", self.alpha, above=0)
        check_number("weight of Metrix", self.weight, least=0)

    @property
    def needs_images(self) -> bool:
        return "input" in self.where

    @property
    def needs_maps(self) -> bool:
        return "feature" in self.where

    def silent(self, loss: MetricLoss, labels: Tensor) -> str | None:
        """A sentence, if a batch with these labels cannot be mixed at all."""
        classes = len(labels.unique())
        if classes == 1 and "pos-pos" not in self.pairs:
            return "all images of a batch are of one class: Metrix has no negatives to mix"
        if classes == len(labels) and "anc-neg" not in self.pairs and not loss.proxied:
            return "no two images of a batch share a class: Metrix has no positives to mix"
        return None

    def __call__(
        self,
        loss: MetricLoss,
        batch: Mixable,
        generator: torch.Generator | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        clean: Tensor = loss(batch.z, batch.labels, memory)
        return clean + self.weight * self.mixed(loss, batch, generator)  # [Dissertation Eq. 2.10]

    def mixed(
        self, loss: MetricLoss, batch: Mixable, generator: torch.Generator | None = None
    ) -> Tensor:
        """The loss over mixed examples [Dissertation Eq. 2.9]."""
        generic = takes_soft_labels(loss, "Metrix")
        generic.check(batch.z, batch.labels)
        where, pairs = (_one_of(words, generator) for words in (self.where, self.pairs))
        if where == "feature" and not batch.linear and (batch.maps is None or batch.embed is None):
            raise ValueError(
                "Metrix mixes features: it needs the maps of the batch and what embeds them"
            )
        if where == "input" and (batch.images is None or batch.network is None):
            raise ValueError(
                "Metrix mixes images: it needs the images of the batch and the network"
            )
        embed, network, mixed = (
            _as_now(run, batch.z) for run in (batch.embed, batch.network, batch.mixed)
        )
        batch = batch._replace(
            labels=batch.labels.long(), embed=embed, network=network, mixed=mixed
        )
        with torch.autocast(batch.z.device.type, enabled=False):
            if generic.form.other != "example":
                return self._against_proxies(generic, batch, where, pairs, generator)
            return self._against_examples(generic, batch, where, pairs, generator)

    def _against_examples(
        self,
        loss: GenericLoss,
        batch: Mixable,
        where: str,
        pairs: str,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Anchors are the examples of the batch, or the proxies; what they meet is mixed."""
        labels, x = batch.labels, unit(batch.z)
        built = where == "input" or (where == "feature" and not batch.linear)
        source = (
            x if where == "embed" else _scaled(batch.z)
        )  # maps that a linear pool mixes are mixed z as it is
        firsts, first_labels = source, labels
        if loss.form.anchor == "proxy":
            anchors, of = unit(loss.proxies).to(x), torch.arange(loss.classes, device=labels.device)
            is_self = torch.zeros(len(of), len(labels), dtype=torch.bool, device=labels.device)
            if pairs == "anc-neg" and where != "embed":
                pairs = "pos-neg"  # a proxy has neither a map nor pixels
            if pairs == "anc-neg":
                firsts, first_labels = anchors, of
            else:  # the other proxies have no positive here
                present = labels.unique()
                anchors, of, is_self = anchors[present], present, is_self[present]
        else:
            anchors, of, is_self = x, labels, torch.eye(len(x), dtype=torch.bool, device=x.device)
        same = of[:, None] == labels  # (A, B)
        itself = torch.eye(len(anchors), dtype=torch.bool, device=x.device)
        pos = itself if pairs == "anc-neg" else same & ~is_self  # (A, F): who is b
        neg = same & ~is_self if pairs == "pos-pos" else ~same  # (A, B): who is c
        if hardest := self._hardest(where, pairs):
            neg = largest(anchors @ x.T, neg, hardest)
        max_partners = self._of_maps(batch, where, first_labels)
        allowed_pairs = at_most(
            _allowed(first_labels, labels, pairs), self._most(where, pairs, max_partners), generator
        )  # (F, B)
        lam = beta_draws(self.alpha, tuple(allowed_pairs.shape), generator, x)
        clean = (anchors @ x.T, ~same) if pairs == "pos-pos" and loss.form.needs_positive else None
        if not built:
            which, is_pair = rows_of(pos)
            mask = is_pair[..., None] & neg[:, None] & allowed_pairs[which]  # (A, K, B)
            s = mixed_similarity(anchors, firsts, source, which, lam).flatten(1)
            return _judged(loss, s, _label(lam[which].flatten(1), pairs), mask.flatten(1), clean)
        b, c = (allowed_pairs & (pos.to(x).T @ neg.to(x) > 0)).nonzero(
            as_tuple=True
        )  # each pair that any anchor meets, once
        if not len(b):
            return batch.z.sum() * 0
        s = anchors @ unit(self._built(batch, where, b, c, lam[b, c])).T  # (A, M)
        return _judged(loss, s, _label(lam[b, c].expand_as(s), pairs), pos[:, b] & neg[:, c], clean)

    def _against_proxies(
        self,
        loss: GenericLoss,
        batch: Mixable,
        where: str,
        pairs: str,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Positives and negatives are proxies: a mixture is the anchor, λ the label of b's proxy
        and 1-λ that of c's.

        Here pos-neg and anc-neg are the same: b is any example and c one of another class.
        """
        labels, x = batch.labels, unit(batch.z)
        max_partners = None
        if where != "input":
            max_partners = max(OF_PROXIES, TO_PROXIES // max(len(labels) * len(loss.proxies), 1))
            max_partners = min(max_partners, self._of_maps(batch, where, labels) or max_partners)
        allowed_pairs = at_most(
            _allowed(labels, labels, pairs), self._most(where, pairs, max_partners), generator
        )
        if hardest := self._hardest(where, pairs):
            allowed_pairs = largest(x @ x.T, allowed_pairs, hardest)
        lam = beta_draws(self.alpha, tuple(allowed_pairs.shape), generator, x)
        b, c = allowed_pairs.nonzero(as_tuple=True)
        if not len(b):
            return batch.z.sum() * 0
        lams = lam[b, c][:, None]  # (M, 1)
        if where == "input" or (where == "feature" and not batch.linear):
            s = loss.to_classes(unit(self._built(batch, where, b, c, lam[b, c])))
        else:
            source = x if where == "embed" else _scaled(batch.z)
            to = source @ unit(loss.proxies).to(x).T  # (B, proxies)
            scale = mixed_scale(source, source, source @ source.T, lam)[b, c][:, None]
            s = loss.of_centres(
                (lams * to.index_select(0, b) + (1 - lams) * to.index_select(0, c)) * scale
            )
        label = torch.zeros_like(s).scatter_add(1, labels[b][:, None], lams)
        return loss.judge(s, label.scatter_add(1, labels[c][:, None], 1 - lams).clamp(max=1))

    def _of_maps(self, batch: Mixable, where: str, firsts: Tensor) -> int | None:
        """Partners of an example, if its map is mixed and that costs something."""
        if where != "feature" or batch.linear:
            return None
        return OF_MAPS if batch.mixed is None else max(OF_MAPS, MOST // max(len(firsts), 1))

    def _hardest(self, where: str, pairs: str) -> int | None:
        if pairs == "pos-pos":
            return None
        return self.hardest or (HARDEST if where == "input" else None)

    def _most(self, where: str, pairs: str, few: int | None) -> int | None:
        """Partners drawn for an example; all, where the hardest are taken: a draw before would lose
        them.
        """
        return None if self._hardest(where, pairs) else self.negatives or few

    def _built(self, batch: Mixable, where: str, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        """The embeddings (M, D) of mixed images or maps."""
        if where == "input":
            assert batch.images is not None and batch.network is not None
            # As many at a time as the batch has: a batch norm sees what it is used to.
            return mixed_vectors(batch.images, b, c, lam, batch.network, len(batch.z), again=False)
        assert batch.maps is not None and batch.embed is not None
        if batch.mixed is not None and len(b) <= MOST:
            return batch.mixed(batch.maps, b, c, lam)
        if batch.mixed is not None:
            chunks = zip(b.split(MOST), c.split(MOST), lam.split(MOST), strict=True)
            return torch.cat(
                [
                    checkpoint(batch.mixed, batch.maps, *chunk, use_reentrant=False)
                    for chunk in chunks
                ]
            )
        return mixed_vectors(
            batch.maps, b, c, lam, batch.embed, self.chunk, again=torch.is_grad_enabled()
        )


Run = Callable[..., Tensor]


def _as_now(run: Run | None, z: Tensor) -> Run | None:
    """The model's own part stays under the autocast of the step; the loss around it does not."""
    kind = z.device.type
    if run is None or not torch.is_autocast_enabled(kind):
        return run
    dtype = torch.get_autocast_dtype(kind)

    def inside(*given: Tensor) -> Tensor:
        with torch.autocast(kind, dtype):
            return run(*given)

    return inside


def takes_soft_labels(loss: MetricLoss, who: str) -> GenericLoss:
    if not isinstance(loss, GenericLoss):
        raise ValueError(
            f"{who} needs a loss with soft labels (cenote losses lists them), and '{loss.name}' has none"
        )
    return loss


def _one_of(words: tuple[str, ...], generator: torch.Generator | None) -> str:
    if len(words) == 1:
        return words[0]
    home = "cpu" if generator is None else generator.device
    return words[int(torch.randint(len(words), (), generator=generator, device=home))]


def _allowed(firsts: Tensor, seconds: Tensor, pairs: str) -> Tensor:
    """(F, B) bool: which c may be mixed with b."""
    same = firsts[:, None] == seconds
    return same.triu(1) if pairs == "pos-pos" else ~same


def _judged(
    loss: GenericLoss,
    s: Tensor,
    label: Tensor,
    mask: Tensor,
    negatives: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """With the clean negatives beside, if given: of positives alone, -log of their share is 0
    whatever they do.
    """
    if negatives is not None:
        s, mask = (torch.cat(both, 1) for both in zip((s, mask), negatives, strict=True))
        label = torch.cat([label, torch.zeros_like(negatives[0])], 1)
    return loss.judge(s, label, mask)


def _label(lam: Tensor, pairs: str) -> Tensor:
    return torch.ones_like(lam) if pairs == "pos-pos" else lam  # mix(1, 1), mix(1, 0)


def _scaled(z: Tensor) -> Tensor:
    """Its largest entry 1: directions stay, and squares neither overflow nor vanish."""
    largest = z.detach().abs().max() if z.numel() else z.new_zeros(())
    return wide(z) / torch.where(largest > 0, largest, 1)
