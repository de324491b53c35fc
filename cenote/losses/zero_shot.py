"""GSP's cross-batch zero-shot loss [GSP Sec. 4.3-4.4]: histograms of some classes predict others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..options import check_number
from ..unit import wide


class ZeroShot(nn.Module):
    """A linear map A predicts the embedding v of an image's class from its histogram z.

        A = argmin sum_i ‖A z_i - v_{y_i}‖^2 + ridge sum_j ‖a_j‖^2                                     (P3)
        loss = mean over b2 of CE(v^T A_1 z, y) + mean over b1 of CE(v^T A_2 z, y)                      [GSP Sec. 4.4]

    The histogram is over the prototypes. A_k is fitted on half k; the halves share no class. The
    cross-entropy is over all c classes. The paper gives neither the size of v (128 here, as in the
    authors' program) nor a `scale` of the logits (9.5 there). `weight` is for the caller, whose total
    is (1 - weight) dml + weight zero_shot.
    """

    def __init__(
        self,
        classes: int,
        prototypes: int,
        weight: float = 0.1,
        ridge: float = 0.05,
        dim: int = 128,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        for name, count in {"classes": classes, "prototypes": prototypes, "dim": dim}.items():
            check_number(f"zero-shot: {name}", count, whole=True, least=1)
        check_number("zero-shot: weight", weight, least=0, most=1)
        check_number("zero-shot: ridge", ridge, above=0)  # without it A may not be unique
        check_number("zero-shot: scale", scale, above=0)
        self.classes, self.prototypes = classes, prototypes
        self.weight, self.ridge, self.scale = weight, ridge, scale
        self.v = nn.Parameter(torch.randn(classes, dim) * dim**-0.5)  # label embeddings, learned

    def forward(
        self, z: Tensor, labels: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the loss of histograms (B, m) and labels (B,); a CPU generator draws the halves."""
        if z.ndim != 2 or z.shape[1] != self.prototypes or labels.shape != z.shape[:1]:
            shapes = f"{tuple(z.shape)} and {tuple(labels.shape)}"
            raise ValueError(
                f"zero-shot: histograms are (B, {self.prototypes}) and labels (B,), got {shapes}"
            )
        with torch.autocast(z.device.type, enabled=False):
            z = wide(z)
            v = self.v.to(z.dtype)
            first = self._first_half(labels, generator)  # (B,) bool
            if first is None:
                # Every parameter has a gradient, as distributed training needs.
                return (z.sum() + v.sum()) * 0
            halves = (z[first], labels[first]), (z[~first], labels[~first])
            return self._predicted(*halves, v) + self._predicted(*halves[::-1], v)

    def silent(self, labels: Tensor) -> str | None:
        """Return why this batch has no loss, if so."""
        if len(labels.unique()) > 1:
            return None
        return "zero-shot: a batch of one class has no halves of different classes, its loss is 0"

    def _first_half(self, labels: Tensor, generator: torch.Generator | None) -> Tensor | None:
        present, which = labels.unique(return_inverse=True)
        if len(present) < 2:
            return None
        # Not the lower labels against the higher: the same classes would always be together.
        place = torch.randperm(len(present), generator=generator).to(labels.device)
        return place[which] < len(present) // 2

    def _predicted(
        self, fitted: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor], v: Tensor
    ) -> Tensor:
        a = ridge_map(fitted[0], v[fitted[1]], self.ridge)  # (m, d): A transposed
        return F.cross_entropy(self.scale * (asked[0] @ a) @ v.T, asked[1])


def ridge_map(z: Tensor, v: Tensor, ridge: float) -> Tensor:
    """Return A^T (m, d) of (P3) for Z (b, m), V (b, d), by the smaller system: b x b or m x m."""
    b, m = z.shape
    if b < m:
        return z.T @ _solve(z @ z.T, v, ridge)
    return _solve(z.T @ z, z.T @ v, ridge)


def _solve(gram: Tensor, right: Tensor, ridge: float) -> Tensor:
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(right, torch.linalg.cholesky(gram + ridge * eye))
