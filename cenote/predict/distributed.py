"""One process, or many under torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..device import default_device

# For a process that has more to do than the others. torchrun ends all when one fails.
LONGEST_WAIT = timedelta(hours=6)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters."""
    return next(model.parameters()).device


@contextmanager
def processes() -> Iterator[torch.device]:
    """Join the process group if torchrun started this process; yield its device."""
    joins = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    device, backend = default_device(), "gloo"
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)
        # Counts are on the CPU.
        backend = f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
    if joins:
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
    try:
        yield device
    finally:
        if joins:
            dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def is_main_process() -> bool:
    """Return whether this is the first process, also outside of the process group."""
    return int(os.environ.get("RANK", "0")) == 0


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def distribute(module: nn.Module) -> nn.Module:
    """Wrap a module so that all processes train it together."""
    if world() == 1 or not any(p.requires_grad for p in module.parameters()):
        return module
    return nn.parallel.DistributedDataParallel(module)


def without_gradient_sync(module: nn.Module) -> Any:
    """Return a context in which gradients are accumulated but not shared."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return module.no_sync()
    return nullcontext()


def summed(values: Tensor) -> Tensor:
    """Sum a tensor over all processes."""
    if world() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def any_process(flag: bool) -> bool:
    return bool(summed(torch.tensor(float(flag))) > 0)


def gathered(value: Any) -> list[Any]:
    """Gather one value of every process, on every process."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def gathered_rows(values: Tensor) -> Tensor:
    """Gather the rows of all processes, equally many of each, without gradients."""
    if world() == 1:
        return values
    shares = [torch.empty_like(values) for _ in range(world())]
    dist.all_gather(shares, values.contiguous())
    return torch.cat(shares)


def joined_rows(values: Tensor, counts: list[int]) -> Tensor:
    """Gather the rows of all processes, `counts` of each; gradients flow back to their process.

    If every process computes the same loss of them, each gets the gradient of that loss when
    gradients are averaged over processes, as DistributedDataParallel does.
    """
    if world() == 1:
        return values
    padded = F.pad(values, [0, 0] * (values.ndim - 1) + [0, max(counts) - len(values)])
    rows: Tensor = _JoinedRows.apply(padded)
    shares = zip(rows.chunk(world()), counts, strict=True)
    return torch.cat([share[:count] for share, count in shares])


class _JoinedRows(torch.autograd.Function):
    """Gather rows; the backward pass sums the gradients of all processes for these rows."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return gathered_rows(values)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return summed(gradient.contiguous()).chunk(world())[rank()]
