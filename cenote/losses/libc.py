"""LIBC (Seidenschwarz et al., Learning intra-batch connections for deep metric learning, 2021).

Settings and details are those of the authors' program (github.com/dvl-tum/intra_batch) for CUB.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..options import check_number
from ..unit import unit, wide
from .metric import Memory, MetricLoss


class LIBC(MetricLoss):
    """Cross-entropy of images that have exchanged messages with all others of their batch.

    In each of `steps` the vectors attend to each other (with themselves among them), an MLP
    follows, each with a skip connection and a LayerNorm. Classifiers of the refined vectors and of
    z itself have the same loss, with label smoothing and a temperature. All of this is part of the
    loss: z alone is searched.
    """

    proxied = True

    def __init__(
        self,
        classes: int,
        dim: int,
        steps: int = 1,
        heads: int = 2,
        temperature: float = 0.2,
        smoothing: float = 0.1,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.name = "libc"
        for name, count in {"steps": steps, "heads": heads}.items():
            check_number(f"{name} of 'libc'", count, whole=True, least=1)
        check_number("temperature of 'libc'", temperature, above=0)
        for name, share in {"smoothing": smoothing, "dropout": dropout}.items():
            check_number(f"{name} of 'libc'", share, least=0, most=0.9)
        if dim % heads:
            raise ValueError(f"heads of 'libc' must divide the {dim} dimensions, got {heads}")
        self.temperature, self.smoothing = temperature, smoothing
        self.reduce = nn.Linear(dim, dim)
        self.messages = nn.Sequential(
            *(nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout) for _ in range(steps))
        )
        self.norm = nn.BatchNorm1d(dim)
        self.norm.bias.requires_grad_(False)
        self.refined_classifier = nn.Linear(dim, classes, bias=False)
        self.classifier = nn.Linear(dim, classes)

    def forward(self, z: Tensor, labels: Tensor, memory: Memory | None = None) -> Tensor:
        if memory is not None:
            raise ValueError("'libc' compares the images of a batch: it takes no memory")
        if len(z) < 2:
            return 0 * z.sum()  # BatchNorm needs two images
        with torch.autocast(z.device.type, enabled=False):
            refined = self.refine(unit(z))
            loss = self._cross_entropy(self.classifier(wide(z)), labels)
            return loss + self._cross_entropy(self.refined_classifier(self.norm(refined)), labels)

    def refine(self, x: Tensor) -> Tensor:
        """Pass messages between unit vectors (B, D), each an image of the batch."""
        refined: Tensor = self.messages(
            self.reduce(x)
        )  # without a batch dimension: B is the length
        return refined

    def _cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(
            logits / self.temperature, labels.long(), label_smoothing=self.smoothing
        )
