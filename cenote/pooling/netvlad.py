import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Pool
from .framework import Algorithm, Component, Variables
from .registry import register


@register("netvlad", group=7, title="NetVLAD", source="Arandjelović et al., NetVLAD, 2016")
class NetVLAD(Pool):
    """Residuals to k clusters under soft assignment: z_i = Σ_j a_ij (x_j - c_i), a_j =
    softmax_i(w_i·x_j + b_i).

    Features are brought to length one first; each z_i is normalised (intra-normalisation), then all
    k together: the flattened output has length one. w and b start as 2αc and -α‖c‖², and are
    learned apart from c.
    """

    def __init__(self, dim: int, k: int = 64, alpha: float = 100.0) -> None:
        super().__init__(dim, k)
        self.check_positive(alpha=alpha)
        self.centroids = nn.Parameter(F.normalize(torch.randn(k, dim), dim=-1))
        self.weight = nn.Parameter(2 * alpha * self.centroids.detach())
        self.bias = nn.Parameter(-alpha * self.centroids.detach().square().sum(-1))

    def algorithm(self) -> Algorithm:
        def residuals(c: Variables) -> Tensor:
            # Σ_j a_j (x_j - c) = Σ_j a_j x_j - (Σ_j a_j) c: no tensor of B N k D residuals
            z = F.normalize(c.z - c.a.sum(-1, keepdim=True) * c.u, dim=-1)
            return F.normalize(z.flatten(1), dim=-1).view_as(z)

        return Algorithm(
            init=Component("C", lambda c: self.centroids.expand(c.x.shape[0], -1, -1)),
            phi_q=Component("W", lambda c: self.weight),
            phi_k=Component("η²(X)", lambda c: F.normalize(c.x, dim=-1)),
            similarity=Component("xᵀy+b", lambda c: c.q @ c.k.mT + self.bias[:, None]),
            attention=Component("σ₁(S)", lambda c: c.s.softmax(1)),
            phi_v=Component("η²(X)", lambda c: c.k),
            phi_u=Component("η²(Z-C diag(1ᵀA))", residuals),
        )
