"""Read published pickles safely: containers, numbers, strings, arrays and tensors, nothing else.

A pickle is a program that may call anything. Here a name that it asks for is only a string; calling
one runs a function of this file, which checks its arguments, and any other name is refused.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .checks import check, errors_in

DTYPE = re.compile("[<>|=]?([biufcSU][0-9]+|\\?)")  # numbers and strings, no records
OBJECTS = "O8"  # only without dimensions: one object, as np.save stores a dictionary
NPY_MAGIC = b"\x93NUMPY"


def read_pickle(path: Path) -> Any:
    """Return the plain data in a pickle, or in a file of np.save.

    Strings of Python 2 are decoded as Latin-1, tensors become arrays.
    """
    data = path.read_bytes()
    if not data.startswith(NPY_MAGIC):
        return load_pickle(data, str(path))
    with errors_in(path):
        file = io.BytesIO(data)
        version = np.lib.format.read_magic(file)
        check(version == (1, 0), f"it has version {version} of the format")
        _, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject:
            return load_pickle(file.read(), str(path)).item()
        return np.load(io.BytesIO(data), allow_pickle=False)


def load_pickle(data: bytes, name: str = "the pickle") -> Any:
    """Return the plain data in the bytes of a pickle; `name` is for error messages."""
    with errors_in(name):
        return _Unpickler(io.BytesIO(data), encoding="latin1").load()


class _Unpickler(pickle._Unpickler):
    """Python's own unpickler, in which only functions of this file are called."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        key = f"{module.replace('numpy.core', 'numpy._core')}.{name}".replace(
            "__builtin__", "builtins"
        )
        check(key in FUNCTIONS, f"it asks for {module}.{name}")
        return key

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = FUNCTIONS[self.stack[-1]](*arguments)

    def load_build(self) -> None:
        state = self.stack.pop()
        value: Any = self.stack[-1]
        if isinstance(value, np.dtype):
            if value.hasobject:
                return  # its state would be flags that NumPy trusts
            _, order, subarray, names, fields, *_ = state
            check(subarray is names is fields is None, "it contains an array of records")
            check(order in tuple("<>|="), f"it asks for the byte order {order!r}")
            # NumPy would trust flags and sizes of the pickle, and read bytes as pointers.
            state = (3, order, None, None, None, value.itemsize, value.alignment, 0)
            value.__setstate__(state)  # type: ignore[attr-defined]
        else:
            check(type(value) is np.ndarray, "it sets attributes")
            version, shape, dtype, fortran_order, contents = state
            check(isinstance(dtype, np.dtype), "it contains an array of an unknown kind")
            if dtype.hasobject:
                is_single = shape == () and type(contents) is list and len(contents) == 1
                check(is_single, f"it asks for an array of {OBJECTS!r}")
            else:
                contents = _as_bytes(contents)
            value.__setstate__((version, shape, dtype, fortran_order, contents))

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build


def _dtype(code: str, *_: Any) -> np.dtype[Any]:
    check(code == OBJECTS or DTYPE.fullmatch(code), f"it asks for an array of {code!r}")
    return np.dtype(code, copy=True)  # a copy: BUILD changes its byte order


def _as_bytes(contents: Any) -> bytes:
    """Encode strings: Python 2's were bytes."""
    encoded = contents.encode("latin1") if isinstance(contents, str) else contents
    check(isinstance(encoded, bytes | bytearray), "an array or a number has no bytes")
    return bytes(encoded)


def _array(contents: Any, dtype: Any, shape: Any, order: Any = "C", *_: Any) -> npt.NDArray[Any]:
    is_plain = isinstance(dtype, np.dtype) and not dtype.hasobject
    check(is_plain, "it contains an array of an unknown kind")
    return np.frombuffer(_as_bytes(contents), dtype).reshape(shape, order=order).copy()


def _storage(data: bytes) -> Any:
    """Return the numbers of a pickled tensor; torch reads them with an unpickler like this one."""
    import torch

    return torch.load(io.BytesIO(_as_bytes(data)), map_location="cpu", weights_only=True)


def _tensor(storage: Any, offset: int, shape: Any, strides: Any, *_: Any) -> npt.NDArray[Any]:
    import torch

    check(isinstance(storage, torch.storage.TypedStorage), "a tensor has no numbers")
    numbers = torch.empty(0, dtype=storage.dtype).set_(storage._untyped_storage)
    # Unlike `set_` with a shape, this raises an error if there are too few numbers.
    return numbers.as_strided(shape, strides, offset).numpy().copy()


def _encode(text: str, encoding: str) -> bytes:
    """Return bytes as old protocols store them."""
    check(encoding in ("latin1", "latin-1"), f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


FUNCTIONS: dict[str, Any] = {
    "numpy.dtype": _dtype,
    "numpy.ndarray": None,  # only an argument of _reconstruct
    "numpy._core.multiarray._reconstruct": lambda *_: np.empty(0, np.uint8),
    "numpy._core.multiarray.scalar": lambda dtype, contents: _array(contents, dtype, (1,))[0],
    "numpy._core.numeric._frombuffer": _array,
    "torch.storage._load_from_bytes": _storage,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "_codecs.encode": _encode,
    "collections.OrderedDict": dict,
    "builtins.bytes": lambda: b"",  # bytes(n) would allocate n of them
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.complex": complex,
}
