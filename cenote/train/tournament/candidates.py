"""Candidates of a tournament: all pools, SimPool's ablation, or SimPool with several exponents."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from ...backbones import Backbone
from ...models import Head
from ...models.frozen import FrozenBackbone, PooledHead
from ...pooling import create_pool, list_pools
from ...pooling.cost import pool_cost
from ...pooling.registry import entry as registered
from ...report.tournament import CandidateResult

CLS_GROUP = "CLS"
GAMMAS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
logger = logging.getLogger(__name__)


class Candidate(NamedTuple):
    """A pool with its options and tokens, to be trained with a linear head."""

    name: str
    pool: str
    tokens: str = "patches"
    options: Mapping[str, Any] = {}
    group: str = ""
    combine: str = "max"  # how `Head` uses several vectors of a pool
    paper: float | None = None  # accuracy in the paper

    def create_head(self, frozen: FrozenBackbone, classes: int) -> PooledHead:
        """Create a new pool and head from torch's random state."""
        options = dict(self.options)
        head = frozen.create_head(self.pool, classes, self.tokens, pool_options=options)
        if self.combine == "concat" and head.head is not None:
            head.head = Head(head.head.dim, classes, head.head.k, "concat", "batch")
        return head

    def empty_result(self, dim: int, grid: tuple[int, int], trained: int) -> CandidateResult:
        """Return a result without accuracies: its pool's cost, and the trained parameters."""
        parameters = flops = 0
        if self.pool != "cls":
            shape = (1, prod(grid) + 1) if self.tokens == "all" else grid
            cost = pool_cost(self.pool, dim, shape, **self.options)
            parameters, flops = cost.parameters, cost.flops
        fields = self._asdict()
        del fields["combine"]
        return CandidateResult(**fields, parameters=parameters, trained=trained, flops=flops)


def create_candidates(
    kind: str, backbone: Backbone, pools: Sequence[str] = (), gammas: Sequence[float] = ()
) -> list[Candidate]:
    """Return the candidates of a kind of tournament: pools, ablation or gamma."""
    if kind == "ablation":
        return ablation_candidates(backbone)
    if kind == "gamma":
        return gamma_candidates(gammas)
    return pool_candidates(backbone, pools)


def all_candidates(has_cls: bool = True) -> list[Candidate]:
    """Return every pool; with a CLS token also the token alone, and SimPool over all tokens."""
    candidates = [Candidate(p, p, group=registered(p).group_name) for p in list_pools()]
    if has_cls:
        candidates.append(Candidate("cls", "cls", "cls", group=CLS_GROUP))
        candidates.append(Candidate("simpool [CLS; patches]", "simpool", "all", group=CLS_GROUP))
    return candidates


def candidate_groups() -> dict[str, str]:
    """Return the group of every pool, for tables."""
    return {candidate.name: candidate.group for candidate in all_candidates()}


def pool_candidates(backbone: Backbone, pools: Sequence[str] = ()) -> list[Candidate]:
    """Return the candidates of the named pools, or all; "cls" includes SimPool over all tokens."""
    if not pools:
        return all_candidates(backbone.has_cls)
    for name in pools:
        if name != "cls":
            registered(name)  # suggests a name for a typo
        if pools.count(name) > 1:
            raise ValueError(f"--pools has {name} twice")
    if "cls" in pools and not backbone.has_cls:
        raise ValueError(f"'{backbone.name}' has no CLS token: leave cls out of --pools")
    by_name = {candidate.name: candidate for candidate in all_candidates()}
    candidates = [by_name[name] for name in pools if name != "cls"]
    if "cls" in pools:
        candidates += [c for c in by_name.values() if c.group == CLS_GROUP]
    return candidates


def gamma_candidates(gammas: Sequence[float] = ()) -> list[Candidate]:
    """Return SimPool with each exponent, without one, and with learned ones [SimPool App. C.4].

    A learned gamma with a tenth of the learning rate (56.5) is left out: a candidate has one rate.
    """

    def simpool(name: str, paper: float | None = None, **options: Any) -> Candidate:
        return Candidate(name, "simpool", options=options, group="gamma", paper=paper)

    return [
        simpool("no gamma"),
        *(simpool(f"gamma {g:g}", gamma=float(g)) for g in sorted(set(gammas or GAMMAS))),
        simpool("gamma learned", 56.0, gamma=2.0, learn_gamma=True),
        simpool("gamma learned, at most 5", 56.3, gamma=2.0, learn_gamma=True, max_gamma=5.0),
    ]


def ablation_candidates(backbone: Backbone) -> list[Candidate]:
    """Return the rows of [SimPool Table 10], with accuracies of ResNet-18 on 20% of ImageNet.

    First the design, with the paper's exponent for this kind of backbone; then linear maps and
    LayerNorms of query, key and value, without an exponent.
    """
    gamma = 1.25 if backbone.has_cls or _is_transformer(backbone) else 2.0

    def design(
        name: str, group: str, paper: float, combine: str = "max", **options: Any
    ) -> Candidate:
        options = {"gamma": gamma, **options}
        return Candidate(name, "simpool", "patches", options, group, combine, paper)

    def layers(linear: str, norm: str, paper: float) -> Candidate:
        name = f"linear {linear or '-'}, LN {norm or '-'}"
        options = {"linear": linear, "norm": norm}
        return Candidate(name, "simpool", options=options, group="linear, LN", paper=paper)

    return [
        design("SimPool", "SimPool", 57.1),
        Candidate("GAP", "gap", group="GAP", paper=55.0),
        design("4 heads", "attention", 56.6, heads=4),
        design("softmax over queries", "attention", 55.6, attention="queries"),
        design("3 layers", "steps", 56.8, layers=3),
        design("5 layers", "steps", 55.9, layers=5),
        design("3 iterations", "steps", 56.5, iterations=3),
        design("5 iterations", "steps", 56.4, iterations=5),
        design("U0 learned", "start", 56.3, init="learned"),
        design("U0 diag(X'X)", "start", 56.6, init="norm"),
        design("distance", "similarity", 56.5, similarity="distance"),
        design("cosine", "similarity", 56.3, similarity="cosine"),
        design("k = 2, max", "k vectors", 56.5, k=2),
        design("k = 5, max", "k vectors", 56.4, k=5),
        design("k = 2, concat", "k vectors", 56.5, "concat", k=2),
        design("k = 5, concat", "k vectors", 55.9, "concat", k=5),
        design("W_Q = W_K", "tied", 56.4, tied=True),
        layers("qkv", "qkv", 57.0),
        layers("qk", "qkv", 56.6),
        layers("q", "qkv", 56.5),
        layers("k", "qkv", 56.4),
        layers("", "qkv", 55.6),
        layers("qk", "qk", 56.3),
        layers("qk", "q", 56.0),
        layers("qk", "k", 56.2),
        layers("qk", "kv", 56.6),
        layers("qk", "v", 56.4),
        layers("qk", "qv", 56.2),
        layers("", "kv", 56.2),
        layers("qk", "", 54.4),
        layers("", "", 54.5),
    ]


@torch.inference_mode()
def usable_candidates(
    candidates: Sequence[Candidate], dim: int, grid: tuple[int, int], strict: bool
) -> list[Candidate]:
    """Leave out candidates that cannot process these features, or raise if `strict`."""
    usable = []
    tokens = torch.randn(2, prod(grid), dim)
    for candidate in candidates:
        try:
            if candidate.pool != "cls":
                pool = create_pool(candidate.pool, dim, **candidate.options).eval()
                if candidate.tokens == "all":
                    pool(torch.cat([tokens[:, :1], tokens], 1), None)
                else:
                    pool(tokens, grid)
            usable.append(candidate)
        except ValueError as error:
            if strict:
                raise
            logger.info("left out: %s: %s", candidate.name, error)
    if not usable:
        raise ValueError("none of the pools can process these features")
    return usable


def _is_transformer(backbone: Backbone) -> bool:
    blocks: Any = getattr(backbone.model, "blocks", None)
    if not isinstance(blocks, nn.Module):
        return False
    return any("attn" in name for name, _ in blocks.named_modules())
