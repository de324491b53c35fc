"""Who plays in a tournament: every pool, SimPool's own ablation (S Table 10), or its gamma sweep (Fig. C1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from ...models import Head
from ...models.frozen import FrozenBackbone, PooledHead
from ...pooling import create_pool, list_pools
from ...pooling.cost import pool_cost
from ...pooling.registry import entry as registered

CLS = "CLS"
GAMMAS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)
Say = Callable[[str], None]


class Entry(NamedTuple):
    """A contender before it has weights."""

    name: str
    pool: str
    tokens: str = "patches"
    options: Mapping[str, Any] = {}
    group: str = ""
    combine: str = "max"  # of the k vectors of a pool: see Head
    paper: float | None = None  # the accuracy in S Table 10

    def top(self, frozen: FrozenBackbone, classes: int) -> PooledHead:
        """A new pool and head, as the random state has it."""
        top = frozen.create_head(self.pool, classes, self.tokens, pool_options=dict(self.options))
        if self.combine == "concat" and top.head is not None:
            top.head = Head(top.head.dim, classes, top.head.k, "concat", "batch")
        return top

    def cost(self, frozen: FrozenBackbone, grid: tuple[int, int]) -> tuple[int, int]:
        """Parameters and multiply-adds of the pool, for one image; the head not counted."""
        if self.pool == "cls":
            return 0, 0
        shape = (1, prod(grid) + 1) if self.tokens == "all" else grid
        cost = pool_cost(self.pool, frozen.backbone.dim, shape, **self.options)
        return cost.parameters, cost.flops


def pool_entries(frozen: FrozenBackbone, pools: Sequence[str] = ()) -> list[Entry]:
    """Every pool, or those named; a CLS token stands for itself and, beside the patches, in SimPool."""
    for name in pools:
        if name != "cls":
            registered(name)  # a typo is told here, with a suggestion
    if repeated := {name for name in pools if pools.count(name) > 1}:
        raise ValueError(f"each pool plays once: {', '.join(sorted(repeated))} is named twice")
    if "cls" in pools and not frozen.backbone.has_cls:
        raise ValueError(f"'{frozen.backbone.name}' has no CLS token to enter the tournament")
    entries = [
        Entry(p, p, group=registered(p).group_name) for p in pools or list_pools() if p != "cls"
    ]
    if frozen.backbone.has_cls and (not pools or "cls" in pools):
        entries += [
            Entry("cls", "cls", "cls", group=CLS),
            Entry("simpool [CLS; patches]", "simpool", "all", group=CLS),
        ]
    return entries


def gamma_entries(gammas: Sequence[float] = ()) -> list[Entry]:
    """SimPool at each exponent, its plain average, which has none, and the learned ones of C.4.

    One row cannot be played: a learned gamma at a tenth of the rate (56.5), since a contender has one rate.
    """

    def simpool(name: str, paper: float | None = None, **options: Any) -> Entry:
        return Entry(name, "simpool", options=options, group="gamma", paper=paper)

    return [
        simpool("no gamma"),
        *(simpool(f"gamma {g:g}", gamma=float(g)) for g in sorted(set(gammas or GAMMAS))),
        simpool("gamma learned", 56.0, gamma=2.0, learn_gamma=True),
        simpool("gamma learned, at most 5", 56.3, gamma=2.0, learn_gamma=True, max_gamma=5.0),
    ]


def ablation_entries(frozen: FrozenBackbone) -> list[Entry]:
    """S Table 10 with the paper's accuracies, of ResNet-18 on a fifth of ImageNet.

    The design, with the exponent that the paper gives this kind of network; then linear maps and LayerNorms of query,
    key and value, with the plain average.
    """
    gamma = 1.25 if frozen.backbone.has_cls or _is_transformer(frozen) else 2.0

    def design(name: str, group: str, paper: float, combine: str = "max", **options: Any) -> Entry:
        return Entry(
            name,
            "simpool",
            options={"gamma": gamma, **options},
            group=group,
            combine=combine,
            paper=paper,
        )

    def layers(linear: str, norm: str, paper: float) -> Entry:
        name = f"linear {linear or '-'}, LN {norm or '-'}"
        return Entry(
            name,
            "simpool",
            options={"linear": linear, "norm": norm},
            group="linear, LN",
            paper=paper,
        )

    return [
        design("SimPool", "SimPool", 57.1),
        Entry("GAP", "gap", group="GAP", paper=55.0),
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
def able(
    entries: Sequence[Entry], frozen: FrozenBackbone, grid: tuple[int, int], named: bool, say: Say
) -> list[Entry]:
    """Those that work on these features; the others are refused where they were named, else left out with a reason."""
    found = []
    tokens = torch.randn(2, prod(grid), frozen.backbone.dim)
    for entry in entries:
        try:
            if entry.pool != "cls":
                pool = create_pool(entry.pool, frozen.backbone.dim, **entry.options).eval()
                pool(torch.cat([tokens[:, :1], tokens], 1) if entry.tokens == "all" else tokens,
                     None if entry.tokens == "all" else grid)  # fmt: skip
            found.append(entry)
        except ValueError as error:
            if named:
                raise
            say(f"left out: {entry.name}: {error}")
    if not found:
        raise ValueError("none of the pools works on these features")
    return found


def _is_transformer(frozen: FrozenBackbone) -> bool:
    blocks: Any = getattr(frozen.backbone.model, "blocks", None)
    return isinstance(blocks, nn.Module) and any(
        "attn" in name for name, _ in blocks.named_modules()
    )
