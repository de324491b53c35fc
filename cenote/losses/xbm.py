"""Cross-batch memory (Wang et al., 2020): vectors of the last batches, to compare with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..options import check_number


class CrossBatchMemory(nn.Module):
    """Ring buffer of the last `size` vectors and labels, all of it in the state dict.

    `get` returns views, not copies. Hence the order of a step: get, loss, backward, add; autograd
    complains if `add` comes before `backward`. Several processes add the vectors of all of them, in
    the order of their ranks.
    """

    vectors: Tensor
    labels: Tensor
    pointer: Tensor
    filled: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        check_number("size of a memory", size, whole=True, least=1)
        check_number("dim of a memory", dim, whole=True, least=1)
        self.size, self.dim = size, dim
        self.register_buffer("vectors", torch.zeros(size, dim))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("pointer", torch.tensor(0))  # where the next vector goes
        self.register_buffer("filled", torch.tensor(0))

    @torch.no_grad()
    def add(self, z: Tensor, labels: Tensor) -> None:
        """Replace the oldest by vectors (B, dim) and labels (B,); of more than `size`, the last stay."""
        z, labels = z[-self.size :], labels[-self.size :]
        places = (int(self.pointer) + torch.arange(len(z), device=self.vectors.device)) % self.size
        self.vectors[places] = z.to(self.vectors)
        self.labels[places] = labels.to(self.labels)
        self.pointer.add_(len(z)).remainder_(self.size)
        self.filled.add_(len(z)).clamp_(max=self.size)

    def get(self) -> tuple[Tensor, Tensor]:
        """Return vectors (M, dim) and labels (M,) so far, without gradients, in no particular order."""
        n = int(self.filled)
        return self.vectors[:n], self.labels[:n]
