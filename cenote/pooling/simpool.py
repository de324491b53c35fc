from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .attention import block_diagonal, own_blocks
from .base import Grid, Pool
from .blocks import blocks_serve
from .framework import (
    AVERAGE,
    SIMILARITIES,
    TINY,
    Algorithm,
    Mean,
    Part,
    State,
    power,
    softmax_over_positions,
    softmax_over_queries,
)
from .kmeans import KMeans
from .registry import register
from .simpool_blocked import simpool_blocked

INITS = ("gap", "learned", "norm")
FLOORS = ("image", "batch", "channel")
NAMES_ELSEWHERE = {
    "norm_patches.": "norm.",
    "q.": "wq.",
    "k.": "wk.",
}  # the authors' checkpoints; timm's


@register(
    "simpool",
    group=5,
    title="SimPool",
    source="Psomas et al., Keep it SimPool, 2023",
    category=True,
)
class SimPool(Pool):
    """One step of attention from the average to the features, pooled by a generalized mean (Algorithm 2).

        u0 = GAP(X),  X' = LN(X),  a = softmax((W_K X')^T W_Q u0 / sqrt d)
        V = X' - min X',  u = (sum_j a_j V_j^gamma)^(1/gamma)

    The papers use gamma = 2 for convolutional networks, 1.25 for transformers. `gamma=None` is the plain
    average of X' (f_-1), as in the released code; `gamma=1` the same average of V, so lifted by the floor.

    `floor`: where the minimum is taken. "image" is the paper's. The authors' released layer takes it
    over the whole "batch" (an image's vector then depends on its neighbours), timm's per "channel":
    choose theirs to reproduce a checkpoint trained with it.

    The rest are the rows of the paper's ablation (S Table 10, C.4): `heads`; `attention` "softmax" or
    "queries" (eta_2(sigma_1): queries compete for positions, uniform for a single query); `layers` (own
    weights) or `iterations` (shared); `init` "gap", "learned" or "norm" (features weighted by diag(X^T X));
    `similarity` "dot", "distance", "cosine"; `k` vectors started by k-means; `tied` for W_Q = W_K;
    `linear` and `norm`, which of "qkv" have a linear map and a LayerNorm; `learn_gamma`, `max_gamma`
    (`parameter_groups` gives gamma its own learning rate); `beta`, a learned offset some checkpoints have.
    """

    sums_to_one = True
    published: ClassVar[dict[str, Any]] = {"gamma": 2.0}

    def __init__(
        self,
        dim: int,
        gamma: float | None = None,
        floor: str = "image",
        heads: int = 1,
        attention: str = "softmax",
        similarity: str = "dot",
        init: str = "gap",
        k: int = 1,
        layers: int = 1,
        iterations: int = 1,
        tied: bool = False,
        linear: str = "qk",
        norm: str = "kv",
        learn_gamma: bool = False,
        max_gamma: float | None = None,
        beta: bool = False,
    ) -> None:
        super().__init__(dim, k)
        _one_of("floor", floor, FLOORS)
        _one_of("attention", attention, ("softmax", "queries"))
        _one_of("similarity", similarity, tuple(SIMILARITIES))
        _one_of("init", init, INITS)
        self.check_whole(heads=heads, layers=layers, iterations=iterations)
        if dim % heads:
            raise ValueError(f"simpool: {heads} heads do not divide dim {dim}")
        if heads > 1 and similarity != "dot":
            raise ValueError("simpool: several heads need similarity='dot'")
        if layers > 1 and iterations > 1:
            raise ValueError(
                "simpool: layers (own weights) and iterations (shared weights) exclude each other"
            )
        if k > 1 and init != "gap":
            raise ValueError("simpool: k > 1 vectors start from k-means, init must stay 'gap'")
        if tied and not {"q", "k"} <= set(linear):
            raise ValueError("simpool: tied means W_Q = W_K, so linear must hold both q and k")
        if learn_gamma and gamma is None:
            raise ValueError("simpool: learn_gamma needs a gamma to start from")
        if gamma is not None:
            self.check_positive(gamma=gamma)
        if max_gamma is not None:
            self.check_positive(max_gamma=max_gamma)
        self.floor, self.heads, self.attention, self.similarity, self.init = (
            floor,
            heads,
            attention,
            similarity,
            init,
        )
        self.steps, self.layers, self.tied, self.max_gamma = (
            max(layers, iterations),
            layers,
            tied,
            max_gamma,
        )
        self.linear, self.normed = _letters("linear", linear), _letters("norm", norm)
        self.norm = nn.LayerNorm(dim, eps=1e-6) if self.normed & {"k", "v"} else None
        self.norm_q = nn.LayerNorm(dim, eps=1e-6) if "q" in self.normed else None
        self.wq = self._maps("q" in self.linear)
        self.wk = self._maps("k" in self.linear and not tied)
        self.wv = self._maps("v" in self.linear)
        self.start = nn.Parameter(torch.randn(1, 1, dim) * 0.02) if init == "learned" else None
        self.clusters = KMeans(dim, k) if k > 1 else None
        self.min_tokens, self.permutation_invariant = (
            k,
            k == 1,
        )  # k-means draws its start by position
        self.gamma: float | nn.Parameter | None = None if gamma is None else float(gamma)
        if learn_gamma and gamma is not None:
            self.gamma = nn.Parameter(torch.tensor(float(gamma)))
        self.beta = nn.Parameter(torch.zeros(1)) if beta else None

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        if not self._is_default():
            u, a = self.algorithm().run(x, grid)
            return u, a
        assert (
            isinstance(self.wq, nn.Linear)
            and isinstance(self.wk, nn.Linear)
            and self.norm is not None
        )
        if (
            blocks_serve(x)
            and self.floor == "image"
            and self.init == "gap"
            and not isinstance(self.gamma, Tensor)
        ):
            norm = self.norm
            u, a = simpool_blocked(
                x, self.wq.weight, self.wk.weight, norm.weight, norm.bias, norm.eps, self.gamma
            )
            return self._shift(u[:, None]), a[:, None]
        u0 = self._start(x)  # (B, 1, D)
        values = self.norm(x)
        t = (
            self.wq(u0) @ self.wk.weight * self.dim**-0.5
        )  # K^T q = X'^T (W_K^T q): the keys never exist
        a = (t @ values.mT).softmax(-1)  # (B, 1, N)
        return self._shift(self._mean()(self._lift(values), a)), a

    def algorithm(self) -> Algorithm:
        scale = (self.dim // self.heads) ** -0.5
        normed = softmax_over_positions if self.attention == "softmax" else softmax_over_queries
        init = {"gap": "π_A(X)", "learned": "U", "norm": "X diag(XᵀX)"}[self.init]
        return Algorithm(
            init=Part("k-means(X)" if self.clusters else init, lambda c: self._start(c.x)),
            phi_q=Part("W_Q U" if "q" in self.linear else "U", self._queries),
            phi_k=Part("W_K X" if "k" in self.linear else "X", lambda c: self.keys(c.x, c.t)),
            similarity=SIMILARITIES[self.similarity],
            attention=normed(scale),
            phi_v=Part(self._value_label(), lambda c: self._lift(self._values(c.x, c.t))),
            f=self._mean(),
            phi_u=Part("Z", lambda c: self._shift(own_blocks(c.z, self.heads))),
            iterations=self.steps,
        )

    def keys(self, x: Tensor, step: int = 0) -> Tensor:
        """K = W_K LN(X) (S 14, B52), for those who read the keys themselves, as LOST does."""
        x = self.norm(x) if self.norm and "k" in self.normed else x
        return self._at(self.wq if self.tied else self.wk, step)(x)

    def parameter_groups(self, lr: float, gamma_scale: float = 0.1) -> list[dict[str, Any]]:
        """Optimizer groups in which a learned gamma moves `gamma_scale` times as fast as the rest (C.4)."""
        rest = [p for name, p in self.named_parameters() if name != "gamma"]
        groups: list[dict[str, Any]] = [{"params": rest, "lr": lr}]
        if isinstance(self.gamma, nn.Parameter):
            groups.append({"params": [self.gamma], "lr": lr * gamma_scale, "weight_decay": 0.0})
        return groups

    def _is_default(self) -> bool:
        one_step = self.steps == self.heads == self.k == 1
        return (
            one_step
            and self.similarity == "dot"
            and self.attention == "softmax"
            and self.linear == {"q", "k"}
            and self.normed == {"k", "v"}
            and not self.tied
        )

    def _maps(self, wanted: bool) -> nn.Module | None:
        if not wanted:
            return None
        maps = [nn.Linear(self.dim, self.dim, bias=False) for _ in range(self.layers)]
        return maps[0] if self.layers == 1 else nn.ModuleList(maps)

    def _at(self, maps: nn.Module | None, step: int) -> nn.Module:
        if maps is None:
            return nn.Identity()
        return maps[step] if isinstance(maps, nn.ModuleList) else maps

    def _start(self, x: Tensor) -> Tensor:
        """U^0 (B, k, D)."""
        if self.clusters is not None:
            return self.clusters.pool(x, None)[0]
        if self.start is not None:
            return self.start.expand(x.shape[0], -1, -1)
        if self.init == "norm":
            energy = x.square().sum(-1)[:, None]  # diag(X^T X), brought to the scale of an average
            return energy / energy.sum(-1, keepdim=True).clamp_min(TINY) @ x
        return x.mean(1, keepdim=True)

    def _queries(self, c: State) -> Tensor:
        u = self.norm_q(c.u) if self.norm_q else c.u
        q: Tensor = self._at(self.wq, c.t)(u)  # (B, k, D)
        return block_diagonal(q, self.heads)  # (B, k m, D)

    def _values(self, x: Tensor, step: int) -> Tensor:
        x = self.norm(x) if self.norm and "v" in self.normed else x
        v: Tensor = self._at(self.wv, step)(x)
        return v

    def _value_label(self) -> str:
        x = "W_V X" if "v" in self.linear else "X"
        return f"{x} - min {x}" if self.gamma is not None else x

    def _lift(self, v: Tensor) -> Tensor:
        """V = X' - min X' >= 0 (S 16, B53), where f_alpha needs it."""
        if self.gamma is None:
            return v
        if self.floor == "batch":
            return v - v.min()
        return v - (
            v.amin(1, keepdim=True) if self.floor == "channel" else v.amin((1, 2), keepdim=True)
        )

    def _mean(self) -> Mean:
        if self.gamma is None:
            return AVERAGE
        if isinstance(self.gamma, Tensor):
            return power(self.gamma.clamp(1e-2, self.max_gamma))  # a power mean needs gamma > 0
        return power(self.gamma)

    def _shift(self, u: Tensor) -> Tensor:
        return u if self.beta is None else u + self.beta

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        for theirs, ours in NAMES_ELSEWHERE.items():
            for name in [n for n in state_dict if n.startswith(prefix + theirs)]:
                state_dict[prefix + ours + name.removeprefix(prefix + theirs)] = state_dict.pop(
                    name
                )
        if prefix + "beta" in state_dict and self.beta is None:
            self.beta = nn.Parameter(state_dict[prefix + "beta"].to(next(self.parameters())))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"simpool: {option} is one of {', '.join(known)}, got '{value}'")


def _letters(option: str, value: str) -> frozenset[str]:
    if not set(value) <= set("qkv"):
        raise ValueError(f"simpool: {option} is made of the letters q, k, v, got '{value}'")
    return frozenset(value)
