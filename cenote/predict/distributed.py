"""One process, or many under torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


@contextmanager
def processes() -> Iterator[torch.device]:
    """Joins the others if torchrun started us, and gives the device of this process."""
    together = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if together:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        )  # counts are on the CPU
    try:
        yield device
    finally:
        if together:
            dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def leads() -> bool:
    """Whether this process speaks for all, also before they have joined and after they have parted."""
    return int(os.environ.get("RANK", "0")) == 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def spread(module: nn.Module) -> nn.Module:
    """The module as all processes train it together; itself where there is one."""
    if world() == 1 or not any(p.requires_grad for p in module.parameters()):
        return module
    return nn.parallel.DistributedDataParallel(module)


def waiting(module: nn.Module) -> Any:
    """A context in which gradients are gathered but not yet shared."""
    return (
        module.no_sync()
        if isinstance(module, nn.parallel.DistributedDataParallel)
        else nullcontext()
    )


def summed(values: Tensor) -> Tensor:
    """Over all processes."""
    if world() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def any_process(flag: bool) -> bool:
    return bool(summed(torch.tensor(float(flag))) > 0) if world() > 1 else flag


def gathered(value: Any) -> list[Any]:
    """One value of every process, on every process."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def gathered_rows(values: Tensor) -> Tensor:
    """The rows of all processes, in the order of their ranks, as many from each; without their gradients."""
    if world() == 1:
        return values
    parts = [torch.empty_like(values) for _ in range(world())]
    dist.all_gather(parts, values.contiguous())
    return torch.cat(parts)


def joined_rows(values: Tensor, counts: list[int]) -> Tensor:
    """The rows of all processes, in the order of their ranks, so many from each; gradients flow back to theirs.

    Whoever computes one and the same loss of them on every process gets the gradient of that loss where gradients are
    averaged over processes, as DistributedDataParallel does.
    """
    if world() == 1:
        return values
    padded = F.pad(values, [0, 0] * (values.ndim - 1) + [0, max(counts) - len(values)])
    rows: Tensor = _Joined.apply(padded)
    return torch.cat(
        [part[:count] for part, count in zip(rows.chunk(world()), counts, strict=True)]
    )


class _Joined(torch.autograd.Function):
    """All processes' rows; back goes the sum of what all of them made of these."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return gathered_rows(values)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return summed(gradient.contiguous()).chunk(world())[rank()]
