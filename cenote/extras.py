"""Packages that come with an extra, imported where they are needed."""

from importlib import import_module
from typing import Any


class MissingExtra(ImportError):
    """A package of an optional extra is not installed."""


def require(module: str, extra: str) -> Any:
    """The module, or one sentence on how to install it: `onnx = require("onnx", extra="onnx")`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise  # it is there, but something it needs itself is not: a different story
        raise MissingExtra(
            f"this needs the package '{module}': pip install 'cenote[{extra}]'"
        ) from None
