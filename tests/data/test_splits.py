"""Splits are those of the data set; missing ones are made, the same on every machine, and logged."""

import re
from pathlib import Path

import pytest

from cenote.data import Record, pack
from cenote.data.splits import split
from tests.synthetic import squares


def test_missing_splits_are_made(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "cenote")
    data = squares(40)
    splits = split(data)
    assert (len(splits.train), len(splits.val), splits.test) == (30, 10, None)
    assert caplog.messages == []
    bare = pack([r._replace(split=None) for r in data], Path("x"), "bare")
    train, val, test = split(bare, 0.2)
    assert (len(train), len(val), test) == (31, 9, None)
    assert sorted([*train.rows, *val.rows]) == list(range(40))
    assert set(val.labels) == {0, 1, 2}
    assert list(split(bare, 0.2).val.rows) == list(val.rows)
    assert list(split(bare, 0.2, seed=1).val.rows) != list(val.rows)
    assert re.search(r"\b9\b", caplog.messages[0])
    with pytest.raises(ValueError, match=r"\bx\b.*\btest\b"):
        split(pack([Record("a", "a", "test")], Path("x"), "x"))


def test_unbalanced_classes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "cenote")
    records = [Record(f"{i}", "a" if i else "b", "train") for i in range(30)]
    unbalanced = pack(records, Path("x"), "unbalanced")
    split(unbalanced)
    assert any("'a'" in message and "'b'" in message for message in caplog.messages)
    caplog.clear()
    split(unbalanced, quiet=True)
    assert caplog.messages == []
