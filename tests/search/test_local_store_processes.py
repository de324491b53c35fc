"""The embedded index between processes: not damaged by a killed writer, consistent for readers beside a writer."""

import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch

from cenote.search.local_store import LocalStore

from .test_local_store import MADE, entry, filled, ids, unit_rows

WITH_LOCAL = replace(MADE, local={"k": 4, "dim": 3})


def local(number: int) -> torch.Tensor:
    """The local vectors of one image, exact in float16."""
    return torch.full((1, 4, 3), float(number % 200)) + torch.arange(4)[:, None] / 8


def one_id(number: int) -> torch.Tensor:
    return ids(1, number)


def write(folder: Path, start: int, begun: Event) -> None:
    """In a process of its own, until it is killed."""
    torch.set_num_threads(1)  # the threads of before the fork are not here
    with LocalStore.open(folder, WITH_LOCAL).writer() as writer:
        for i in range(start, start + 100_000, 5):
            numbers = range(i, i + 5)
            rows = torch.cat([unit_rows(1, seed=k) for k in numbers])
            words, cells = (torch.cat([make(k) for k in numbers]) for make in (one_id, local))
            writer.put([entry(k) for k in numbers], rows, words, cells)
            if i % 4 == 0:
                writer.remove([entry(i).path])
            if i % 60 == 0:
                writer.compact(0.01)
            begun.set()


@contextmanager
def writer_at_work(folder: Path, start: int) -> Iterator[None]:
    """Forked: torch is there already. Ends with SIGKILL."""
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    process = context.Process(target=write, args=(folder, start, begun))
    process.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        process.kill()
        process.join(60)


def check(folder: Path) -> int:
    """Every image has its own vector, words and local vectors, and the moments are those of all."""
    index = LocalStore.open(folder)
    known = index.images()
    assert len(known) == len(index)
    for path, (row, kept) in known.items():
        number = int(Path(path).stem)
        assert kept == entry(number)
        assert torch.equal(index.vectors(torch.tensor([row])), unit_rows(1, seed=number))
        assert index.words(torch.tensor([row])).tolist() == [[number, number + 1000]]  # type: ignore[union-attr]
        assert torch.equal(index.local(torch.tensor([row])), local(number))  # type: ignore[arg-type]
    hits = index.find_texts(["c0", "c1", "c2"])
    assert hits is not None and sorted(hits.rows.tolist()) == index.rows.tolist()
    for row, place in zip(hits.rows.tolist(), hits.places.tolist(), strict=True):
        (stored,) = index.entries(torch.tensor([row]))
        assert hits.texts[place] == ("class", stored.label)
    vectors = index.vectors(index.rows).double()
    assert torch.allclose(index.moments().covariance, torch.cov(vectors.T), atol=1e-12)
    index.db.close()
    return len(known)


def test_a_killed_writer_leaves_a_sound_index(tmp_path: Path) -> None:
    """SIGKILL while it puts, removes and compacts; the next writer continues."""
    before = 0
    for turn in range(8):
        with writer_at_work(tmp_path, 100_000 * turn):
            time.sleep(0.0137 * turn)
        count = check(tmp_path)
        assert count > before
        before = count


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    counts, end = [], time.monotonic() + 60
    with writer_at_work(tmp_path, 0):
        while len(counts) < 6 or (counts[0] == counts[-1] and time.monotonic() < end):
            counts.append(check(tmp_path))
    assert counts == sorted(counts) and counts[0] < counts[-1]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others may read: pytest's own may not be."""
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        yield Path(top) / "ix"
        os.chmod(Path(top) / "ix", 0o755)


def read_as_a_guest(folder: Path, look: Callable[[LocalStore], object]) -> str:
    """What somebody sees who may not write there; root becomes nobody for it."""
    os.chmod(folder, 0o555)
    ours, theirs = multiprocessing.Pipe()

    def be_guest() -> None:
        torch.set_num_threads(1)
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            theirs.send(str(look(LocalStore.open(folder))))
        except Exception as error:
            theirs.send(f"{type(error).__name__}: {error}")

    process = multiprocessing.get_context("fork").Process(target=be_guest)
    process.start()
    assert ours.poll(60)
    process.join(60)
    os.chmod(folder, 0o755)
    return str(ours.recv())


def test_a_folder_that_may_only_be_read(shared: Path) -> None:
    index, x = filled(shared)
    index.db.close()
    assert not (shared / "images.sqlite-wal").exists()
    assert (
        read_as_a_guest(shared, lambda seen: (len(seen), seen.nearest(x[:1], 1)[1].tolist()))
        == "(60, [[0]])"
    )


def test_a_guest_sees_what_a_killed_writer_left(shared: Path) -> None:
    """It is in SQLite's log, which is as much of the index as the rest."""
    with writer_at_work(shared, 0):
        time.sleep(0.05)
    assert (shared / "images.sqlite-wal").stat().st_size
    seen = read_as_a_guest(shared, lambda seen: (len(seen), len(seen.images())))
    copied = shared.with_name("copied")
    shutil.copytree(shared, copied, ignore=shutil.ignore_patterns("*-shm"))
    answer = read_as_a_guest(copied, len)
    assert answer.startswith("ValueError: ") and "images.sqlite-wal" in answer
    count = check(shared)
    assert count and seen == str((count, count))
