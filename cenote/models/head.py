"""What stands behind a backbone: pool, last norm, embedding, head."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..backbones import Features
from ..pooling import Pool
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
        if combine not in ("max", "concat"):
            raise ValueError(f"combine is 'max' or 'concat', got '{combine}'")
        if norm not in (None, "batch"):
            raise ValueError(f"norm is None or 'batch', got '{norm}'")
        self.dim, self.classes, self.k, self.combine = dim, classes, k, combine
        self.project = nn.Linear(k * dim, dim) if combine == "concat" and k > 1 else None
        self.norm = BatchNorm(dim, affine=False, eps=1e-6) if norm else None
        self.linear = nn.Linear(dim, classes, bias=bias)

    def forward(self, u: Tensor) -> Tensor:
        if u.ndim == 2 and self.k == 1:
            u = u[:, None]  # (B, k, D)
        if not torch.compiler.is_compiling() and u.shape[1:] != (self.k, self.dim):
            raise ValueError(f"a head of dim={self.dim}, k={self.k} got shape {tuple(u.shape)}")
        if self.project is not None:
            u = self.project(u.flatten(1))[:, None]  # (B, k, D) -> (B, 1, D)
        if self.norm is not None:
            # One image has no spread of its own, not even its k vectors, and the last batch of an
            # epoch may be one image: the statistics of earlier batches are the best estimate.
            lone = self.training and len(u) == 1
            u = self.settled(u) if lone else self.norm(u)
        return self.linear(u).amax(1)  # (B, k, classes) -> (B, classes)

    def settled(self, x: Tensor) -> Tensor:
        """Normalise by the running statistics: independent of the other images of the batch."""
        return x if self.norm is None else self.norm.settled(x)


class Embedding(nn.Module):
    """(B, D), or (B, k, D) for k pooled vectors in a row -> (B, embedding_dim), not normalised.

    norm="layer": a LayerNorm without weights on the pooled vector, before the linear layer, as
    ProxyNCA++ has it.
    """

    def __init__(self, dim: int, embedding_dim: int, norm: str | None = None) -> None:
        super().__init__()
        if not isinstance(embedding_dim, int) or embedding_dim < 1:
            raise ValueError(f"embedding_dim is a whole number above 0, got {embedding_dim!r}")
        if norm not in (None, "layer"):
            raise ValueError(f"embedding_norm is None or 'layer', got '{norm}'")
        self.norm = nn.LayerNorm(dim, elementwise_affine=False) if norm else nn.Identity()
        self.linear = nn.Linear(dim, embedding_dim)

    def forward(self, u: Tensor) -> Tensor:
        z: Tensor = self.linear(self.norm(u.flatten(1)))
        return z


class PoolAndHead(nn.Module):
    """Features -> vectors, maps and logits: what a model and a head on cached features share."""

    pool: Pool | None  # None: the CLS token is the vector
    tokens: str  # what is pooled: the "patches", or "all" of [CLS; patches]; "cls" without a pool
    after: nn.Module  # the last LayerNorm, where it stands behind the pool
    embedding: nn.Module  # the linear layer behind that, where vectors are made to be compared
    head: Head | None

    def pool_features(self, features: Features) -> tuple[Tensor, Tensor | None]:
        """Vectors, and the pool's own maps (B, m, H, W) or None."""
        tokens, grid, cls = features
        if self.pool is None:
            assert cls is not None
            return cls, None
        if self.tokens == "all":
            assert cls is not None
            u, a = self.pool.vectors_and_maps(torch.cat([cls[:, None], tokens], 1), None)
            a = None if a is None else a[..., 1:]  # CLS has no place in the map
        else:
            u, a = self.pool.vectors_and_maps(tokens, grid)
        return u, None if a is None else a.unflatten(-1, grid)

    def refine(self, u: Tensor) -> Tensor:
        """Apply the last norm and the embedding to pooled vectors."""
        vectors: Tensor = self.embedding(self.after(u))
        return vectors

    def embed_features(self, features: Features) -> Tensor:
        """(B, D), or (B, k, D) for a pool of k vectors: what the head sees."""
        return self.refine(self.pool_features(features)[0])

    def classify(self, features: Features) -> Tensor:
        """Logits, or vectors where there is no head."""
        u = self.embed_features(features)
        return u if self.head is None else self.head(u)
