"""Published pickles without their danger: containers, numbers, strings and NumPy arrays, and nothing else.

A pickle is a program that may call anything. Here every name that it asks for is answered with a function of this
file, which builds the value from checked parts, or with a refusal.
"""

from __future__ import annotations

import io
import math
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

KINDS = "biufcSU"  # of dtypes: numbers and strings; "O" holds other plain values


class Refused(ValueError):
    """The pickle asks for something that is no plain data."""


def read_pickle(path: str | os.PathLike[str], encoding: str = "latin1") -> Any:
    """The plain data in a pickle, also in one of Python 2, whose strings are decoded as `encoding` says."""
    with open(path, "rb") as file:
        return load_pickle(file.read(), os.fspath(path), encoding)


def load_pickle(data: bytes, name: str = "the pickle", encoding: str = "latin1") -> Any:
    try:
        return _plain(_Unpickler(io.BytesIO(data), encoding=encoding).load(), {})
    except Refused as error:
        raise ValueError(
            f"{name}: {error}; only numbers, strings, containers and NumPy arrays are read"
        ) from None
    except RecursionError:
        raise ValueError(f"{name}: nested too deeply to be a table of data") from None
    except Exception as error:  # a damaged pickle fails with any error at all
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ValueError(f"{name} is damaged or no pickle ({reason})") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        made = _NAMES.get((module.replace("numpy.core", "numpy._core"), name))
        if made is None:
            raise Refused(f"it asks for {module}.{name}")
        return _Call(made)

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("it refers to an object outside itself")


class _Call:
    """A fresh object for each request, so that nothing the pickle does to it outlives the reading."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class _Dtype:
    """What a pickle says of a dtype. NumPy would believe its flags, and take bytes for pointers."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or code.lstrip("<>|=")[:1] not in {*KINDS, "O", "V"}:
            raise Refused(f"it asks for an array of {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        _, order, parts, names, fields, *_ = state
        if parts is not None or names is not None or fields is not None:
            raise Refused("it holds an array of records")
        if order not in ("<", ">", "|", "="):
            raise Refused(f"it asks for the byte order {order!r}")
        self.order = order

    def real(self) -> np.dtype[Any]:
        dtype = np.dtype(self.code)
        if dtype.kind not in KINDS + "O":
            raise Refused(f"it holds an array of {dtype}")
        return dtype.newbyteorder(self.order) if self.order in "<>" else dtype  # type: ignore[arg-type]


class _Array(np.ndarray[Any, Any]):
    """An array whose contents are still to come."""

    def __setstate__(self, state: Any) -> None:
        version, shape, dtype, by_columns, contents = state
        real = _real(dtype)
        contents = (
            contents.encode("latin1") if isinstance(contents, str) else contents
        )  # Python 2's strings were bytes
        if not isinstance(contents, list if real.kind == "O" else bytes):
            raise Refused(f"an array of {real} is filled with {type(contents).__name__}")
        if isinstance(contents, list) and len(contents) != math.prod(
            shape
        ):  # of bytes NumPy checks it
            raise Refused(f"an array of {shape} is filled with {len(contents)} values")
        super().__setstate__((version, shape, real, by_columns, contents))


def _real(dtype: Any) -> np.dtype[Any]:
    if not isinstance(dtype, _Dtype):
        raise Refused("it holds an array of an unknown kind")
    return dtype.real()


def _empty_array(*_: Any) -> _Array:
    return _Array((0,), np.uint8)


def _scalar(dtype: Any, contents: Any = None) -> Any:
    if _real(dtype).kind == "O" or not isinstance(contents, bytes | str):
        raise Refused("it holds a number without its bytes")
    raw = contents.encode("latin1") if isinstance(contents, str) else contents
    (value,) = np.frombuffer(raw, _real(dtype))
    return value


def _from_buffer(
    contents: Any, dtype: Any, shape: Any, order: Any = "C", *_: Any
) -> npt.NDArray[Any]:
    if _real(dtype).kind == "O":
        raise Refused("it takes bytes for objects")
    return np.frombuffer(contents, _real(dtype)).reshape(shape, order=order).copy()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How old protocols store bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise Refused(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


def _bytes(*contents: Any) -> bytes:
    if contents:
        raise Refused("it makes bytes of something")  # of a number it would be so many of them
    return b""


def _no_value(*_: Any) -> Any:
    raise Refused("it makes an array by itself")


_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _no_value,  # only named, as an argument of the next
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
    **{(module, "set"): set for module in ("builtins", "__builtin__")},
    **{(module, "frozenset"): frozenset for module in ("builtins", "__builtin__")},
    **{(module, "complex"): complex for module in ("builtins", "__builtin__")},
    **{(module, "bytes"): _bytes for module in ("builtins", "__builtin__")},
}


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """Our own stand-ins replaced by the real things; each object is visited once, however often it is shared."""
    if id(value) in seen:
        return seen[id(value)][1]
    kind = type(value)
    if kind not in (list, dict, tuple, set, frozenset, _Array, np.ndarray):
        if isinstance(value, _Call | _Dtype):
            raise Refused("it holds a type in the place of a value")
        return value
    result = value.view(np.ndarray) if kind is _Array else value
    seen[id(value)] = (value, result)  # the value is kept alive, or its id could be another's
    if kind is list:
        value[:] = [_plain(item, seen) for item in value]
    elif kind is dict:
        for key, item in value.items():
            _plain(key, seen)  # what can be a key is no array, but it may be refused
            value[key] = _plain(item, seen)
    elif kind in (set, frozenset):
        for item in value:
            _plain(item, seen)
    elif kind is tuple:
        result = tuple(_plain(item, seen) for item in value)
        seen[id(value)] = (value, result)
    elif result.dtype.kind == "O":
        result.flat[:] = [_plain(item, seen) for item in result.flat]
    return result
