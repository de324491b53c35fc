"""Candidates of a tournament: all pools, SimPool's ablation, or SimPool with several exponents."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...backbones import Backbone
from ...models.frozen import FrozenBackbone, PooledHead
from ...models.head import simpool_gamma
from ...models.own import NoOwnPool, Own, own_tokens
from ...pooling import Pool, create_pool, list_pools
from ...pooling.cost import multiply_adds
from ...pooling.own import OwnPool
from ...pooling.registry import entry as registered
from ...report.tournament import CandidateResult

CLS_GROUP = "CLS"
OWN_GROUP = "own"
# The baselines, the best pools of the groups of [SimPool Sec. 4.2] and of later papers, and the token.
# Slot and CaiT, two of these, would take longer than all others together: 20 million parameters.
DEFAULT_POOLS = (
    *("own", "gap", "max", "gem", "lse", "ge", "simpool", "gsp", "crow", "abmilp", "ep", "cls"),
)
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
        return frozen.create_head(
            self.pool, classes, self.tokens, self.combine, pool_options=options
        )

    def empty_result(
        self, pool: Pool | None, grid: tuple[int, int], trained: int
    ) -> CandidateResult:
        """Return a result without accuracies: its pool's cost, and the trained parameters."""
        parameters = flops = 0
        if pool is not None:
            parameters = sum(p.numel() for p in pool.parameters())
            frozen = copy.deepcopy(pool).cpu().eval().requires_grad_(False)
            flops = multiply_adds(frozen, *example_input(frozen, self.tokens, grid))
        fields = self._asdict()
        del fields["combine"]
        return CandidateResult(**fields, parameters=parameters, trained=trained, flops=flops)


def example_input(
    pool: Pool, tokens: str, grid: tuple[int, int], images: int = 1
) -> tuple[Tensor, tuple[int, int] | None]:
    """Return random tokens as a pool takes them, and their grid if they have one."""
    count = prod(grid)
    if tokens == "all":
        count += pool.prefix if isinstance(pool, OwnPool) else 1
    x = torch.randn(images, count, pool.in_dim)
    return x, None if tokens == "all" else grid


def create_candidates(
    kind: str,
    backbone: Backbone,
    own: Own | NoOwnPool,
    pools: Sequence[str] = (),
    gammas: Sequence[float] = (),
) -> list[Candidate]:
    """Return the candidates of a kind of tournament: pools, ablation or gamma.

    `own` is the encoder's own pooling, as a `FrozenBackbone` has it.
    """
    if kind == "ablation":
        return ablation_candidates(backbone)
    if kind == "gamma":
        return gamma_candidates(gammas)
    return pool_candidates(backbone, own, pools)


def own_candidates(own: Own | NoOwnPool) -> list[Candidate]:
    """Return the encoder's own pooling, trained further, and with the weights that it has.

    None if it is the CLS token or average pooling, which are candidates anyway.
    """
    if not isinstance(own, OwnPool):
        return []
    candidate = Candidate("own", "own", own_tokens(own), group=OWN_GROUP)
    if not any(True for _ in own.parameters()):
        return [candidate]
    return [candidate, candidate._replace(name="own (frozen)", options={"frozen": True})]


def all_candidates(backbone: Backbone, own: Own | NoOwnPool) -> list[Candidate]:
    """Return every pool; with a CLS token also the token alone, and two pools over all tokens."""
    candidates = own_candidates(own)
    candidates += [_with_tokens(p, "patches", backbone) for p in list_pools()]
    if backbone.has_cls:
        candidates.append(Candidate("cls", "cls", "cls", group=CLS_GROUP))
        candidates += [_with_tokens(p, "all", backbone) for p in ("ep", "simpool")]
    return candidates


def _with_tokens(pool: str, tokens: str, backbone: Backbone) -> Candidate:
    name, options = pool, {}
    if pool == "simpool":
        options = {"gamma": simpool_gamma(backbone)}
        name = f"simpool (gamma {options['gamma']:g})"
    if tokens == "all":
        return Candidate(f"{name} [CLS; patches]", pool, tokens, options, CLS_GROUP)
    return Candidate(name, pool, tokens, options, registered(pool).group_name)


def pool_candidates(
    backbone: Backbone, own: Own | NoOwnPool, pools: Sequence[str] = ()
) -> list[Candidate]:
    """Return the candidates of the named pools, of `DEFAULT_POOLS`, or of all for "all".

    "cls" is the CLS token alone, and the pools over all tokens; "own" the encoder's own pooling, or
    the pool that is the same.
    """
    candidates = all_candidates(backbone, own)
    for name in pools:
        if name not in ("all", "own", "cls"):
            registered(name)  # suggests a name for a typo
        if pools.count(name) > 1:
            raise ValueError(f"--pools has {name} twice")
    if "cls" in pools and not backbone.has_cls:
        raise ValueError(f"'{backbone.name}' has no CLS token: leave cls out of --pools")
    names = list(pools or DEFAULT_POOLS)
    if isinstance(own, NoOwnPool):
        if "own" in pools:
            raise own
        logger.info("left out: own: %s", own)
    elif isinstance(own, str) and {"own", "all"} & {*names}:
        logger.info("the own pooling of '%s' is %s: it is trained once", backbone.name, own)
        names = list(dict.fromkeys(own if name == "own" else name for name in names))
    if names == ["all"]:
        return candidates
    groups = {"own": OWN_GROUP, "cls": CLS_GROUP}
    return [
        candidate
        for name in sorted(names, key=lambda name: name == "cls")
        for candidate in candidates
        if candidate.group == groups.get(name, "")
        or (candidate.pool == name and candidate.tokens == "patches" and name not in groups)
    ]


def gamma_candidates(gammas: Sequence[float] = ()) -> list[Candidate]:
    """Return SimPool with each exponent, without one, and with learned ones [SimPool App. C.4].

    The third learned one has a tenth of the learning rate.
    """

    def simpool(name: str, paper: float | None = None, **options: Any) -> Candidate:
        return Candidate(name, "simpool", options=options, group="gamma", paper=paper)

    return [
        simpool("no gamma", gamma=None),
        *(simpool(f"gamma {g:g}", gamma=float(g)) for g in sorted(set(gammas or GAMMAS))),
        simpool("gamma learned", 56.0, gamma=2.0, learn_gamma=True),
        simpool("gamma learned, at most 5", 56.3, gamma=2.0, learn_gamma=True, max_gamma=5.0),
        simpool("gamma learned, lr x0.1", 56.5, gamma=2.0, learn_gamma=True, gamma_lr_factor=0.1),
    ]


def ablation_candidates(backbone: Backbone) -> list[Candidate]:
    """Return the rows of [SimPool Table 10], with accuracies of ResNet-18 on 20% of ImageNet.

    First the design, with the paper's exponent for this kind of backbone; then linear maps and
    LayerNorms of query, key and value, without an exponent.
    """
    gamma = simpool_gamma(backbone)

    def design(
        name: str, group: str, paper: float, combine: str = "max", **options: Any
    ) -> Candidate:
        options = {"gamma": gamma, **options}
        return Candidate(name, "simpool", "patches", options, group, combine, paper)

    def layers(linear: str, norm: str, paper: float) -> Candidate:
        name = f"linear {linear or '-'}, LN {norm or '-'}"
        options = {"gamma": None, "linear": linear, "norm": norm}
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
    for candidate in candidates:
        try:
            if candidate.pool not in ("cls", "own"):
                pool = create_pool(candidate.pool, dim, **candidate.options).eval()
                pool(*example_input(pool, candidate.tokens, grid, images=2))
            usable.append(candidate)
        except ValueError as error:
            if strict:
                raise
            logger.info("left out: %s: %s", candidate.name, error)
    if not usable:
        raise ValueError("none of the pools can process these features")
    return usable
