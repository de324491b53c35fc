"""Any loss of pytorch-metric-learning (Musgrave et al., 2020): `pml/TripletMarginLoss`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from ..extras import require
from ..options import check_choice, check_names, check_number, suggest
from ..unit import wide
from .metric import Memory, MetricLoss

NOT_LOSSES = ("BaseMetricLossFunction", "GenericPairLoss", "WeightRegularizerMixin")  # bases
DIM = ("embedding_size", "descriptors_dim", "l")  # names of the size of embeddings


class PmlLoss(MetricLoss):
    """A loss of the library, and a miner that selects its pairs or triplets, if one is given."""

    def __init__(
        self, name: str, classes: int, dim: int, miner: nn.Module | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.name = name
        losses = pml_losses()
        kind = losses.get(name.removeprefix("pml/"))
        if kind is None:
            near = suggest(name, (f"pml/{loss}" for loss in losses))
            available = ", ".join(sorted(losses))
            raise ValueError(
                f"pytorch-metric-learning has no loss '{name}'{near} (it has {available})"
            )
        given = {"num_classes": classes, **dict.fromkeys(DIM, dim)}
        parameters = _parameters(kind)
        check_names(name, options, sorted(set(parameters) - set(given)))
        for key, value in options.items():
            _check(f"{key} of '{name}'", value, parameters[key].default)
        arguments = {k: value for k, value in given.items() if k in parameters} | options
        try:
            self.loss = kind(**arguments)
        except (TypeError, AssertionError) as error:
            raise ValueError(f"'{name}' cannot be made with these options: {error}") from error
        self.proxied = any(True for _ in self.loss.parameters())
        self.miner = miner

    def forward(self, z: Tensor, labels: Tensor, memory: Memory | None = None) -> Tensor:
        """With a memory, add the loss against it to that within the batch, as XBM published."""
        with torch.autocast(z.device.type, enabled=False):
            z = wide(z)
            loss = self.loss(z, labels, self._mined(z, labels))
            if memory is not None and len(memory[0]):
                against, of = memory[0].detach().to(z), memory[1].to(labels)
                try:
                    mined = self._mined(z, labels, against, of)
                    loss = loss + self.loss(z, labels, mined, against, of)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"'{self.name}' cannot use a memory: {error}") from None
        # The library returns a bare 0 if there is nothing to compare.
        if not loss.requires_grad:
            loss = loss + 0 * z.sum()
        return loss

    def _mined(self, z: Tensor, labels: Tensor, *reference: Tensor) -> Any:
        """Return the indices of the selected pairs or triplets; None: all."""
        return None if self.miner is None else self.miner(z.detach(), labels, *reference)


def create_miner(name: str, **options: Any) -> nn.Module:
    """Create a miner of the library by name."""
    library = require("pytorch_metric_learning.miners", extra="metric")
    names = [n for n, kind in vars(library).items() if inspect.isclass(kind) and "Base" not in n]
    check_choice("--miner", name, sorted(names))
    kind = getattr(library, name)
    check_names(name, options, sorted(_parameters(kind)))
    miner: nn.Module = kind(**options)
    return miner


def pml_losses() -> dict[str, type]:
    """Return the library's losses by name, without those that wrap another loss."""
    losses = require("pytorch_metric_learning.losses", extra="metric")
    base = losses.BaseMetricLossFunction
    classes = {name: kind for name, kind in vars(losses).items() if inspect.isclass(kind)}
    return {
        name: kind
        for name, kind in classes.items()
        if issubclass(kind, base) and name not in NOT_LOSSES
    }


def _check(what: str, value: Any, default: Any) -> None:
    """Check the type of an option: the library itself would complain in the first step, or never."""
    if isinstance(default, bool):
        check_choice(what, value, (True, False))
    elif isinstance(default, int | float) or isinstance(value, float):
        check_number(what, value)
    elif default is None and isinstance(value, str):
        raise ValueError(f"{what} is an object, which can be given in Python only, got {value!r}")


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    """Return the constructor's parameters, with those of its bases where it has **kwargs."""
    by_name: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        init = base.__dict__.get("__init__")
        if init is None or base.__module__.startswith("torch."):
            continue
        parameters = inspect.signature(init).parameters.values()
        for p in parameters:
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name != "self":
                by_name.setdefault(p.name, p)
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return by_name
