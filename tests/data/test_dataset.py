"""Records come back from the table unchanged, in any process and after any selection."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import Box, Dataset, Problem, Record, RetrievalQuery, pack

RECORDS = [
    Record(
        "a.jpg",
        "cat",
        "train",
        (Box(1, 2, 3, 4), Box(0.5, 0, 9, 9, "dog", True, False, True)),
        caption="a cat",
    ),
    Record("b/ü \udcff.png", None, None, masks=("m1.png", "m 2.png"), ignore="i.png"),
    Record(
        "",
        "dog",
        "test",
        (Box(5, 5, 6, 7, None, False, True),),
        domain="sketch",
        attributes={"colour": "red"},
    ),
    Record("d.jpg", "cat", "val", attributes={"size": "10", "colour": ""}, caption=""),
]


@pytest.fixture
def dataset() -> Dataset:
    return pack([RECORDS[0], Problem("line 7: no"), *RECORDS[1:]], Path("root"), "four")


def test_records_come_back_as_they_were(dataset: Dataset) -> None:
    assert list(dataset) == RECORDS
    assert [dataset[i] for i in (-1, -4)] == [RECORDS[3], RECORDS[0]]
    assert dataset.problems == ["line 7: no"]
    assert list(pickle.loads(pickle.dumps(dataset))) == RECORDS
    with pytest.raises(IndexError):
        dataset[4]


def test_columns(dataset: Dataset) -> None:
    assert dataset.classes == ["cat", "dog"] and dataset.labels.tolist() == [0, -1, 1, 0]
    assert dataset.splits == {"train": 1, "val": 1, "test": 1, None: 1}
    assert list(dataset.splits) == ["train", "val", "test", None]
    assert (
        dataset.attribute("colour").names == ["", "red"] and dataset.attribute("colour")[0] is None
    )
    assert dataset.domains[2] == "sketch"
    assert dataset.has_masks.tolist() == [False, True, False, False]
    with pytest.raises(ValueError, match=r"'shape'.*four.*colour, size"):
        dataset.attribute("shape")


def test_selections_share_columns_and_keep_order(dataset: Dataset) -> None:
    part = dataset.select([3, 0])
    assert list(part) == [RECORDS[3], RECORDS[0]] and part.table is dataset.table
    assert list(part.select(np.array([False, True]))) == [RECORDS[0]]
    assert list(dataset.split("test")) == [RECORDS[2]]
    assert part.splits == {"train": 1, "val": 1} and part.labels.tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"four.*'trian'.*test, train, val"):
        dataset.split("trian")


def test_queries_follow_their_images(dataset: Dataset) -> None:
    dataset.queries = [
        RetrievalQuery(0, {"targets": (1, 3)}, "with a hat"),
        RetrievalQuery(2, {"targets": (0,)}),
    ]
    assert dataset.select([3, 0]).queries == [RetrievalQuery(1, {"targets": (0,)}, "with a hat")]


def test_classes_in_a_given_order() -> None:
    dataset = pack(RECORDS, Path("."), "x", classes=["zebra", "dog", "cat"])
    assert dataset.labels.tolist() == [2, -1, 1, 2] and dataset[0].label == "cat"
    with pytest.raises(ValueError, match=r"\b1\b.*\bcat\b"):
        pack(RECORDS, Path("."), "x", classes=["dog"])
    numbers = pack([Record("a", n) for n in ("10", "9", "b", "a")], Path("."), "x")
    assert numbers.classes == ["9", "10", "a", "b"]


def test_images_open_lazily(tmp_path: Path) -> None:
    Image.new("RGB", (7, 5), "red").save(tmp_path / "a.png")
    dataset = pack(
        [Record("a.png"), Record(str(tmp_path / "a.png")), Record("gone.png")], tmp_path, "x"
    )
    assert dataset.image(0).size == dataset.image(1).size == (7, 5)
    assert dataset.mask(0) is None
    with pytest.raises(ValueError, match=r"gone\.png"):
        dataset.image(2)


@pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"),
    reason="memory is measured by Linux's /proc: run it there",
)
def test_many_records_cost_a_worker_next_to_nothing() -> None:
    """A forked worker that reads every tenth record owns less than 1 MB; of a list of paths it would copy 16 MB."""
    script = """
import os, sys
from pathlib import Path
from cenote.data import Record, pack
data = pack((Record(f"class{i % 1000}/image_{i}.jpg", f"class{i % 1000}") for i in range(200_000)), Path("."), "x")
def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024
if os.fork() == 0:
    before = private()
    assert sum(len(data[i].image) for i in range(0, 200_000, 10)) > 0
    print(private() - before, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert float(done.stdout) < 6, done.stderr
