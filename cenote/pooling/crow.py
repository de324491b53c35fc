from torch import Tensor

from .base import Pool
from .framework import TINY, Algorithm, Component, raise_to, root
from .registry import register


@register(
    "crow", group=7, title="CroW", source="Kalantidis et al., Cross-dimensional Weighting, 2016"
)
class CroW(Pool):
    """Cross-dimensional weighting: u = I ∘ Σ_j α_j x_j, without parameters.

    α_j = (s_j / ‖s‖_a)^(1/b), s_j the sum of x_j over channels (taken as 0 where negative);
    I_c = log((Dε + Σ_h Q_h) / (ε + Q_c)), Q_c the share of positions where channel c is positive.
    """

    def __init__(self, dim: int, a: float = 2.0, b: float = 2.0, eps: float = 1e-6) -> None:
        super().__init__(dim)
        self.check_positive(a=a, b=b, eps=eps)
        self.a, self.b, self.eps = a, b, eps

    def algorithm(self) -> Algorithm:
        return Algorithm(
            attention=Component("(S/‖S‖_a)^{1/b}", lambda c: self.spatial(c.x)),
            phi_u=Component("diag(I)Z", lambda c: self.channel(c.x) * c.z),
        )

    def spatial(self, x: Tensor) -> Tensor:
        s = x.sum(-1)[:, None].clamp_min(0)  # (B, 1, N)
        # The weights do not depend on the scale of s.
        s = s / s.detach().amax(-1, keepdim=True).clamp_min(TINY)
        total = root(raise_to(s, self.a).sum(-1, keepdim=True), self.a)
        return root(s / total, self.b)

    def channel(self, x: Tensor) -> Tensor:
        q = (x > 0).to(x.dtype).mean(1, keepdim=True)  # (B, 1, D), constant to the gradient
        return ((q.sum(-1, keepdim=True) + self.dim * self.eps) / (q + self.eps)).log()
