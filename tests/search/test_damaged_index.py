"""Folders that are not an embedded index, or a damaged one."""

import json
import os
import shutil
import sqlite3
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from cenote.search.load import open_store
from cenote.search.local_store import LocalStore
from cenote.search.store import IndexDamaged

from .test_local_store import MADE, filled


def test_no_index_and_damaged_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\b.*`cenote index"):
        open_store(tmp_path / "none")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    for made in (None, MADE):
        with pytest.raises(ValueError, match=str(tmp_path / "other")):
            open_store(tmp_path / "other", made)

    def damaged(name: str, content: bytes | None) -> None:
        folder = tmp_path / f"of {name}"
        filled(folder)[0].db.close()
        file = folder / name
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(IndexDamaged, match=str(folder)):
            open_store(folder).images()

    damaged("vectors-0.bin", b"short")
    damaged("words-0.bin", None)
    damaged("images.sqlite", b"no database at all" * 100)
    damaged("index.json", b"{")
    for key, value in (("dtype", "float99"), ("dim", "wide"), ("dim", 0), ("words", {"n": "x"})):
        shutil.rmtree(tmp_path / "of index.json")
        damaged("index.json", json.dumps(asdict(MADE) | {key: value}).encode())


@pytest.mark.parametrize(
    "order", ["delete from state", "update state set value = 'x'", "delete from images"]
)
def test_a_table_that_lacks_what_it_should_have(tmp_path: Path, order: str) -> None:
    filled(tmp_path)[0].db.close()
    with sqlite3.connect(tmp_path / "images.sqlite") as base:
        base.execute(order)
    with pytest.raises(IndexDamaged, match=str(tmp_path)):
        LocalStore.open(tmp_path).entries(torch.tensor([3]))


def test_a_page_of_sqlite_that_was_overwritten(tmp_path: Path) -> None:
    index, _ = filled(tmp_path)
    index.db.close()
    content = bytearray((tmp_path / "images.sqlite").read_bytes())
    content[8192:] = os.urandom(len(content) - 8192)
    (tmp_path / "images.sqlite").write_bytes(content)
    with pytest.raises(IndexDamaged, match=str(tmp_path)):
        LocalStore.open(tmp_path).images()
