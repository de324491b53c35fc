import torch
from torch import Tensor

from .base import Grid, Pool
from .framework import Algorithm, Component, Variables
from .registry import register


@register(
    "gemax", group=7, title="GeMax", source="Murray & Perronnin, Generalized Max Pooling, 2014"
)
class GeMax(Pool):
    """Generalised max pooling: the vector equally similar to every feature, u = argmin ‖Xᵀu - 1‖² +
    λ‖u‖².

    u = X (XᵀX + λI)⁻¹ 1 = (XXᵀ + λI)⁻¹ X 1, whichever system is smaller. λ = `ridge` times the
    image's mean squared feature norm: any scale of features is regularised alike, and float32 can
    solve it. ONNX has no Cholesky factors: of all pools, this one cannot be exported there.
    """

    no_attention = "its weights may be negative"

    def __init__(self, dim: int, ridge: float = 1.0) -> None:
        super().__init__(dim)
        self.check_positive(ridge=ridge)
        self.ridge = ridge

    def algorithm(self) -> Algorithm:
        def attention(c: Variables) -> Tensor:
            unit_vector = torch.ones_like(c.x[..., :1])  # (B, N, 1)
            return solve(c.x @ c.x.mT, self.penalty(c.x), unit_vector).mT

        return Algorithm(attention=Component("(XᵀX+λI)⁻¹1", attention))

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor | None]:
        # An exported program has one branch: the system whose size does not depend on the grid.
        if not torch.compiler.is_exporting() and x.shape[1] <= self.dim:
            return super().pool(x, grid)
        return solve(x.mT @ x, self.penalty(x), x.sum(1)[..., None]).mT, None

    def penalty(self, x: Tensor) -> Tensor:
        return self.ridge * x.square().sum(-1).mean(1).clamp_min(1e-6)[:, None, None]


def solve(gram: Tensor, penalty: Tensor, y: Tensor) -> Tensor:
    """(gram + penalty I)⁻¹ y for a positive semidefinite gram (B, n, n)."""
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky_ex(gram + penalty * eye).L
    return torch.cholesky_solve(y, factor)
