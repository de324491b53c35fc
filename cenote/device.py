"""The device that models run on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

import torch

VARIABLE = "CENOTE_DEVICE"


def default_device() -> torch.device:
    """Return the device of --device or CENOTE_DEVICE; else an accelerator; else the CPU.

    Under torchrun every process of a machine has the accelerator with the number of its local rank.
    Raises ValueError for a device that this machine does not have.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices, name = ["cpu"], os.environ.get(VARIABLE, "auto")
    if accelerator is not None:
        devices += [f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count())]
    if name == "auto":
        name = "cpu" if accelerator is None else accelerator.type
    kind, _, index = name.partition(":")
    device = "cpu"
    if kind != "cpu":
        device = f"{kind}:{index or os.environ.get('LOCAL_RANK', '0')}"
    if device not in devices:
        raise ValueError(f"device '{device}' does not exist: this machine has {', '.join(devices)}")
    return torch.device(device)


def use_device(name: str) -> None:
    """Run models on this device, in this process and in those that it starts."""
    if name != "auto":
        os.environ[VARIABLE] = name
    default_device()  # raises before any work


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an accelerator ran out of memory: on MPS that is a plain RuntimeError."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error)


def half_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context of inference: float16 on accelerators, float32 on the CPU."""
    if device.type == "cpu":
        return nullcontext()
    return torch.autocast(device.type, torch.float16)
