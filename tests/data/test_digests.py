"""Same contents, same digest, whatever the name; a file is read again only when it has changed."""

import os
from pathlib import Path

import pytest
from PIL import Image

from cenote.data import Record, open_dataset, pack
from cenote.data import digests as module
from cenote.data.digests import digests


def test_contents_decide(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9").write_bytes(b"any bytes are a name")
    assert (
        digests(pack([Record("caf\udce9")], tmp_path, "x"), tmp_path / "files.sqlite")[0]
        is not None
    )
    for name, content in {"a": b"1", "b": b"2", "c": b"1", "d": b""}.items():
        (tmp_path / name).write_bytes(content)
    dataset = pack([Record(name) for name in ("a", "b", "c", "gone", "d", "a")], tmp_path, "x")
    for memory in (None, tmp_path / "m" / "files.sqlite", tmp_path / "m" / "files.sqlite"):
        a, b, c, gone, d, again = digests(dataset, memory)
        assert a == c == again != b and gone is None and len({a, b, d}) == 3
        assert len(a or b"") == 16


def test_known_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is known by its size and time: with both unchanged, new contents are not noticed."""
    monkeypatch.setattr(module, "CHUNK", 10)
    for i in range(25):  # three chunks
        (tmp_path / f"{i}").write_bytes(f"{i:02}".encode())
    dataset, memory = (
        pack([Record(str(i)) for i in range(25)], tmp_path, "x"),
        tmp_path / "files.sqlite",
    )
    first = digests(dataset, memory)
    assert len(set(first)) == 25
    for i in (3, 17):
        before = (tmp_path / f"{i}").stat()
        (tmp_path / f"{i}").write_bytes(b"xx")
        os.utime(tmp_path / f"{i}", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "1").write_bytes(b"of another size")
    (tmp_path / "2").unlink()
    second = digests(dataset, memory)
    assert second[1] != first[1] and second[2] is None
    assert [d for i, d in enumerate(second) if i not in (1, 2)] == [
        d for i, d in enumerate(first) if i not in (1, 2)
    ]
    assert (
        digests(dataset)[3] == digests(dataset)[17] != first[3]
    )  # without the memory, every file is read


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


def test_a_damaged_database_is_replaced(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    (tmp_path / "files.sqlite").write_bytes(b"junk" * 1000)
    dataset = open_dataset(tmp_path)
    assert digests(dataset, tmp_path / "files.sqlite") == digests(dataset)
    assert digests(dataset, tmp_path / "files.sqlite") == digests(dataset)
