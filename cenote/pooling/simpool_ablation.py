from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .attention import block_diagonal, own_blocks
from .base import Grid, Pool
from .framework import (
    SIMILARITIES,
    TINY,
    Algorithm,
    Component,
    Variables,
    power,
    softmax_over_positions,
    softmax_over_queries,
)
from .kmeans import KMeans
from .registry import register_ablation
from .simpool import MINIMUM_OVER, SimPool

INITS = {"gap": "π_A(X)", "learned": "U", "norm": "X diag(XᵀX)"}
ATTENTIONS: dict[str, Callable[[float], Component]] = {
    "softmax": softmax_over_positions,
    "queries": softmax_over_queries,
}


@register_ablation("simpool")
class SimPoolAblation(SimPool):
    """SimPool with every component of its ablation [SimPool Table 10, Sec. C.4].

    `heads`; `attention` "softmax" or "queries" (queries compete for positions, uniform for a single
    query); `layers` (own weights) or `iterations` (shared weights), which the sentence of Sec. 4.4
    has the other way round; `init` "gap", "learned" or "norm" (features weighted by their squared
    norm); `similarity` "dot", "distance" or "cosine";
    `k` vectors initialised by k-means; `tied` for W_Q = W_K; `linear` and `norm`: which of "qkv"
    have a linear layer and a LayerNorm; `learn_gamma`, up to `max_gamma`, with `gamma_lr_factor`
    times the learning rate.
    """

    def __init__(
        self,
        dim: int,
        gamma: float | None = None,
        floor: str = "image",
        beta: bool = False,
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
        gamma_lr_factor: float = 1.0,
    ) -> None:
        Pool.__init__(self, dim, k)  # SimPool's own layers are not used
        self.check_choice("floor", floor, MINIMUM_OVER)
        self.check_choice("attention", attention, ATTENTIONS)
        self.check_choice("similarity", similarity, SIMILARITIES)
        self.check_choice("init", init, INITS)
        self.check_whole(heads=heads, layers=layers, iterations=iterations)
        exponents = {"gamma": gamma, "max_gamma": max_gamma, "gamma_lr_factor": gamma_lr_factor}
        self.check_positive(**{name: g for name, g in exponents.items() if g is not None})
        if not set(linear + norm) <= set("qkv"):
            raise ValueError(f"'simpool': linear={linear!r}, norm={norm!r}: use letters of 'qkv'")
        conflicts = {
            f"{heads} heads do not divide dim {dim}": dim % heads,
            "several heads need similarity='dot'": heads > 1 and similarity != "dot",
            "layers and iterations exclude each other": layers > 1 and iterations > 1,
            "k > 1 vectors start from k-means: init must be 'gap'": k > 1 and init != "gap",
            "tied needs linear to hold q and k": tied and not {"q", "k"} <= set(linear),
            "learn_gamma needs a gamma to start from": learn_gamma and gamma is None,
        }
        for message, applies in conflicts.items():
            if applies:
                raise ValueError(f"'simpool': {message}")
        self.floor, self.heads, self.attention = floor, heads, attention
        self.similarity, self.init, self.layers, self.tied = similarity, init, layers, tied
        self.steps, self.max_gamma = max(layers, iterations), max_gamma
        self.gamma_lr_factor = gamma_lr_factor
        self.linear, self.normalised = frozenset(linear), frozenset(norm)
        self.norm = self._layer_norm("k" in norm or "v" in norm)
        self.norm_q = self._layer_norm("q" in norm)
        self.wq = self._linear_layers("q" in linear)
        self.wk = self._linear_layers("k" in linear and not tied)
        self.wv = self._linear_layers("v" in linear)
        self.start = nn.Parameter(torch.randn(1, 1, dim) * 0.02) if init == "learned" else None
        self.clusters = KMeans(dim, k) if k > 1 else None
        self.min_tokens = k
        self.permutation_invariant = k == 1  # k-means draws its start by position
        if learn_gamma and gamma is not None:
            self.register_parameter("gamma", nn.Parameter(torch.tensor(float(gamma))))
        else:
            self.gamma = gamma
        self.beta = nn.Parameter(torch.zeros(1)) if beta else None

    def lr_factors(self) -> list[tuple[list[nn.Parameter], float]]:
        """Return parameters and the factor of their learning rate, for the optimizer."""
        if isinstance(self.gamma, nn.Parameter):
            return [([self.gamma], self.gamma_lr_factor)]
        return []

    @property
    def label(self) -> str:
        return "simpool (gamma learned)" if isinstance(self.gamma, Tensor) else super().label

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        if not self._has_default_layers():
            return self.algorithm().run(x, grid)
        u0 = self._initial(Variables(x, grid))  # as SimPool.pool, with another start or exponent
        x = self.norm(x)
        a = (self.wq(u0) @ self.wk.weight * self.dim**-0.5 @ x.mT).softmax(-1)  # without the keys
        return self.shift(power(self._exponent())(self.lift(x), a)), a

    def _has_default_layers(self) -> bool:
        one_step = self.steps == self.heads == self.k == 1 and not self.tied
        layers = self.linear == {"q", "k"} and self.normalised == {"k", "v"}
        return one_step and layers and (self.similarity, self.attention) == ("dot", "softmax")

    def algorithm(self) -> Algorithm:
        return Algorithm(
            init=Component("k-means(X)" if self.clusters else INITS[self.init], self._initial),
            phi_q=Component("W_Q U" if "q" in self.linear else "U", self._queries),
            phi_k=Component("W_K X" if "k" in self.linear else "X", lambda c: self.keys(c.x, c.t)),
            similarity=SIMILARITIES[self.similarity],
            attention=ATTENTIONS[self.attention]((self.dim // self.heads) ** -0.5),
            phi_v=Component("W_V X" if "v" in self.linear else "X", self._values),
            f=power(self._exponent()),
            phi_u=Component("Z", lambda c: self.shift(own_blocks(c.z, self.heads))),
            iterations=self.steps,
        )

    def keys(self, x: Tensor, step: int = 0) -> Tensor:
        if "k" in self.normalised:
            x = self.norm(x)
        return self._at_step(self.wq if self.tied else self.wk, x, step)

    def _initial(self, c: Variables) -> Tensor:
        """U^0 (B, k, D)."""
        if self.clusters is not None:
            return self.clusters.pool(c.x, None)[0]
        if self.start is not None:
            return self.start.expand(c.x.shape[0], -1, -1)
        if self.init == "norm":
            energy = c.x.square().sum(-1)[:, None]  # diag(X^T X), scaled to sum to one
            return energy / energy.sum(-1, keepdim=True).clamp_min(TINY) @ c.x
        return c.x.mean(1, keepdim=True)

    def _queries(self, c: Variables) -> Tensor:
        q = self._at_step(self.wq, self.norm_q(c.u), c.t)  # (B, k, D)
        return block_diagonal(q, self.heads)  # (B, k m, D)

    def _values(self, c: Variables) -> Tensor:
        x = c.x
        if "v" in self.normalised:
            x = self.norm(x)
        return self.lift(self._at_step(self.wv, x, c.t))

    def _exponent(self) -> float | Tensor | None:
        if isinstance(self.gamma, Tensor):
            return self.gamma.clamp(1e-2, self.max_gamma)  # a power mean needs gamma > 0
        return self.gamma

    def _layer_norm(self, used: bool) -> Any:
        return nn.LayerNorm(self.dim, eps=1e-6) if used else nn.Identity()

    def _linear_layers(self, used: bool) -> Any:
        """One linear layer, or a list of one for each step."""
        if not used:
            return nn.Identity()
        layers = [nn.Linear(self.dim, self.dim, bias=False) for _ in range(self.layers)]
        return layers[0] if self.layers == 1 else nn.ModuleList(layers)

    def _at_step(self, layers: Any, x: Tensor, step: int) -> Tensor:
        layer = layers[step] if isinstance(layers, nn.ModuleList) else layers
        y: Tensor = layer(x)
        return y
