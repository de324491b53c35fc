"""Pooled vector(s) -> the embedding that metric learning compares."""

from __future__ import annotations

from torch import Tensor, nn

NORMS = (None, "layer")


class Embedding(nn.Module):
    """(B, D), or (B, k, D) for k pooled vectors in a row -> (B, embedding_dim), not normalised.

    norm="layer": a LayerNorm without weights on the pooled vector, before the linear layer, as
    ProxyNCA++ has it.
    """

    def __init__(self, dim: int, embedding_dim: int, norm: str | None = None) -> None:
        super().__init__()
        if not isinstance(embedding_dim, int) or embedding_dim < 1:
            raise ValueError(f"embedding_dim is a whole number above 0, got {embedding_dim!r}")
        if norm not in NORMS:
            raise ValueError(f"embedding_norm is None or 'layer', got '{norm}'")
        self.norm = nn.LayerNorm(dim, elementwise_affine=False) if norm else nn.Identity()
        self.linear = nn.Linear(dim, embedding_dim)

    def forward(self, u: Tensor) -> Tensor:
        z: Tensor = self.linear(self.norm(u.flatten(1)))
        return z
