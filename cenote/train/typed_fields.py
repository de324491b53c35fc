"""Typed dataclasses from untyped values, as YAML and the command line give them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..options import suggest

Config = TypeVar("Config", bound=Any)


def read_fields(base: Config, values: Mapping[str, Any], where: str) -> Config:
    """Return `base` with other values, each of its field's type; `where` opens error messages."""
    hints = get_type_hints(type(base))
    for key in values:
        if key not in hints:
            raise ValueError(f"no key '{where}{key}'{suggest(key, hints) or _listed(hints)}")
    typed = {key: convert(value, hints[key], where + key) for key, value in values.items()}
    changed: Config = dataclasses.replace(base, **typed)
    return changed


def convert(value: Any, hint: Any, where: str) -> Any:
    """Return a value as YAML reads it as the type `hint`."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for kind in kinds:
        try:
            return _convert(value, kind, where)
        except TypeError:
            continue
    choices = [
        str(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)
    ]
    expected = " or ".join(map(_type_name, kinds))
    raise ValueError(f"{where} must be {expected}, got {value!r}{suggest(value, choices)}")


def _convert(value: Any, kind: Any, where: str) -> Any:
    """Raise TypeError if the value is not of this kind."""
    origin = get_origin(kind)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is Any or (origin is Literal and value in get_args(kind)):
        return value
    if kind is float and (number or isinstance(value, str)):
        try:
            return float(value)  # YAML reads 1e-3 as text: only 1.0e-3 is a number
        except ValueError as error:
            raise TypeError from error
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if origin is tuple and isinstance(value, list | tuple):
        items = get_args(kind)
        if items[-1] is Ellipsis:
            items = items[:1] * len(value)
        if len(items) == len(value):
            return tuple(convert(*pair, where) for pair in zip(value, items, strict=True))
    if origin is dict and isinstance(value, dict):
        return dict(value)
    if kind in (int, bool, str, NoneType) and type(value) is kind:
        return value
    raise TypeError


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return {NoneType: "null"}.get(kind, getattr(kind, "__name__", str(kind)))


def _listed(names: Mapping[str, Any]) -> str:
    return f" ({', '.join(names)})"


def check_minimum(config: Any, owner: str = "", **minima: float) -> None:
    """Raise if a field is below its minimum, or not a number."""
    for name, minimum in minima.items():
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value >= minimum):
            raise ValueError(f"{owner}{name} must be at least {minimum}, got {value}")


def check_choices(config: Any) -> None:
    """Raise if a field of a Literal type has another value."""
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal:
            convert(getattr(config, name), hint, name)
