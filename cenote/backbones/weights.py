"""Weights from a file on this machine, of which nothing is executed, or from the hub."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)
SAVED_BACKBONE = "backbone.model."  # names of a backbone's weights in a PooledModel


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill a timm model from a .safetensors file, or from a .pth file of tensors alone.

    Of a saved `PooledModel`, model.safetensors, the backbone is loaded. The classifier of the model
    becomes that of the file, which may have another number of classes, or none.
    """
    state = read_weights(path)
    if any(name.startswith(SAVED_BACKBONE) for name in state):
        state = {
            name.removeprefix(SAVED_BACKBONE): value
            for name, value in state.items()
            if name.startswith(SAVED_BACKBONE)
        }
    try:
        state = _as_model_expects(state, model)
        message = _fit_classifier(model, state)
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError, KeyError, ValueError) as error:
        lines = " ".join(line.strip() for line in str(error).splitlines()[:3])
        raise ValueError(f"{path} does not fit {type(model).__name__}: {lines[:300]}") from error
    if message:
        log.info("%s %s", path, message)


def _fit_classifier(model: Any, state: Mapping[str, Tensor]) -> str:
    """Replace the classifier by one for the classes of a checkpoint; return a message if so."""
    layer = model.get_classifier()
    if isinstance(layer, tuple):  # of class and distillation token
        layer = layer[0]
    name = next((name for name, module in model.named_modules() if module is layer), "")
    weight = state.get(f"{name}.weight")
    classes = 0 if weight is None else len(weight)
    if not isinstance(layer, nn.Linear) or classes == layer.out_features:
        return ""
    model.reset_classifier(classes)
    if not classes:
        return "has no classifier: no class is predicted"
    return f"has a classifier of {classes} classes, which replaces that of {layer.out_features}"


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    if not path.is_file():
        raise FileNotFoundError(2, "no such weights file", str(path))
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or malicious file may raise anything
        raise ValueError(f"{path} is not a readable weights file: {_reason(error)}") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    tensors = isinstance(state, dict) and all(isinstance(value, Tensor) for value in state.values())
    if not tensors or not state:
        raise ValueError(f"{path} has no weights: expected a dictionary of tensors")
    # DistributedDataParallel saves names with "module.".
    return {name.removeprefix("module."): value for name, value in state.items()}


def _as_model_expects(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Convert other authors' names and other image sizes by timm's filter for the family."""
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    if {name: value.shape for name, value in state.items()} == shapes:
        return state
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if convert is not None:
        state = convert(state, model)
    return state


def _reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    if "weights only" in str(error).lower() or "Unsupported" in first:
        return "it contains more than tensors, and code in it is not run"
    return first[:200] or type(error).__name__


def hub_answers(seconds: float = 5.0) -> bool:
    """Return whether the Hugging Face hub answers; true behind a proxy, which alone can know."""
    from huggingface_hub import constants

    if getproxies():
        return True
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), seconds).close()
    except OSError:
        return False
    return True


@contextmanager
def without_retries() -> Iterator[None]:
    """Read only the hub's local cache without a network.

    Otherwise the hub is asked six times for every file, for a minute.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not hub_answers()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
