import math

import torch
from torch import Tensor, nn

from .base import Grid, Pool
from .framework import DOT, FEATURES, Algorithm, Component, softmax_over_queries
from .registry import register


@register(
    "slot",
    group=2,
    title="Slot",
    source="Locatello et al., Slot Attention, 2020",
    category=True,
    simplified=True,
)
class Slot(Pool):
    """k slots compete for the positions over T steps [SimPool Eqs. B21-B24].

    A = η₂(σ₁(KᵀQ/√d)), G = GRU(VA, U), U = G + MLP(LN(G)), with Q = W_Q LN(U), K = W_K LN(X), V =
    W_V LN(X). Slots start from N(μ, σ²), both learnable: fresh noise in training, one fixed seeded
    draw in evaluation.
    """

    sums_to_one = True

    def __init__(
        self, dim: int, k: int = 3, iterations: int = 3, eps: float = 1e-8, seed: int = 0
    ) -> None:
        super().__init__(dim, k)
        self.check_whole(iterations=iterations)
        self.check_positive(eps=eps)
        self.iterations, self.eps = iterations, eps
        self.mu = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, dim))[0])
        self.log_sigma = nn.Parameter(torch.zeros(dim))
        rng = torch.Generator().manual_seed(seed)
        self.register_buffer("noise", torch.randn(k, dim, generator=rng))
        self.norm_x, self.norm_u, self.norm_mlp = (nn.LayerNorm(dim) for _ in range(3))
        self.wq, self.wk, self.wv = (nn.Linear(dim, dim, bias=False) for _ in "qkv")
        self.gru = nn.GRUCell(dim, dim)  # with the MLP 11 d² weights in all
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    noise: Tensor  # (k, D)

    def algorithm(self) -> Algorithm:
        return Algorithm(
            init=Component("U", lambda c: self.slots(c.x)),
            phi_q=Component("W_Q U", lambda c: self.wq(self.norm_u(c.u))),
            phi_k=Component("W_K X", lambda c: self.wk(self.norm_x(c.x))),
            similarity=DOT,
            attention=softmax_over_queries(1 / math.sqrt(self.dim), self.eps),
            phi_v=Component("W_V X", lambda c: self.wv(self.norm_x(c.x))),
            phi_x=FEATURES,
            phi_u=Component("MLP(GRU(Z))", lambda c: self.update(c.z, c.u)),
            iterations=self.iterations,
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        # The same function with no key and no value: W_K folds into the k queries, W_V acts on the
        # k averages.
        u, x = self.slots(x), self.norm_x(x)
        for _ in range(self.iterations):
            q = self.wq(self.norm_u(u)) @ self.wk.weight / math.sqrt(self.dim)  # (B, k, D)
            a = (q @ x.mT).softmax(1) + self.eps  # (B, k, N), over slots
            a = a / a.sum(-1, keepdim=True)
            u = self.update(self.wv(a @ x), u)
        return u, a

    def slots(self, x: Tensor) -> Tensor:
        """U⁰ for each image of the batch (B, k, D)."""
        shape = (x.shape[0], self.k, self.dim)
        noise = self.noise.expand(shape)
        if self.training:
            noise = torch.randn(shape, dtype=x.dtype, device=x.device)
        return self.mu + self.log_sigma.exp() * noise

    def update(self, z: Tensor, u: Tensor) -> Tensor:
        g: Tensor = self.gru(z.flatten(0, 1), u.flatten(0, 1)).view_as(u)
        g = g + self.mlp(self.norm_mlp(g))
        return g
