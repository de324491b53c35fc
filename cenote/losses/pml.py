"""Any loss of pytorch-metric-learning (Musgrave et al., 2020) by its class name:
`pml/TripletMarginLoss`.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from ..extras import require
from ..options import check_names, check_number, suggest
from .metric import Memory, MetricLoss

# What some constructors ask for:
WANTED = {"num_classes": "classes", "embedding_size": "dim", "descriptors_dim": "dim", "l": "dim"}


class PmlLoss(MetricLoss):
    def __init__(self, name: str, classes: int, dim: int, **options: Any) -> None:
        super().__init__()
        self.name = name
        losses = pml_losses()
        kind = losses.get(name.removeprefix("pml/"))
        if kind is None:
            near = suggest(name, (f"pml/{signature}" for signature in losses))
            raise ValueError(
                f"pytorch-metric-learning has no loss '{name}'{near} (it has {', '.join(sorted(losses))})"
            )
        required = {"classes": classes, "dim": dim}
        takes = _parameters(kind)
        check_names(name, options, sorted(set(takes) - set(WANTED)))
        for key, value in options.items():
            _check(f"{key} of '{name}'", value, takes[key].default)
        arguments = {key: required[ours] for key, ours in WANTED.items() if key in takes} | options
        signature = inspect.signature(
            kind
        ).parameters.values()  # not its bases': these get theirs from it
        if missing := [p.name for p in signature if _required(p) and p.name not in arguments]:
            raise ValueError(
                f"'{name}' needs the options {', '.join(missing)}, which have no usual value"
            )
        try:
            self.loss = kind(**arguments)
        except (TypeError, AssertionError) as error:
            raise ValueError(f"'{name}' cannot be made with these options: {error}") from error
        self.proxied = any(True for _ in self.loss.parameters())

    def forward(self, z: Tensor, labels: Tensor, memory: Memory | None = None) -> Tensor:
        """With a memory, the loss within the batch and that against the memory are added, as XBM
        published.
        """
        with torch.autocast(z.device.type, enabled=False):
            z = z if z.dtype == torch.float64 else z.float()
            loss = self.loss(z, labels)
            if memory is not None and len(memory[0]):
                against, of = memory[0].detach().to(z), memory[1].to(labels)
                try:
                    loss = loss + self.loss(z, labels, ref_emb=against, ref_labels=of)
                except (ValueError, TypeError) as error:
                    raise ValueError(
                        f"'{self.name}' cannot be used with a memory: {error}"
                    ) from None
        return (
            loss if loss.requires_grad else loss + 0 * z.sum()
        )  # it gives a bare 0 if it has nothing to say


def pml_losses() -> dict[str, Any]:
    losses = require("pytorch_metric_learning.losses", extra="metric")
    return {
        name: kind
        for name, kind in vars(losses).items()
        if inspect.isclass(kind)
        and issubclass(kind, losses.BaseMetricLossFunction)
        and _usable(name)
    }


def _usable(name: str) -> bool:
    """Not the bases, nor what wraps another loss."""
    return name not in ("BaseMetricLossFunction", "GenericPairLoss", "WeightRegularizerMixin")


def _check(what: str, value: Any, usual: Any) -> None:
    """Of the kind that the usual value is: the library itself would complain in the first step, or
    never.
    """
    if isinstance(usual, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{what} is true or false, got {value!r}")
    elif isinstance(usual, int | float) or isinstance(value, float):
        check_number(what, value)
    elif usual is None and isinstance(value, str):
        raise ValueError(
            f"{what} is an object of the library, which only Python can give, got {value!r}"
        )


def _required(parameter: inspect.Parameter) -> bool:
    return (
        parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    )


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    """What the constructor takes by name, its bases' included: they pass **kwargs on."""
    by_name: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        init = base.__dict__.get("__init__")
        if init is None or base.__module__.startswith("torch."):
            continue
        parameters = inspect.signature(init).parameters.values()
        named = {
            p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        }
        by_name = {**named, **by_name}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    by_name.pop("self", None)
    return by_name
