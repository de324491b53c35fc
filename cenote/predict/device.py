"""Choose the device that models run on."""

from __future__ import annotations

import torch
from torch import nn


def default_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters."""
    return next(model.parameters()).device
