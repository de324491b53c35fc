"""Metrix [Dissertation Eqs. 2.4-2.10]: losses with soft labels over interpolated examples, too.

Images, features or embeddings are interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..options import check_number, check_words
from ..unit import unit, wide
from .metric import GenericLoss, Memory, MetricLoss
from .mixing import (
    Mixable,
    at_most,
    beta_draws,
    device,
    largest,
    mixed_scale,
    mixed_similarity,
    mixed_vectors,
    rows_of,
    takes_soft_labels,
)

WHERE = ("input", "feature", "embed")
PAIRS = ("pos-neg", "anc-neg", "pos-pos")
# Defaults for the partners of an example where every mixture costs something:
# a pass through the pool: 13 % of a ResNet-50 step for SimPool (benchmarks/metrix.py)
OF_MAPS = 16
# mixtures, where the pool need not see them: all of 100 images; they are compared with every anchor
MOST = 20_000
# negatives of an anchor, where a mixture is a pass through the network [Dissertation Sec. 2.4.2]
HARDEST = 3
# at least, where a mixture is a row of similarities to all proxies, which can be ten thousand
OF_PROXIES = 4
# such similarities of a step, 80 MB: all pairs of 100 images and 100 classes take a million
TO_PROXIES = 20_000_000


class _Draw(NamedTuple):
    """What one call mixes."""

    where: str
    pairs: str
    built: bool  # the mixtures pass through the pool or the network
    autocast: torch.autocast  # of the step: pool and network run under it, the loss does not
    generator: torch.Generator | None


@dataclass(frozen=True)
class Metrix:
    """clean + weight * mixed [Dissertation Eq. 2.10].

    Of several `where` or `pairs`, one is drawn uniformly in each call. Mixed examples are shared: b
    and c mixed with one λ meet every anchor for which b is positive and c negative. Mixing maps
    under a pool that has to see them takes memory for `chunk` of them at a time, forward and
    backward: 26 MB for 64 maps of 7 x 7 x 2048, and what the pool makes of them. Mean and maximum
    need not see them: all pairs of 100 images take 0.3 GB. The backbone runs once, except for
    "input": there the mixed images pass through it. Pool and network see mixed batches too, and a
    batch norm in them counts these.
    """

    where: tuple[str, ...] = ("feature",)
    pairs: tuple[str, ...] = ("pos-neg", "anc-neg")
    weight: float = 0.4  # w
    alpha: float = 2.0  # λ ~ Beta(α, α), one for each mixed example [Dissertation Eq. 2.8]
    # negatives of an anchor [Dissertation Sec. 2.4.4], instead of `negatives`
    hardest: int | None = None
    hardest_input: int | None = None  # the same where images are mixed; None: `hardest`, or HARDEST
    negatives: int | None = None  # random partners of an example; None: all where they cost little
    chunk: int = 64  # mixed maps in memory at a time

    def __post_init__(self) -> None:
        check_words("where of Metrix", self.where, WHERE)
        check_words("pairs of Metrix", self.pairs, PAIRS)
        for name in ("hardest", "hardest_input", "chunk", "negatives"):
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
        """Return a sentence if a batch with these labels cannot be mixed at all."""
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
        """Return the loss over mixed examples [Dissertation Eq. 2.9]."""
        generic = takes_soft_labels(loss, "Metrix")
        generic.check(batch.z, batch.labels)
        where, pairs = (_one_of(words, generator) for words in (self.where, self.pairs))
        built = where == "input" or (where == "feature" and not batch.linear)
        kind = batch.z.device.type
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        autocast = torch.autocast(kind, dtype, enabled=enabled)
        draw = _Draw(where, pairs, built, autocast, generator)
        batch = batch._replace(labels=batch.labels.long())
        with torch.autocast(kind, enabled=False):
            if generic.form.other != "example":
                return self._against_proxies(generic, batch, draw)
            return self._against_examples(generic, batch, draw)

    def _against_examples(self, loss: GenericLoss, batch: Mixable, draw: _Draw) -> Tensor:
        """Anchors are the examples of the batch, or the proxies; what they meet is mixed."""
        labels, x, pairs = batch.labels, unit(batch.z), draw.pairs
        source = _source(x, batch, draw)
        firsts, first_labels = source, labels
        if loss.form.anchor == "proxy":
            anchors, of = unit(loss.proxies).to(x), torch.arange(loss.classes, device=labels.device)
            is_self = torch.zeros(len(of), len(labels), dtype=torch.bool, device=labels.device)
            if pairs == "anc-neg" and draw.where != "embed":
                pairs = "pos-neg"  # a proxy has neither a map nor pixels
            if pairs == "anc-neg":
                firsts, first_labels = anchors, of
            else:  # the other proxies have no positive here
                present = labels.unique()
                anchors, of, is_self = anchors[present], present, is_self[present]
        else:
            anchors, of, is_self = x, labels, torch.eye(len(x), dtype=torch.bool, device=x.device)
        draw = draw._replace(pairs=pairs)
        same = of[:, None] == labels  # (A, B)
        others = same & ~is_self
        pos, neg = others, ~same  # (A, F): which b; (A, B): which c
        if pairs == "anc-neg":
            pos = torch.eye(len(anchors), dtype=torch.bool, device=x.device)
        if pairs == "pos-pos":
            neg = others
        if hardest := self._hardest(draw):
            neg = largest(anchors @ x.T, neg, hardest)
        partners = self._partners_of_maps(batch, draw, len(first_labels))
        allowed_pairs = self._allowed_pairs(first_labels, labels, draw, partners)  # (F, B)
        lam = beta_draws(self.alpha, tuple(allowed_pairs.shape), draw.generator, x)
        clean = None
        if pairs == "pos-pos" and loss.form.needs_positive:
            clean = (anchors @ x.T, ~same)
        if not draw.built:
            which, is_pair = rows_of(pos)
            mask = is_pair[..., None] & neg[:, None] & allowed_pairs[which]  # (A, K, B)
            s = mixed_similarity(anchors, firsts, source, which, lam).flatten(1)
            return _judged(loss, s, lam[which].flatten(1), mask.flatten(1), pairs, clean)
        # Each pair that any anchor meets, once.
        b, c = (allowed_pairs & (pos.to(x).T @ neg.to(x) > 0)).nonzero(as_tuple=True)
        if not len(b):
            return batch.z.sum() * 0
        s = anchors @ unit(self._built(batch, draw, b, c, lam[b, c])).T  # (A, M)
        return _judged(loss, s, lam[b, c].expand_as(s), pos[:, b] & neg[:, c], pairs, clean)

    def _against_proxies(self, loss: GenericLoss, batch: Mixable, draw: _Draw) -> Tensor:
        """Positives and negatives are proxies, and a mixture is the anchor.

        λ is the label of b's proxy and 1-λ that of c's. Here pos-neg and anc-neg are the same: b is
        any example and c one of another class.
        """
        labels, x = batch.labels, unit(batch.z)
        partners = None
        if draw.where != "input":
            partners = max(OF_PROXIES, TO_PROXIES // max(len(labels) * len(loss.proxies), 1))
            partners = min(partners, self._partners_of_maps(batch, draw, len(labels)) or partners)
        allowed_pairs = self._allowed_pairs(labels, labels, draw, partners)
        if hardest := self._hardest(draw):
            allowed_pairs = largest(x @ x.T, allowed_pairs, hardest)
        lam = beta_draws(self.alpha, tuple(allowed_pairs.shape), draw.generator, x)
        b, c = allowed_pairs.nonzero(as_tuple=True)
        if not len(b):
            return batch.z.sum() * 0
        lams = lam[b, c][:, None]  # (M, 1)
        if draw.built:
            s = loss.to_classes(unit(self._built(batch, draw, b, c, lam[b, c])))
        else:
            source = _source(x, batch, draw)
            to = source @ unit(loss.proxies).to(x).T  # (B, proxies)
            scale = mixed_scale(source, source, source @ source.T, lam)[b, c][:, None]
            mixed = lams * to.index_select(0, b) + (1 - lams) * to.index_select(0, c)
            s = loss.of_centres(mixed * scale)
        label = torch.zeros_like(s).scatter_add(1, labels[b][:, None], lams)
        return loss.judge(s, label.scatter_add(1, labels[c][:, None], 1 - lams).clamp(max=1))

    def _partners_of_maps(self, batch: Mixable, draw: _Draw, firsts: int) -> int | None:
        """Return the partners of an example, if its map is mixed and that costs something."""
        if draw.where != "feature" or batch.linear:
            return None
        if batch.mixed is None:
            return OF_MAPS
        return max(OF_MAPS, MOST // max(firsts, 1))

    def _hardest(self, draw: _Draw) -> int | None:
        if draw.pairs == "pos-pos":
            return None
        if draw.where == "input":
            return self.hardest_input or self.hardest or HARDEST
        return self.hardest

    def _allowed_pairs(
        self, firsts: Tensor, seconds: Tensor, draw: _Draw, partners: int | None
    ) -> Tensor:
        """Return (F, B) bool: which c may be mixed with b.

        Partners are drawn at random, but not before the hardest are taken, which would lose them.
        """
        same = firsts[:, None] == seconds
        allowed = ~same
        if draw.pairs == "pos-pos":
            allowed = same.triu(1)
        if self._hardest(draw):
            return allowed
        return at_most(allowed, self.negatives or partners, draw.generator)

    def _built(self, batch: Mixable, draw: _Draw, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        """Return the embeddings (M, D) of mixed images or maps."""
        with draw.autocast:
            if draw.where == "input":
                images, network = batch.images, batch.network
                assert images is not None and network is not None, "Metrix mixes images"
                # At most a batch at a time: a batch norm sees the usual number.
                return mixed_vectors(images, b, c, lam, network, len(batch.z), again=False)
            maps, embed = batch.maps, batch.embed
            assert maps is not None and embed is not None, "Metrix mixes features"
            if batch.mixed is None:
                again = torch.is_grad_enabled()
                return mixed_vectors(maps, b, c, lam, embed, self.chunk, again)
            if len(b) <= MOST:
                return batch.mixed(maps, b, c, lam)
            chunks = zip(b.split(MOST), c.split(MOST), lam.split(MOST), strict=True)
            return torch.cat(
                [checkpoint(batch.mixed, maps, *chunk, use_reentrant=False) for chunk in chunks]
            )


def _one_of(words: tuple[str, ...], generator: torch.Generator | None) -> str:
    if len(words) == 1:
        return words[0]
    return words[int(torch.randint(len(words), (), generator=generator, device=device(generator)))]


def _judged(
    loss: GenericLoss,
    s: Tensor,
    lam: Tensor,
    mask: Tensor,
    pairs: str,
    negatives: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Return the loss of mixtures, with the clean negatives (similarities and mask) if given.

    Of positives alone, -log of their share is 0 for all similarities.
    """
    label = lam  # mix(1, 0)
    if pairs == "pos-pos":
        label = torch.ones_like(lam)  # mix(1, 1)
    if negatives is not None:
        s, mask = (torch.cat(both, 1) for both in zip((s, mask), negatives, strict=True))
        label = torch.cat([label, torch.zeros_like(negatives[0])], 1)
    return loss.judge(s, label, mask)


def _source(x: Tensor, batch: Mixable, draw: _Draw) -> Tensor:
    """Return the vectors that are mixed where nothing is built.

    Maps that a linear pool mixes are mixed z, here with 1 as its largest entry: directions stay,
    and squares neither overflow nor vanish.
    """
    if draw.where == "embed":
        return x
    z = batch.z
    if not z.numel():
        return wide(z)
    top = z.detach().abs().max()
    return wide(z) / torch.where(top > 0, top, 1)
