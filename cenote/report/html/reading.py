"""Frozen records to JSON and back: every value is of the type that its field says, or it is refused."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from .blocks import KINDS, Block


def plain(value: Any) -> Any:
    """Dicts, lists, strings and numbers; a number that JSON does not have becomes null."""
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain_block(block: Block) -> dict[str, Any]:
    return {"kind": type(block).__name__.lower(), **plain(block)}


def block_of(value: Any, where: str) -> Block:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in KINDS:
        raise ValueError(f"{where}: no block is of the kind {kind!r} ({', '.join(KINDS)})")
    found: Block = made(
        KINDS[kind], {key: one for key, one in value.items() if key != "kind"}, where
    )
    return found


def made(wanted: Any, value: Any, where: str) -> Any:
    """`value`, as it stands in JSON, as `wanted`: a record, a tuple, a union or a plain type."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if is_dataclass(wanted) and isinstance(wanted, type):
        return _record(wanted, value, where)
    if origin in (Union, types.UnionType):
        return _one_of(inner, value, where)
    if origin is tuple and isinstance(value, list):
        kinds = [inner[0]] * len(value) if inner[-1] is ... else list(inner)
        if len(kinds) == len(value):
            pairs = zip(kinds, value, strict=True)
            return tuple(made(kind, one, f"{where}[{i}]") for i, (kind, one) in enumerate(pairs))
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    plain_kind = wanted in (str, int, bool, type(None)) and isinstance(value, wanted)
    if plain_kind and not (wanted is int and isinstance(value, bool)):
        return value
    raise ValueError(
        f"{where} is {type(value).__name__}, not {getattr(wanted, '__name__', wanted)}"
    )


def _record(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {type(value).__name__}, not an object")
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for one in fields(kind):
        if one.name in value:
            given[one.name] = made(hints[one.name], value[one.name], f"{where}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"{where} lacks {one.name}")
    return kind(**given)


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    # int before float: a count stays one.
    for kind in sorted(kinds, key=lambda kind: kind is float):
        try:
            return made(kind, value, where)
        except ValueError as error:
            last = error
    raise last
