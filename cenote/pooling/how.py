from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Grid, Pool
from .framework import TINY, Algorithm, Component, Variables
from .registry import register


@register(
    "how",
    group=1,
    title="HOW",
    source="Tolias et al., Learning and Aggregating Deep Local Descriptors, 2020",
)
class HOW(Pool):
    """Norm-weighted sum of smoothed features: u = η²(Σ_j ‖x_j‖ FC(avg₃(X))_j)
    [Dissertation Eqs. 3.17-3.20].

    The weights are norms, as in the text of the paper; its formula, diag(XᵀX) [SimPool Eq. B10], has
    their squares.
    FC is a fixed PCA whitening with reduction to `out_dim`: `fit` learns it from local features;
    until then it is the identity (its first `out_dim` rows). The commands that train a network with
    trained weights fit it to 256 training images. `kernel=1` does not smooth and needs no grid.
    """

    permutation_invariant = False
    needs_grid = True
    trainable: ClassVar[bool] = False  # is FC learned with the network?

    def __init__(self, dim: int, out_dim: int | None = None, kernel: int = 3) -> None:
        super().__init__(dim, out_dim=out_dim)
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"'{self.name}' smooths with an odd kernel, got {kernel}")
        if self.out_dim > dim:
            raise ValueError(f"'{self.name}' cannot make {self.out_dim} channels of {dim}")
        self.kernel = kernel
        self.needs_grid = kernel > 1
        for name, value in (("weight", torch.eye(self.out_dim, dim)), ("mean", torch.zeros(dim))):
            if self.trainable:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    weight: Tensor  # (D', D)
    mean: Tensor  # (D,)

    @torch.no_grad()
    def fit(self, x: Tensor, grid: Grid | None = None) -> HOW:
        """Centring, PCA and whitening of smoothed local features (B, N, D) of training images."""
        self.check_input(x, grid)
        v = self.smooth(self.local(x).double(), grid).flatten(0, 1)  # (B N, D)
        mean = v.mean(0)
        values, vectors = torch.linalg.eigh((v - mean).mT @ (v - mean) / len(v))  # ascending
        values = values.clamp_min(1e-6 * values[-1].clamp_min(TINY)).flip(0)[: self.out_dim]
        self.mean.copy_(mean)
        self.weight.copy_(vectors.flip(1)[:, : self.out_dim].mT * values.rsqrt()[:, None])
        return self

    def smooth(self, x: Tensor, grid: Grid | None) -> Tensor:
        """Local average of the neighbours that exist: no padding is counted."""
        if grid is None or self.kernel == 1:
            return x
        maps = x.mT.reshape(x.shape[0], self.dim, *grid)  # (B, D, H, W)
        size, pad = self.kernel, self.kernel // 2
        return F.avg_pool2d(maps, size, 1, pad, count_include_pad=False).flatten(2).mT

    def algorithm(self) -> Algorithm:
        def whitened(c: Variables) -> Tensor:
            return (self.smooth(c.x, c.grid) - self.mean.to(c.x)) @ self.weight.to(c.x).mT

        return Algorithm(
            attention=Component("diag(XᵀX)^½", lambda c: norms(c.x)),
            phi_v=Component(f"FC(avg_{self.kernel}(X))", whitened),
            phi_u=Component("η²(Z)", lambda c: F.normalize(c.z, dim=-1)),
        )

    def pool(self, x: Tensor, grid: Grid | None) -> tuple[Tensor, Tensor]:
        # FC and avg are linear: smooth the one-channel weights instead of the D-channel features
        # (the adjoint of the average), and map one vector instead of N.
        a = norms(x)  # (B, 1, N)
        b = a
        if grid is not None and self.kernel > 1:
            size, pad = self.kernel, self.kernel // 2
            w = a.reshape(a.shape[0], 1, *grid)  # (B, 1, H, W)
            present = F.avg_pool2d(torch.ones_like(w), size, stride=1, padding=pad)
            b = F.avg_pool2d(w / present, size, stride=1, padding=pad).flatten(2)
        z = b @ x - a.sum(-1, keepdim=True) * self.mean.to(x)  # (B, 1, D)
        return F.normalize(z @ self.weight.to(x).mT, dim=-1), a


def norms(x: Tensor) -> Tensor:
    """(B, N, D) -> ‖x_j‖ as one map (B, 1, N), with a zero slope at a zero feature."""
    return x.square().sum(-1)[:, None].clamp_min(TINY).sqrt()
