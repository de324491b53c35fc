"""Shapes without values: a model of any size made and run on the meta device in about a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# They keep their first argument's shape. On the meta device torch computes each out of its parts,
# in Python.
SAME_SHAPE: set[Any] = {
    F.layer_norm,
    F.batch_norm,
    F.group_norm,
    F.rms_norm,
    torch.layer_norm,
    torch.batch_norm,
}
SAME_SHAPE |= {
    F.gelu,
    F.relu,
    F.silu,
    F.hardswish,
    F.hardsigmoid,
    F.softmax,
    torch.relu,
    torch.sigmoid,
}
SAME_SHAPE |= {
    torch.Tensor.softmax,
    torch.Tensor.sigmoid,
    torch.softmax,
    torch.clamp,
    torch.Tensor.relu_,
}
FILL = ("normal_", "uniform_", "trunc_normal_", "zero_", "fill_", "clamp_", "erfinv_")
SAME_SHAPE |= {getattr(torch.Tensor, name) for name in FILL if hasattr(torch.Tensor, name)}
SAME_SHAPE |= {
    getattr(nn.init, name) for name in dir(nn.init) if name.endswith("_") and name[0] != "_"
}


class _SameShape(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SAME_SHAPE and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return args[0]
        if (
            func is F.linear
            and len(args) > 1
            and args[0].is_meta
            and args[0].shape[-1] == args[1].shape[1]
        ):
            return args[0].new_empty(*args[0].shape[:-1], args[1].shape[0])
        return func(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    with torch.device("meta"), _SameShape(), torch.no_grad():
        yield
