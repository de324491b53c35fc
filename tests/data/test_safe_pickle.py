"""Law of the restricted unpickler: plain data comes back equal from every protocol, anything else runs nothing."""

import io
import pickle
import pickletools
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cenote.data.safe_pickle import load_pickle, read_pickle
from tests.data.benchmarks.labelled_trees import python2_pickle

PLAIN: dict[str, Any] = {
    "grid": np.arange(6).reshape(2, 3),
    "by columns": np.asfortranarray(np.linspace(0, 1, 6).reshape(2, 3)),
    "words": np.array(["ab", "c"]),
    "bytes": np.array([b"ab"]),
    "swapped": np.arange(3, dtype=">i4"),
    "flags": np.array([True, False]),
    "nothing": np.zeros((0, 3), np.float32),
    "no dimension": np.array(3.5),
    "number": np.float32(2.5),
    "text": "naïve",
    "raw": b"\x00\xff",
    "empty": b"",
    "nested": (1, [2, {3}], frozenset([4]), {"a": None}, 1j, True, 10**30),
    "ordered": OrderedDict(a=1),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("key", PLAIN)
def test_plain_data_comes_back(protocol: int, key: str) -> None:
    value = PLAIN[key]
    again = load_pickle(pickle.dumps([value, value], protocol))
    assert again[0] is again[1]  # shared as it was
    if isinstance(value, np.ndarray):
        assert type(again[0]) is np.ndarray and again[0].shape == value.shape
        assert again[0].dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
        assert (again[0] == value).all()
        again[0][...] = again[0]  # writable
    else:
        assert again[0] == value


def test_pickles_of_python_2(tmp_path: Path) -> None:
    value = {
        "data": np.arange(200, 206, dtype=np.uint8).reshape(2, 3),
        "labels": [1, 2],
        "name": "b\xe9",
        "x": np.float64(2),
    }
    python2_pickle(tmp_path / "a.pkl", value)
    assert b"numpy.core.multiarray" in (tmp_path / "a.pkl").read_bytes()
    again = read_pickle(tmp_path / "a.pkl")
    assert again["labels"] == [1, 2] and again["name"] == "b\xe9" and again["x"] == 2
    assert again["data"].tolist() == [[200, 201, 202], [203, 204, 205]]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3),
        torch.arange(6).reshape(2, 3).T,
        torch.arange(6.0, dtype=torch.half)[2:4],
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.ones(2, requires_grad=True),
    ],
)
def test_tensors_become_arrays(tensor: torch.Tensor, protocol: int) -> None:
    again = load_pickle(pickle.dumps({"a": tensor}, protocol))["a"]
    assert type(again) is np.ndarray and again.shape == tuple(tensor.shape)
    assert again.tolist() == tensor.tolist()


def test_a_tensor_larger_than_its_numbers_is_refused() -> None:
    """The shape (2, 3) becomes (2, 90), which would read memory behind the six numbers."""
    honest = pickle.dumps(torch.arange(6.0).reshape(2, 3), 2)
    forged = honest.replace(b"K\x02K\x03\x86", b"K\x02K\x5a\x86")
    assert forged != honest
    with pytest.raises(ValueError):
        load_pickle(forged)


def test_dictionaries_and_arrays_of_np_save(tmp_path: Path) -> None:
    value = {"a": np.arange(3), "b": ["x", None]}
    np.save(tmp_path / "a.npy", value)  # type: ignore[arg-type]
    again = read_pickle(tmp_path / "a.npy")
    assert again["a"].tolist() == [0, 1, 2] and again["b"] == ["x", None]
    np.save(tmp_path / "b.npy", np.eye(2))
    assert read_pickle(tmp_path / "b.npy").tolist() == [[1, 0], [0, 1]]
    for content in ({"a": Calls(len, [])}, np.array([{}, {}])):
        np.save(tmp_path / "c.npy", content)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"c\.npy"):
            read_pickle(tmp_path / "c.npy")


class Calls:
    """Pickles as a call of the function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class OnlyHere:
    pass


EVIL = {
    "a command": Calls(eval, "__import__('pathlib').Path('touched').touch()"),
    "a file": Calls(open, "touched", "w"),
    "an attribute": Calls(getattr, "a", "upper"),
    "an import": Calls(__import__, "antigravity"),
    "an object": OnlyHere(),
    "an empty array": Calls(np.ndarray, (10**9,)),
    "bytes of a number": Calls(bytes, 10**9),
    "an array from a file": Calls(np.fromfile, __file__),
    "a path": Path("a"),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
    "records": np.zeros(2, "i4,f4"),
    "a function in a list": [1, {"a": len}],
    "objects": np.array([None]),
    "a storage of anything": Calls(torch.storage._load_from_bytes, pickle.dumps({"a": open}, 2)),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", EVIL)
def test_anything_else_is_refused(
    kind: str, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(EVIL[kind], protocol))
    with pytest.raises(ValueError, match=r"a\.pkl"):
        read_pickle(tmp_path / "a.pkl")
    assert not (tmp_path / "touched").exists()


def test_bytes_are_never_taken_for_objects() -> None:
    """NumPy believes the flags of a pickled dtype: with these it would take eight bytes for a pointer."""
    honest = pickle.dumps(np.array([1.0]), 2)
    forged = honest.replace(b"f8", b"O8")
    assert forged != honest
    with pytest.raises(ValueError, match="O8"):
        load_pickle(forged)
    flags = honest.replace(b"K\x00t", b"K\x3ft")  # of an object, with the code of a number
    assert flags != honest and load_pickle(flags).tolist() == [1.0]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_names_are_inert(protocol: int) -> None:
    assert load_pickle(pickle.dumps([np.ndarray, {np.dtype: 1}], protocol)) == [
        "numpy.ndarray",
        {"numpy.dtype": 1},
    ]


def test_references_outside_are_refused() -> None:
    class Outside(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return "x" if obj == 3 else None

    buffer = io.BytesIO()
    Outside(buffer).dump([3])
    with pytest.raises(ValueError):
        load_pickle(buffer.getvalue())


def test_attributes_cannot_be_set() -> None:
    """The opcode BUILD sets attributes of whatever lies on the stack."""
    attack = b"\x80\x02cnumpy\nndarray\nN}X\x08\x00\x00\x00functioncbuiltins\nset\ns\x86b."
    pickletools.dis(attack, io.StringIO())  # well formed
    with pytest.raises(ValueError):
        load_pickle(attack)


@pytest.mark.parametrize("cut", [0, 1, 10, 50, -1])
def test_damaged_pickles(cut: int) -> None:
    with pytest.raises(ValueError):
        load_pickle(pickle.dumps(PLAIN, 2)[:cut])


def test_nesting_and_sharing_without_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    again = load_pickle(pickle.dumps(loop))
    assert again[0] is again
    laughs: Any = ()
    for _ in range(200):
        laughs = (laughs, laughs)  # 2^200 leaves, 200 objects
    assert len(load_pickle(pickle.dumps(laughs))) == 2
    deep = load_pickle(b"(" * 100_000 + b"t" * 100_000 + b".")
    assert type(deep) is tuple
