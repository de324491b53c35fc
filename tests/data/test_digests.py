"""Same contents, same digest, whatever the name; a file is read again only when it has changed."""

import os
from pathlib import Path

import pytest
from PIL import Image

from cenote.data import Record, pack
from cenote.data import digests as module
from cenote.data.digests import digests


def test_contents_decide(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9").write_bytes(b"any bytes are a name")
    assert digests(pack([Record("caf\udce9")], tmp_path, "x"), tmp_path / "files.sqlite")[0] is not None
    for name, content in {"a": b"1", "b": b"2", "c": b"1", "d": b""}.items():
        (tmp_path / name).write_bytes(content)
    dataset = pack([Record(name) for name in ("a", "b", "c", "gone", "d", "a")], tmp_path, "x")
    for memory in (None, tmp_path / "m" / "files.sqlite", tmp_path / "m" / "files.sqlite"):
        a, b, c, gone, d, again = digests(dataset, memory)
        assert a == c == again != b and gone is None and len({a, b, d}) == 3
        assert len(a or b"") == 16


def test_known_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = module._of_file
    monkeypatch.setattr(module, "_of_file", lambda path: (read.append(os.path.basename(path)), real(path))[1])
    for i in range(1500):  # more than one chunk
        (tmp_path / f"{i}").write_bytes(str(i).encode())
    dataset, memory = pack([Record(str(i)) for i in range(1500)], tmp_path, "x"), tmp_path / "files.sqlite"
    first = digests(dataset, memory)
    assert len(set(first)) == 1500 and sorted(read, key=int) == [str(i) for i in range(1500)]
    read.clear()
    (tmp_path / "1").write_bytes(b"new contents")
    (tmp_path / "2").unlink()
    second = digests(dataset, memory)
    assert read == ["1"] and second[1] != first[1] and second[2] is None
    assert [d for i, d in enumerate(second) if i not in (1, 2)] == [d for i, d in enumerate(first) if i not in (1, 2)]


def test_pixels_without_files(tmp_path: Path) -> None:
    class Squares:
        def image(self, row: int) -> Image.Image:
            if row == 3:
                raise ValueError("no such square")
            return Image.new("RGB", (4, 2) if row == 2 else (2, 4), (row % 2, 0, 0))

        def mask(self, row: int) -> None:
            return None

    dataset = pack([Record("")] * 5, tmp_path, "squares")
    dataset.pixels = Squares()
    zero, one, turned, none, again = digests(dataset)
    assert zero == again and len({zero, one, turned}) == 3 and none is None
