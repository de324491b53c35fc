"""Losses of metric learning as modules: embeddings and class numbers in, a scalar out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..options import check_number
from ..unit import unit
from .forms import Form
from .generic import mean_loss

Memory = tuple[Tensor, Tensor]


class MetricLoss(nn.Module):
    name: str
    proxied = False  # it has parameters, with their own learning rate

    def forward(self, z: Tensor, labels: Tensor, memory: Memory | None = None) -> Tensor:
        """Return the mean over anchors for z (B, D), not normalised, and labels (B,).

        `memory`: further examples (M, D) and labels (M,) to compare with, none of this batch; they
        get no gradient.
        """
        raise NotImplementedError

    def silent(self, labels: Tensor) -> str | None:
        """Return a sentence if a batch with these labels has no loss, or only half of it."""
        if self.proxied:
            return None  # every class has its proxy, near or far
        classes = labels.unique()
        if len(classes) == 1:
            return "all images of a batch are of one class, so nothing is pushed apart: draw several classes a batch"
        if len(classes) == len(labels):
            return "no two images of a batch share a class, so nothing is pulled together: draw several of each class"
        return None


class GenericLoss(MetricLoss):
    """Any row of the table [Dissertation Eq. 2.7]: it takes soft labels."""

    def __init__(
        self, name: str, form: Form, classes: int, dim: int, proxies: int = 1, **settings: float
    ) -> None:
        super().__init__()
        for key, count in {"classes": classes, "dim": dim, "proxies": proxies}.items():
            check_number(f"{key} of '{name}'", count, whole=True, least=1)
        lowest = dict.fromkeys(("beta", "gamma", "temperature"), 0)
        for key, value in settings.items():
            check_number(f"{key} of '{name}'", value, above=lowest.get(key))
        self.name, self.form, self.classes = name, form, classes
        self.settings = {**form.settings, **settings}
        self.per_class, self.proxied = proxies, form.proxied
        if form.proxied:
            self.proxies = nn.Parameter(torch.empty(classes * proxies, dim))
            nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def forward(self, z: Tensor, labels: Tensor, memory: Memory | None = None) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):
            self.check(z, labels)
            x = unit(z)
            if self.form.other != "example":
                if memory is not None:
                    raise ValueError(
                        f"'{self.name}' compares images with proxies only: it takes no memory"
                    )
                return self.judge(self.to_classes(x), F.one_hot(labels.long(), self.classes))
            candidates, of = x, labels
            if memory is not None:
                candidates = torch.cat([x, unit(memory[0].detach()).to(x)])
                of = torch.cat([labels, memory[1].to(labels)])
            if self.form.anchor == "proxy":
                numbers = torch.arange(self.classes, device=labels.device)
                return self.judge(unit(self.proxies).to(x) @ candidates.T, numbers[:, None] == of)
            s, same = x @ candidates.T, labels[:, None] == of
            # No image is compared with itself.
            mask = ~torch.eye(len(x), len(candidates), dtype=torch.bool, device=s.device)
            if self.form.select == "easy":
                mask = easy_and_semi_hard(s, same, mask)
            return self.judge(s, same, mask)

    def judge(self, similarity: Tensor, label: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the generic loss of similarities (A, N) with labels (A, N) in [0, 1]."""
        return mean_loss(similarity, label, self.form, self.settings, mask)

    def to_classes(self, x: Tensor) -> Tensor:
        """Return the similarity of unit vectors (A, D) to each class, (A, C)."""
        return self.of_centres(x @ unit(self.proxies).to(x).T)

    def of_centres(self, s: Tensor) -> Tensor:
        """Reduce similarities to proxies (A, C K) to (A, C): SoftTriple's mean, near ones weigh more."""
        if self.per_class == 1:
            return s
        s = s.unflatten(1, (-1, self.per_class))
        return ((s / self.settings["gamma"]).softmax(-1) * s).sum(-1)

    def check(self, z: Tensor, labels: Tensor) -> None:
        """Check shapes, and that labels are whole numbers and have proxies."""
        whole = not labels.is_floating_point() and labels.dtype != torch.bool
        if z.ndim != 2 or labels.shape != z.shape[:1] or not whole:
            shapes = f"{tuple(z.shape)} and {tuple(labels.shape)} of {labels.dtype}"
            raise ValueError(f"embeddings are (B, D) and labels (B,), whole numbers, got {shapes}")
        if not self.proxied or not len(labels):
            return
        if not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            classes = f"classes 0 to {self.classes - 1}"
            raise ValueError(f"'{self.name}' has proxies of {classes}, and a label is outside")

    def extra_repr(self) -> str:
        return ", ".join([self.name, *(f"{key}={value:g}" for key, value in self.settings.items())])


def easy_and_semi_hard(s: Tensor, same: Tensor, mask: Tensor) -> Tensor:
    """Select for EPSHN: each anchor's nearest positive and the nearest negative beyond it, (A, N)."""
    if not s.numel():
        return mask
    s = s.detach()
    near = s.masked_fill(~(same & mask), -torch.inf)
    far = s.masked_fill(same | ~mask | (s >= near.amax(1, keepdim=True)), -torch.inf)
    selected = torch.zeros_like(mask)
    for values in (near, far):
        nearest = torch.zeros_like(mask).scatter(1, values.argmax(1, keepdim=True), True)
        selected |= nearest & values.isfinite()
    return selected
