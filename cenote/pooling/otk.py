import math

import torch
from torch import Tensor, nn

from .base import Grid, Pool
from .framework import DISTANCE, FEATURES, Algorithm, Component, squared_distance
from .registry import register


@register(
    "otk",
    group=2,
    title="OTK",
    source="Mialon et al., Optimal Transport Embedding, 2021",
    category=True,
)
class OTK(Pool):
    """Optimal transport from positions to k learnable references: U = ψ(X) P, P =
    Sinkhorn(e^{-‖x-u‖²/ε}) [SimPool Eqs. B13-B15].

    Each position sends 1/p, each reference receives 1/k: its map sums to 1/k. `eps` is √d by
    default, the scale of dot products. ψ is the identity by default, which suits features of any
    scale and keeps their D channels; `anchors=m` makes it the m Nyström features κ(x,W)
    κ(W,W)^(-1/2) of a Gaussian kernel of width `sigma` (√d).
    """

    def __init__(
        self,
        dim: int,
        k: int = 3,
        iterations: int = 3,
        eps: float | None = None,
        anchors: int | None = None,
        sigma: float | None = None,
    ) -> None:
        if anchors is not None:
            self.check_whole(anchors=anchors)
        super().__init__(dim, k, out_dim=anchors)
        self.check_whole(iterations=iterations)
        self.iterations = iterations
        self.eps, self.sigma = (math.sqrt(dim) if v is None else v for v in (eps, sigma))
        self.check_positive(eps=self.eps, sigma=self.sigma)
        self.references = nn.Parameter(torch.randn(k, dim))
        self.anchors = nn.Parameter(torch.randn(anchors, dim)) if anchors is not None else None

    def algorithm(self) -> Algorithm:
        eps, iterations = self.eps, self.iterations
        return Algorithm(
            init=Component("U", lambda c: self.references.expand(c.x.shape[0], -1, -1)),
            phi_q=Component("U", lambda c: c.u),
            phi_k=FEATURES,
            similarity=DISTANCE,
            attention=Component("Sinkhorn(e^{S/ε})", lambda c: sinkhorn(c.s / eps, iterations)),
            phi_v=Component("ψ(X)", lambda c: self.psi(c.x)),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        # ‖x‖² is the same for every reference: the first normalisation over references removes it.
        u = self.references
        s = 2 * u @ x.mT - u.square().sum(-1, keepdim=True)  # (B, k, N)
        p = sinkhorn(s / self.eps, self.iterations)
        return p @ self.psi(x), p

    def psi(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, anchors), or X itself."""
        if self.anchors is None:
            return x
        w, scale = self.anchors, -0.5 / self.sigma**2
        among = (squared_distance(w, w) * scale).exp()  # κ(W, W)
        return (squared_distance(x, w) * scale).exp() @ inverse_root(among)


def sinkhorn(s: Tensor, iterations: int) -> Tensor:
    """Plan (B, k, N) of e^S: positions send 1/N each, references receive 1/k each (exactly)."""
    for _ in range(iterations):
        # Over references, then positions. 1/N and 1/k cancel in the next step, but for the last.
        s = s.log_softmax(-2).log_softmax(-1)
    return s.exp() / s.shape[-2]


def inverse_root(m: Tensor) -> Tensor:
    """(M + 0.001 I)^(-1/2) by Newton-Schulz: eigenvectors have no gradient at equal values."""
    eye = torch.eye(m.shape[-1], dtype=m.dtype, device=m.device)
    m = m + 1e-3 * eye
    norm = m.square().sum().sqrt()
    y, z = m / norm, eye  # -> M^(1/2), M^(-1/2)
    for _ in range(24):
        t = 1.5 * eye - 0.5 * z @ y
        y, z = y @ t, t @ z
    return z * norm.rsqrt()
