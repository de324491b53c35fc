"""Weights from a file on this machine. Nothing in the file is executed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill a timm model from a .safetensors file, or from a .pth file of tensors alone."""
    state = read_weights(path)
    try:
        model.load_state_dict(_as_model_expects(state, model))
    except (RuntimeError, TypeError, AttributeError, KeyError, ValueError) as error:
        lines = " ".join(line.strip() for line in str(error).splitlines()[:3])
        raise ValueError(f"{path} does not fit {type(model).__name__}: {lines[:300]}") from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name."""
    if not path.is_file():
        raise FileNotFoundError(2, "no such weights file", str(path))
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or malicious file makes the readers raise
        raise ValueError(f"{path} is not a readable weights file: {_reason(error)}") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    if (
        not isinstance(state, dict)
        or not state
        or not all(isinstance(value, Tensor) for value in state.values())
    ):
        raise ValueError(f"{path} holds no weights: a dictionary of tensors was expected")
    return {
        name.removeprefix("module."): value for name, value in state.items()
    }  # as DistributedDataParallel saves


def _as_model_expects(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Other authors' names and other image sizes, by the filter that timm has for the model's
    family.
    """
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    if {name: value.shape for name, value in state.items()} == shapes:
        return state
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    return state if convert is None else convert(state, model)


def _reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    if "weights only" in str(error).lower() or "Unsupported" in first:
        return "it holds more than tensors, and code in it is not run"
    return first[:200] or type(error).__name__
