"""Pooled vector(s) -> logits."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..pooling.batchnorm import BatchNorm


class Head(nn.Module):
    """(B, D), or (B, k, D) for k pooled vectors -> logits (B, classes).

    combine="max": one linear layer on each vector, the largest of the k logits for each class;
    combine="concat": the k vectors in a row, projected to D, then the linear layer
    [SimPool Table 10]. norm="batch": BatchNorm without affine before the linear layer, as attentive
    probing does.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        k: int = 1,
        combine: Literal["max", "concat"] = "max",
        norm: Literal["batch"] | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if dim < 1 or classes < 1 or k < 1:
            raise ValueError(
                f"a head needs dim, classes and k of at least 1, got {dim}, {classes} and {k}"
            )
        if combine not in ("max", "concat"):
            raise ValueError(f"combine is 'max' or 'concat', got '{combine}'")
        if norm not in (None, "batch"):
            raise ValueError(f"norm is None or 'batch', got '{norm}'")
        self.dim, self.classes, self.k, self.combine = dim, classes, k, combine
        self.project = nn.Linear(k * dim, dim) if combine == "concat" and k > 1 else None
        self.norm = BatchNorm(dim, affine=False, eps=1e-6) if norm else None
        self.linear = nn.Linear(dim, classes, bias=bias)

    def forward(self, u: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self._check(u)
        u = u.unflatten(1, (self.k, self.dim)) if u.ndim == 2 else u  # (B, k, D)
        if self.project is not None:
            u = self.project(u.flatten(1))[:, None]  # (B, k, D) -> (B, 1, D)
        return self.linear(self._normalise(u)).amax(1)  # (B, k, classes) -> (B, classes)

    def _normalise(self, u: Tensor) -> Tensor:
        if self.norm is None:
            return u
        if self.training and len(u) == 1:
            # One image has no spread of its own, not even its k vectors, and the last batch of an
            # epoch may well be one image. What the earlier batches had is the best estimate there
            # is.
            return self.norm.settled(u)
        return self.norm(u)  # the k vectors share the linear layer, hence its norm too

    def _check(self, u: Tensor) -> None:
        expected = f"(B, {self.dim})" if self.k == 1 else f"(B, {self.k}, {self.dim})"
        if tuple(u.shape[1:]) not in ((self.k, self.dim), *([(self.dim,)] if self.k == 1 else [])):
            raise ValueError(
                f"this head takes {expected} (dim={self.dim}, k={self.k}), got shape {tuple(u.shape)}"
            )
