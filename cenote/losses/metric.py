"""Losses of metric learning as modules: embeddings and class numbers in, a scalar out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..options import check_number
from ..unit import unit
from .forms import EXP, EXP_TOO, Form
from .generic import mean_loss

Memory = tuple[Tensor, Tensor]


class MetricLoss(nn.Module):
    name: str
    proxied = False  # it has parameters of its own, which train at their own rate

    def forward(self, z: Tensor, labels: Tensor, memory: Memory | None = None) -> Tensor:
        """z (B, D), not normalised, labels (B,) -> the mean over anchors.

        `memory`: further examples (M, D) and labels (M,) to compare with, none of this batch; they
        get no gradient.
        """
        raise NotImplementedError

    def silent(self, labels: Tensor) -> str | None:
        """A sentence, if a batch with these labels has nothing to teach, or only half of it."""
        if self.proxied:
            return (
                None  # every class has its proxy: there is always something near and something far
            )
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
        for key, value in settings.items():
            check_number(
                f"{key} of '{name}'",
                value,
                above=0 if key in ("beta", "gamma", "temperature") else None,
            )
        self.name, self.form, self.settings, self.classes = (
            name,
            form,
            {**form.settings, **settings},
            classes,
        )
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
                        f"'{self.name}' compares images with proxies only: it has no use for a memory"
                    )
                return self.judge(self.to_classes(x), F.one_hot(labels.long(), self.classes))
            candidates, of = x, labels
            if memory is not None:
                candidates, of = (
                    torch.cat([x, unit(memory[0].detach()).to(x)]),
                    torch.cat([labels, memory[1].to(labels)]),
                )
            if self.form.anchor == "proxy":
                numbers = torch.arange(self.classes, device=labels.device)
                return self.judge(unit(self.proxies).to(x) @ candidates.T, numbers[:, None] == of)
            s, same = x @ candidates.T, labels[:, None] == of
            mask = ~torch.eye(
                len(x), len(candidates), dtype=torch.bool, device=s.device
            )  # nobody is compared with itself
            if self.form.select == "easy":
                mask = easy_and_semi_hard(s, same, mask)
            return self.judge(s, same, mask)

    def judge(self, similarity: Tensor, label: Tensor, mask: Tensor | None = None) -> Tensor:
        """The generic loss of similarities (A, N) with labels (A, N) in [0, 1]."""
        return mean_loss(similarity, label, self.form, self.settings, mask)

    def to_classes(self, x: Tensor) -> Tensor:
        """Unit vectors (A, D) -> their similarity to each class (A, C)."""
        return self.of_centres(x @ unit(self.proxies).to(x).T)

    def of_centres(self, s: Tensor) -> Tensor:
        """Similarities to all proxies (A, C K) -> to classes (A, C): SoftTriple's mean, near ones
        weigh more.
        """
        if self.per_class == 1:
            return s
        s = s.unflatten(1, (-1, self.per_class))
        return ((s / self.settings["gamma"]).softmax(-1) * s).sum(-1)

    def check(self, z: Tensor, labels: Tensor) -> None:
        if z.ndim != 2 or labels.shape != z.shape[:1]:
            shapes = f"{tuple(z.shape)} and {tuple(labels.shape)}"
            raise ValueError(f"embeddings are (B, D) and labels (B,), got {shapes}")
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise ValueError(f"labels are whole numbers, got {labels.dtype}")
        if self.proxied and z.shape[1] != self.proxies.shape[1]:
            raise ValueError(
                f"the proxies of '{self.name}' have {self.proxies.shape[1]} dimensions, not {z.shape[1]}"
            )
        if (
            self.proxied
            and len(labels)
            and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes
        ):
            raise ValueError(
                f"'{self.name}' has proxies of classes 0 to {self.classes - 1}, and a label is outside"
            )

    def extra_repr(self) -> str:
        return ", ".join([self.name, *(f"{key}={value:g}" for key, value in self.settings.items())])


def easy_and_semi_hard(s: Tensor, same: Tensor, mask: Tensor) -> Tensor:
    """EPSHN: of each anchor its nearest positive and the nearest negative that is farther than
    that, (A, N) bool.
    """
    if not s.numel():
        return mask
    s = s.detach()
    near = s.masked_fill(~(same & mask), -torch.inf)
    far = s.masked_fill(same | ~mask | (s >= near.amax(1, keepdim=True)), -torch.inf)
    selected = torch.zeros_like(mask)
    for values in (near, far):
        selected |= (
            torch.zeros_like(mask).scatter(1, values.argmax(1, keepdim=True), True)
            & values.isfinite()
        )
    return selected


def generic_options(name: str, form: Form, options: dict[str, Any]) -> tuple[Form, dict[str, Any]]:
    """The form with its positives in σ⁻'s sum or not, as the option `softmax` says, and the other
    options.
    """
    remaining = dict(options)
    if "softmax" in remaining:
        together = remaining.pop("softmax")
        if not isinstance(together, bool):
            raise ValueError(f"softmax of '{name}' is true or false, got {together!r}")
        form = replace(form, together=together, rho_neg=EXP_TOO if together else EXP)
    return form, remaining
