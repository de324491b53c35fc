"""Results as a table that a spreadsheet does not run, and as copies of the images."""

import csv
from pathlib import Path

from cenote.search.export import copy_results, csv_text
from cenote.search.results import RankedImage
from cenote.search.store import ImageEntry


def test_no_cell_is_a_formula() -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "dog", 'a "b", c\nd', ""]
    rows = [{"name": text, "score": -0.5, "ignored": 1} for text in texts]
    table = list(csv.reader(csv_text(rows, ("name", "score", "label")).splitlines(keepends=True)))
    assert table[0] == ["name", "score", "label"]
    assert [row[0] for row in table[1:]] == [
        "'=1+1", "+1", "-1", "'@SUM(A1)", "'\t=1", "dog", 'a "b", c\nd', "",
    ]  # fmt: skip
    assert {row[1] for row in table[1:]} == {"-0.5"} and {row[2] for row in table[1:]} == {""}


def result(path: Path, missing: bool = False) -> RankedImage:
    return RankedImage(ImageEntry(str(path), "d", time=1), 0.5, missing)


def test_copies_are_numbered_and_keep_their_names(tmp_path: Path) -> None:
    results = []
    for k in range(11):
        path = tmp_path / str(k) / "cat: 1.jpg"
        path.parent.mkdir()
        path.write_bytes(b"%d" % k)
        results.append(result(path))
    results[3] = result(tmp_path / "gone.jpg", missing=True)
    out = tmp_path / "new" / "out"
    assert copy_results(results, out) == 1
    names = sorted(path.name for path in out.iterdir())
    assert names == [f"{k + 1:02d}_cat: 1.jpg" for k in range(11) if k != 3]
    assert (out / "11_cat: 1.jpg").read_bytes() == b"10"
    assert [path.name for path in out.parent.iterdir()] == ["out"], "nothing else is left"
    (tmp_path / "empty").mkdir()
    assert copy_results(results[:1], tmp_path / "empty") == 0
