"""The embedded index: searches, filters, changes, compaction."""

import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.search.inputs import parse_date, parse_size
from cenote.search.local_store import LocalStore
from cenote.search.store import Filter, ImageEntry, IndexBusy, IndexDescription

from .rankings import assert_ranked

DIM = 12
MADE = IndexDescription("toy", "toy-1", DIM, words={"name": "list", "digest": "d", "n": 2})


def unit_rows(count: int, seed: int = 0, dim: int = DIM) -> Tensor:
    return torch.nn.functional.normalize(
        torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)), dim=1
    )


def entry(i: int, **known: object) -> ImageEntry:
    plain = ImageEntry(
        f"/photos/{'ab'[i % 2]}/{i}.jpg", f"{i:032x}", size=100 * i, time=i, date=float(i)
    )
    return plain._replace(label=f"c{i % 3}", domain="photo" if i % 4 else "sketch", **known)  # type: ignore[arg-type]


def ids(count: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + count)[:, None] + torch.tensor([0, 1000])


def filled(
    folder: Path, count: int = 60, made: IndexDescription = MADE
) -> tuple[LocalStore, Tensor]:
    index, x = LocalStore.open(folder, made), unit_rows(count)
    with index.writer() as writer:
        for start in range(0, count, 25):
            some = range(start, min(start + 25, count))
            writer.put([entry(i) for i in some], x[start : some.stop], ids(len(some), start))
    return index, x


def assert_nearest(found: Tensor, q: Tensor, x: Tensor, rows: list[int], k: int) -> None:
    """The k nearest of these rows by the definition, in double."""
    assert len(found) == min(k, len(rows))
    assert_ranked(found, {row: float((x[row].double() * q.double()).sum()) for row in rows})


def test_what_went_in_is_found(tmp_path: Path) -> None:
    filled(tmp_path / "ix")
    index = LocalStore.open(tmp_path / "ix")
    x, queries = unit_rows(60), unit_rows(5, seed=1)
    assert len(index) == 60 and index.description == MADE
    scores, rows = index.nearest(queries, 7)
    for i, q in enumerate(queries):
        assert_nearest(rows[i], q, x, list(range(60)), 7)
    assert torch.allclose(scores, torch.gather(queries @ x.T, 1, rows), atol=1e-5)
    assert torch.equal(index.vectors(rows[0]), x[rows[0]])
    assert index.words(rows[0]).tolist() == [[row, row + 1000] for row in rows[0].tolist()]  # type: ignore[union-attr]
    assert index.entries(rows[0]) == [entry(row) for row in rows[0].tolist()]
    assert index.nearest(queries, 1000)[1].shape == (5, 60)


def test_ties_keep_the_lower_row(tmp_path: Path) -> None:
    index = LocalStore.open(tmp_path, IndexDescription("toy", "toy", DIM))
    index.budget = 1 << 20
    x = torch.eye(DIM)[torch.arange(300) % 3]  # similarities of 0 and 1 are exact in every kernel
    with index.writer() as writer:
        writer.put([entry(i) for i in range(300)], x)
    for queries in (x[:1], x[:3]):
        assert index.nearest(queries, 5)[1][0].tolist() == [0, 3, 6, 9, 12]


def test_rows_and_classes_are_filters(tmp_path: Path) -> None:
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy", 8))
    with index.writer() as writer:
        writer.put([entry(i) for i in range(12)], unit_rows(12, dim=8))
    some = index.select(Filter(rows=(2, 3, 7)))
    label = index.entries(torch.tensor([3]))[0].label
    assert some.rows.tolist() == [2, 3, 7] and label
    assert 3 in index.select(Filter(classes=(label,), rows=(2, 3))).rows
    assert not len(index.select(Filter(classes=("none",), rows=(2, 3))))


def test_blocks_change_nothing(tmp_path: Path) -> None:
    """With the smallest budget, 40 queries are two groups, and 2,000 rows of 512 numbers are blocks of about 200."""
    index, x = (
        LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy", 512)),
        unit_rows(2000, dim=512),
    )
    with index.writer() as writer:
        writer.put([entry(i) for i in range(2000)], x)
    small = LocalStore.open(tmp_path / "ix")
    small.budget = 1 << 20
    queries = unit_rows(40, seed=2, dim=512)
    for chosen in (
        Filter(),
        Filter(classes=("c1",)),
        Filter(until=450),
    ):  # all rows, masked rows, gathered rows
        whole, parts = (store.select(chosen) for store in (index, small))
        expected = queries.double() @ x.double().T
        rows = whole.rows
        for view in (whole, parts):
            scores, nearest = view.nearest(queries, 6)
            torch.testing.assert_close(
                scores.double(), expected.gather(1, nearest), atol=1e-5, rtol=0
            )
            for ranking, similarity in zip(nearest, expected, strict=True):
                assert_ranked(
                    ranking, dict(zip(rows.tolist(), similarity[rows].tolist(), strict=True))
                )
            scanned = view.scan(queries[:20])
            assert scanned is not None and scanned[1].tolist() == rows.tolist()
            torch.testing.assert_close(scanned[0].double(), expected[:20, rows], atol=1e-5, rtol=0)
    assert small.scan(queries) is None  # more similarities than the budget allows


def test_removed_and_changed_images(tmp_path: Path) -> None:
    index, x = filled(tmp_path / "ix")
    other = unit_rows(60, seed=3)
    with index.writer() as writer:
        assert writer.remove([entry(i).path for i in (0, 5, 5)] + ["/not/there"]) == 2
        writer.put([entry(7), entry(8)], other[7:9], ids(2, 500))
        writer.update([entry(9, caption="a horse")])
    x = torch.cat([x, other[7:9]])
    left = [row for row in range(62) if row not in (0, 5, 7, 8)]
    assert len(index) == 58
    for q in unit_rows(4, seed=4):
        assert_nearest(index.nearest(q[None], 9)[1][0], q, x, left, 9)
    known = index.images()
    assert known[entry(7).path].row == 60 and known[entry(9).path].entry.caption == "a horse"
    assert (
        index.rows_with_digest(entry(8).digest) == [61]
        and index.rows_with_digest(entry(5).digest) == []
    )
    scanned = index.scan(unit_rows(1))
    assert scanned is not None and scanned[1].tolist() == left and torch.isfinite(scanned[0]).all()


def test_views_and_changes_after_a_search(tmp_path: Path) -> None:
    """What a search has worked out is of its rows alone."""
    index, x = filled(tmp_path / "ix")
    with index.writer() as writer:
        writer.remove([entry(0).path])
    index.nearest(x[:1], 3)
    view = index.select(Filter(classes=("c1", "c2")))  # many: they are masked, not gathered
    wanted = [i for i in range(1, 60) if i % 3]
    assert_nearest(view.nearest(x[:1], 9)[1][0], x[0], x, wanted, 9)
    with index.writer() as writer:
        writer.put([entry(60)], unit_rows(1, seed=60), ids(1, 60))
    x = torch.cat([x, unit_rows(1, seed=60)])
    assert_nearest(index.nearest(x[60:], 5)[1][0], x[60], x, list(range(1, 61)), 5)


def test_looking_again_leaves_no_files_open(tmp_path: Path) -> None:
    index, _ = filled(tmp_path / "ix")
    view = index.select(Filter(classes=("c1",)))
    index.refresh()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        index.refresh()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert view.entries(view.rows[:1]) == [entry(1)]


def test_the_log_stays_short(tmp_path: Path) -> None:
    """An index that is filled does not keep SQLite from taking up its log."""
    index = LocalStore.open(tmp_path / "ix", IndexDescription("toy", "toy", DIM))
    x, log, longest = unit_rows(500), tmp_path / "ix" / "images.sqlite-wal", 0
    with index.writer() as writer:
        for turn in range(12):
            writer.put([entry(500 * turn + i, caption="x" * 2000) for i in range(500)], x)
            longest = max(longest, log.stat().st_size)
            index.refresh()  # as filling does
    assert longest < 6 << 20 and (tmp_path / "ix" / "images.sqlite").stat().st_size > 12 << 20
    assert len(index) == 6000


def test_compaction_keeps_what_counts(tmp_path: Path) -> None:
    index, x = filled(tmp_path / "ix")
    reader = LocalStore.open(tmp_path / "ix")
    gone = [i for i in range(60) if i % 3]
    with index.writer() as writer:
        writer.remove([entry(i).path for i in gone])
        assert writer.compact(0.9) is False and writer.compact(0.5) is True
        writer.put([entry(99)], unit_rows(1, seed=9), ids(1, 99))
    left = [i for i in range(60) if i % 3 == 0]
    assert len(index) == 21 and sorted(p.name for p in (tmp_path / "ix").glob("*.bin")) == [
        "vectors-1.bin",
        "words-1.bin",
    ]
    assert index.entries(torch.arange(21)) == [entry(i) for i in [*left, 99]]
    assert torch.equal(index.vectors(torch.arange(20)), x[left])
    assert index.words(torch.arange(21))[:, 0].tolist() == [*left, 99]  # type: ignore[index]
    # Who had opened it before still sees what was there then.
    assert len(reader) == 60 and reader.entries(torch.tensor([59])) == [entry(59)]
    assert torch.equal(reader.nearest(x[[59]], 1)[1], torch.tensor([[59]]))
    reader.refresh()
    assert len(reader) == 21 and reader.moments().count == 21


def test_moments_follow_every_change(tmp_path: Path) -> None:
    index, _ = filled(tmp_path / "ix")

    def check(view: LocalStore) -> None:
        rows = view.rows
        values = view.vectors(rows).double()
        moments = view.moments()
        assert moments.count == len(rows)
        assert torch.allclose(moments.mean, values.mean(0), atol=1e-12)
        assert torch.allclose(moments.covariance, torch.cov(values.T), atol=1e-12)

    check(index)
    with index.writer() as writer:
        writer.remove([entry(i).path for i in range(0, 20, 2)])
        writer.put([entry(3)], unit_rows(1, seed=5), ids(1))
    check(index)
    with index.writer() as writer:
        writer.remove([entry(3).path])
    check(index)
    assert index.db.state("sums_rows") == 61 and index.db.state("sums_gone") == 12
    check(index.select(Filter(classes=("c2",), since=10)))
    with index.writer() as writer:
        writer.compact(0.1)
    check(index)
    with pytest.raises(ValueError):
        index.select(Filter(classes=("none",))).moments()


@pytest.mark.parametrize(
    ("filter", "holds"),
    [
        (Filter(classes=("c1", "c2")), lambda e: e.label in ("c1", "c2")),
        (Filter(domains=("sketch",)), lambda e: e.domain == "sketch"),
        (Filter(folders=("/photos/a/",)), lambda e: e.path.startswith("/photos/a/")),
        (Filter(folders=("/photos/a", "/photos/b")), lambda e: True),
        (Filter(folders=("/photo",)), lambda e: False),
        (Filter(since=10, until=20), lambda e: 10 <= e.date < 20),
        (Filter(smallest=1000, largest=2000), lambda e: 1000 <= e.size <= 2000),
        (Filter(classes=("c0",), domains=("sketch",)), lambda e: (e.label, e.domain) == ("c0", "sketch")),
        (Filter(classes=("c'0\"",)), lambda e: False),
    ],
)  # fmt: skip
def test_filters(tmp_path: Path, filter: Filter, holds: object) -> None:
    index, x = filled(tmp_path)
    view = index.select(filter)
    wanted = [i for i in range(60) if holds(entry(i))]  # type: ignore[operator]
    assert len(view) == len(wanted)
    assert_nearest(view.nearest(x[:1], 10)[1][0], x[0], x, wanted, 10)
    assert len(index) == 60


def test_dates_and_sizes() -> None:
    day = 86400
    assert parse_date("2024-03-01") - parse_date("2024-02-28") == 2 * day
    assert parse_date("2024-02", end=True) == parse_date("2024-03") and parse_date(
        "2023", end=True
    ) == parse_date("2024")
    assert parse_date("2024-12", end=True) == parse_date("2025-01-01")
    assert parse_date("2024-12-31", end=True) - parse_date("2024-12-31 23:59") == 60
    assert parse_size("1.5MB") == 1_500_000 and parse_size(" 7 ") == 7
    for wrong in ("yesterday", "2024-13", ""):
        with pytest.raises(ValueError, match=repr(wrong)):
            parse_date(wrong)
    with pytest.raises(ValueError, match="'big'"):
        parse_size("big")


def test_half_precision(tmp_path: Path) -> None:
    index, x = filled(tmp_path, made=IndexDescription("toy", "toy-1", DIM, "float16", MADE.words))
    assert (tmp_path / "vectors-0.bin").stat().st_size == 60 * DIM * 2
    near = index.nearest(x, 1)
    assert near[0].dtype == torch.float32 and near[1][:, 0].tolist() == list(range(60))
    assert torch.allclose(index.moments().mean, x.double().mean(0), atol=1e-3)


def test_one_writer(tmp_path: Path) -> None:
    index, _ = filled(tmp_path)
    other = LocalStore.open(tmp_path)
    with index.writer(), pytest.raises(IndexBusy, match=str(tmp_path)), other.writer():
        pass
    with other.writer():
        pass


def test_vectors_and_words_of_wrong_shapes(tmp_path: Path) -> None:
    index, x = filled(tmp_path)
    with index.writer() as writer:
        for vectors, words, values in [
            (torch.nn.functional.normalize(x[:1, :5]), ids(1), r"shape \(1,12\)"),
            (x[:1], None, r"shape \(1,2\)"),
            (x[:1] * 2, ids(1), "length 1"),
            (x[:1] * torch.nan, ids(1), "length 1"),
        ]:
            with pytest.raises(ValueError, match=values):
                writer.put([entry(0)], vectors, words)
    assert len(index) == 60


def test_file_names_that_are_not_text(tmp_path: Path) -> None:
    index = LocalStore.open(tmp_path, MADE)
    odd = entry(1)._replace(path=os.fsdecode(b"/photos/\xff.jpg"), attributes={"colour": "blau"})
    with index.writer() as writer:
        writer.put([odd], unit_rows(1), ids(1))
    assert (
        index.entries(torch.tensor([0])) == [odd]
        and len(index.select(Filter(folders=("/photos",)))) == 1
    )


def test_the_database_is_sqlite(tmp_path: Path) -> None:
    """Other programs can read it."""
    filled(tmp_path)
    with sqlite3.connect(tmp_path / "images.sqlite") as base:
        assert base.execute("select count(*) from images where label = 'c1'").fetchone() == (20,)
    matrix = np.fromfile(tmp_path / "vectors-0.bin", np.float32).reshape(-1, DIM)
    assert np.array_equal(matrix, unit_rows(60).numpy())
