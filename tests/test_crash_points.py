"""Whatever a save, an index or a cache does with files can be the last thing that it does."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import cenote
from cenote.data.digests import digest_of
from cenote.data.files import command_folder, write_text
from cenote.predict.feature_cache import FeatureCache, Layout
from cenote.search.local_store import LocalStore
from cenote.search.store import ImageEntry, IndexDescription
from cenote.train.checkpoint import load_checkpoint, random_state, save_checkpoint
from tests.crashing import crashes
from tests.toy_models import narrow_resnet

KINDS = pytest.mark.parametrize(
    ("torn", "every"),
    [
        pytest.param(False, 13, id="killed-some"),
        pytest.param(True, 13, id="torn-some"),
        pytest.param(False, 1, id="killed", marks=pytest.mark.slow),
        pytest.param(True, 1, id="torn", marks=pytest.mark.slow),
    ],
)
DIM, LAYOUT = 8, Layout((2, 3), 4, cls=True)
DESCRIPTION = IndexDescription("toy", "toy-1", DIM, words={"name": "list", "digest": "d", "n": 2})


# An index: its images are those of before or of after, with their own vectors.


def vector(number: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.nn.functional.normalize(torch.randn(DIM, generator=generator), dim=0)


def put(store: LocalStore, numbers: list[int]) -> None:
    entries = [ImageEntry(f"/photos/{i}.jpg", f"{i:032x}", size=i, time=1) for i in numbers]
    with store.writer() as writer:
        writer.put(
            entries,
            torch.stack([vector(i) for i in numbers]),
            torch.tensor([[i, i + 1] for i in numbers]),
        )


def remove(store: LocalStore, numbers: list[int]) -> None:
    with store.writer() as writer:
        writer.remove([f"/photos/{i}.jpg" for i in numbers])


def compact(store: LocalStore) -> None:
    with store.writer() as writer:
        writer.compact(0.0)


def contents(folder: Path) -> set[int]:
    """Return the numbers of the images, after a check of their vectors and words."""
    store = LocalStore.open(folder)
    sample = store.sample(1000)
    rows = torch.tensor([row for row, _ in sample], dtype=torch.long)
    numbers = [entry.size for _, entry in sample]
    words = store.words(rows)
    for number, x, ids in zip(numbers, store.vectors(rows), words, strict=True):  # type: ignore[arg-type]
        assert torch.equal(x, vector(number)) and ids.tolist() == [number, number + 1]
    assert len(set(numbers)) == len(numbers) == len(store)
    return set(numbers)


INDEX_WORK: dict[str, tuple[Callable[[LocalStore], None], set[int]]] = {
    "put": (lambda store: put(store, [10, 11, 12]), {*range(10), 10, 11, 12}),
    "replace": (lambda store: put(store, [3, 4, 12]), {*range(10), 12}),
    "remove": (lambda store: remove(store, [1, 2, 3]), {0, 4, 5, 6, 7, 8, 9}),
    "compact": (compact, set(range(1, 10))),
}


@KINDS
@pytest.mark.parametrize("work", INDEX_WORK)
def test_index(work: str, torn: bool, every: int, tmp_path: Path) -> None:
    base, change, expected = tmp_path / "base", *INDEX_WORK[work]
    store = LocalStore.open(base, DESCRIPTION)
    put(store, list(range(10)))
    if work == "compact":
        remove(store, [0])
    before = contents(base)
    del store
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    for point in crashes(f"index {work}", lambda: change(LocalStore.open(copy)), torn, every):
        assert contents(copy) in (before, expected), point
        change(LocalStore.open(copy))
        assert contents(copy) == expected, point
        shutil.rmtree(copy)
        shutil.copytree(base, copy)


@KINDS
def test_new_index(torn: bool, every: int, tmp_path: Path) -> None:
    folder = tmp_path / "ix"

    def create() -> None:
        put(LocalStore.open(folder, DESCRIPTION), [1, 2])

    for point in crashes("new index", create, torn, every):
        create()
        assert contents(folder) == {1, 2}, point
        assert not list(folder.glob(".cenote-*"))
        shutil.rmtree(folder)


# Models and checkpoints: the old one or the new one.


@KINDS
def test_model(torn: bool, every: int, tmp_path: Path) -> None:
    old, new, folder = narrow_resnet("gap"), narrow_resnet("gap"), tmp_path / "m"
    with torch.no_grad():
        old.head.linear.bias.fill_(1.0)  # type: ignore[union-attr]
        new.head.linear.bias.fill_(2.0)  # type: ignore[union-attr]
    old.save(folder)
    seen = set()
    for _ in crashes("save of a model", lambda: new.save(folder), torn, every):
        seen.add(cenote.load(folder).head.linear.bias[0].item())  # type: ignore[union-attr]
        new.save(folder)
        assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
        old.save(folder)
    assert seen == {1.0, 2.0} or every > 1


@KINDS
def test_checkpoint(torn: bool, every: int, tmp_path: Path) -> None:
    def save(number: int) -> None:
        save_checkpoint(tmp_path, {"epoch": number, "weights": torch.full((50,), number)})

    save(1)
    seen = set()
    for _ in crashes("checkpoint", lambda: save(2), torn, every):
        state = load_checkpoint(tmp_path)
        assert (state["weights"] == state["epoch"]).all()
        seen.add(state["epoch"])
        save(1)
    assert seen <= {1, 2} and random_state()


@KINDS
def test_text_and_command_folder(torn: bool, every: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def run() -> None:
        with command_folder(folder, "cenote x", ["r.json"]):
            write_text(folder / "r.json", json.dumps(list(range(1000))))

    for _ in crashes("results of a command", run, torn, every):
        if (folder / "r.json").exists():
            assert json.loads((folder / "r.json").read_text())[-1] == 999
        run()
        assert (
            {"command.txt", "r.json"}
            <= set(os.listdir(folder))
            <= {"command.txt", "r.json", ".lock"}
        )
        shutil.rmtree(folder)


# The feature cache: an image has its own features or none.


def row(number: int) -> np.ndarray:
    return np.full((7, 4), number, np.float32)


def name(number: int) -> bytes:
    return digest_of(str(number).encode())


def check_cache(folder: Path, present: set[int], work: Callable[[], None]) -> None:
    store = FeatureCache(folder).open({"backbone": "b"}, LAYOUT)
    for number, place in zip(range(9), store.find([name(i) for i in range(9)]), strict=True):
        if place >= 0:
            assert (store.values()[place] == number).all()
    work()
    store = FeatureCache(folder).open({"backbone": "b"}, LAYOUT)
    for number in present:
        (place,) = store.find([name(number)])
        assert place >= 0 and (store.values()[place] == number).all()


@KINDS
@pytest.mark.parametrize("damaged", [False, True])
def test_cache(torn: bool, every: int, damaged: bool, tmp_path: Path) -> None:
    """`damaged`: rows were lost before."""

    def append(*numbers: int) -> None:
        store = FeatureCache(tmp_path / "c").open({"backbone": "b"}, LAYOUT)
        store.append([name(i) for i in numbers], np.stack([row(i) for i in numbers]))

    def begin() -> None:
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        append(0, 1, 2, 3)
        if damaged:
            (rows,) = tmp_path.glob("c/*/rows.bin")
            os.truncate(rows, rows.stat().st_size // 2 - 1)

    begin()
    for _ in crashes("cache", lambda: append(5, 6), torn, every):
        check_cache(tmp_path / "c", {5, 6, 0, 3}, lambda: append(0, 3, 5, 6))
        begin()


@KINDS
def test_new_and_pruned_cache(torn: bool, every: int, tmp_path: Path) -> None:
    def make() -> None:
        store = FeatureCache(tmp_path).open({"backbone": "b"}, LAYOUT)
        store.append([name(1)], row(1)[None])

    def make_and_prune() -> None:
        make()
        cache = FeatureCache(tmp_path)
        cache.prune(unused_days=0)
        make()

    for _ in crashes("new and pruned cache", make_and_prune, torn, every):
        check_cache(tmp_path, {1}, make)
        assert len(FeatureCache(tmp_path).stores()) == 1
        FeatureCache(tmp_path).prune()
        assert not list(tmp_path.glob(".cenote-*"))
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


def test_random_moments_are_none(tmp_path: Path) -> None:
    """The points of one piece of work are the same in every run."""

    def work() -> None:
        write_text(tmp_path / "a", "x" * random.randint(1, 9))

    assert len(list(crashes("text", work, False))) == len(list(crashes("text", work, False)))
