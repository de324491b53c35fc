"""Read published pickles safely: containers, numbers, strings and NumPy arrays, nothing else.

A pickle is a program that may call anything. Here every name that it asks for is replaced by a
function of this file, which builds the value from checked arguments, or is refused.
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

DTYPE_KINDS = "biufcSU"  # numbers and strings; "O" holds other plain values


class UnsafePickle(ValueError):
    """The pickle asks for something that is not plain data."""


def read_pickle(path: str | os.PathLike[str], encoding: str = "latin1") -> Any:
    """Return the plain data in a pickle; strings of Python 2 are decoded with `encoding`."""
    with open(path, "rb") as file:
        return load_pickle(file.read(), os.fspath(path), encoding)


def load_pickle(data: bytes, name: str = "the pickle", encoding: str = "latin1") -> Any:
    """Return the plain data in the bytes of a pickle; `name` is for error messages."""
    try:
        return _to_plain(_Unpickler(io.BytesIO(data), encoding=encoding).load(), {})
    except UnsafePickle as error:
        message = f"{name}: {error}; only numbers, strings, containers and NumPy arrays are read"
        raise ValueError(message) from None
    except RecursionError:
        raise ValueError(f"{name}: nested too deeply to be a table of data") from None
    except Exception as error:  # a damaged pickle may raise anything
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise ValueError(f"{name} is damaged or not a pickle ({reason})") from error


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UnsafePickle(message)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        function = _FUNCTIONS.get((module.replace("numpy.core", "numpy._core"), name))
        _require(function is not None, f"it asks for {module}.{name}")
        return _Call(function)  # type: ignore[arg-type]

    def persistent_load(self, pid: Any) -> Any:
        raise UnsafePickle("it refers to an object outside of itself")


class _Call:
    """A fresh object per request: whatever the pickle does to it is lost afterwards."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class _Dtype:
    """A dtype in a pickle. NumPy would trust its flags, and read bytes as pointers."""

    def __init__(self, code: Any, *_: Any) -> None:
        plain = isinstance(code, str) and code.lstrip("<>|=")[:1] in {*DTYPE_KINDS, "O", "V"}
        _require(plain, f"it asks for an array of {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        _, order, subarray, names, fields, *_ = state
        _require(subarray is names is fields is None, "it contains an array of records")
        _require(order in ("<", ">", "|", "="), f"it asks for the byte order {order!r}")
        self.order = order

    def numpy(self) -> np.dtype[Any]:
        dtype = np.dtype(self.code)
        _require(dtype.kind in DTYPE_KINDS + "O", f"it contains an array of {dtype}")
        return dtype if self.order in "|=" else dtype.newbyteorder(self.order)  # type: ignore[no-any-return]


class _Array(np.ndarray[Any, Any]):
    """An array whose contents follow."""

    def __setstate__(self, state: Any) -> None:
        version, shape, dtype, fortran_order, contents = state
        real = _numpy_dtype(dtype)
        contents = _as_bytes(contents)
        expected = list if real.kind == "O" else bytes
        kind = type(contents).__name__
        _require(isinstance(contents, expected), f"an array of {real} is filled with {kind}")
        if isinstance(contents, list):  # NumPy checks the length of bytes
            count = len(contents)
            _require(count == math.prod(shape), f"an array of {shape} has {count} values")
        super().__setstate__((version, shape, real, fortran_order, contents))


def _as_bytes(contents: Any) -> Any:
    """Encode strings: Python 2's were bytes."""
    return contents.encode("latin1") if isinstance(contents, str) else contents


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    _require(isinstance(dtype, _Dtype), "it contains an array of an unknown kind")
    return dtype.numpy()  # type: ignore[no-any-return]


def _empty_array(*_: Any) -> _Array:
    return _Array((0,), np.uint8)


def _scalar(dtype: Any, contents: Any = None) -> Any:
    real, contents = _numpy_dtype(dtype), _as_bytes(contents)
    _require(real.kind != "O" and isinstance(contents, bytes), "a number has no bytes")
    (value,) = np.frombuffer(contents, real)
    return value


def _from_buffer(
    contents: Any, dtype: Any, shape: Any, order: Any = "C", *_: Any
) -> npt.NDArray[Any]:
    real = _numpy_dtype(dtype)
    _require(real.kind != "O", "it reads bytes as objects")
    return np.frombuffer(contents, real).reshape(shape, order=order).copy()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Return bytes as old protocols store them."""
    latin = isinstance(text, str) and encoding in ("latin1", "latin-1", "iso-8859-1")
    _require(latin, f"it asks for the encoding {encoding!r}")
    return bytes(text, "latin1")


def _bytes(*contents: Any) -> bytes:
    _require(not contents, "it calls bytes()")  # bytes(n) would allocate n of them
    return b""


def _ndarray(*_: Any) -> Any:
    raise UnsafePickle("it calls numpy.ndarray")


_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _ndarray,  # only as an argument of _reconstruct
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
}
for _module in ("builtins", "__builtin__"):
    _FUNCTIONS |= {(_module, kind.__name__): kind for kind in (set, frozenset, complex)}
    _FUNCTIONS[_module, "bytes"] = _bytes


def _to_plain(value: Any, visited: dict[int, Any]) -> Any:
    """Replace our stand-ins by real values; a shared object is visited once."""
    if id(value) in visited:
        return visited[id(value)][1]
    kind = type(value)
    if kind not in (list, dict, tuple, set, frozenset, _Array, np.ndarray):
        _require(not isinstance(value, _Call | _Dtype), "it contains a type in place of a value")
        return value
    result = value.view(np.ndarray) if kind is _Array else value
    visited[id(value)] = (value, result)  # keeps the value alive, so that its id stays unique
    if kind is list:
        value[:] = [_to_plain(item, visited) for item in value]
    elif kind is dict:
        for key, item in value.items():
            _to_plain(key, visited)  # a key is not an array, but may be a stand-in
            value[key] = _to_plain(item, visited)
    elif kind in (set, frozenset):
        for item in value:
            _to_plain(item, visited)
    elif kind is tuple:
        result = tuple(_to_plain(item, visited) for item in value)
        visited[id(value)] = (value, result)
    elif result.dtype.kind == "O":
        result.flat[:] = [_to_plain(item, visited) for item in result.flat]
    return result
