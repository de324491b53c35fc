"""Approximate search: used where its recall is good, not used where the data has no clusters, right after changes."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("faiss", reason="needs faiss: install cenote[faiss]")

from cenote.search import approximate
from cenote.search.approximate import build_approximate
from cenote.search.local_store import LocalStore
from cenote.search.store import Filter, ImageEntry, IndexDescription

DIM = 32


def clustered(count: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(40, DIM, generator=torch.Generator().manual_seed(99))
    x = centres[torch.randint(40, (count,), generator=draw)] + 0.35 * torch.randn(
        count, DIM, generator=draw
    )
    return torch.nn.functional.normalize(x, dim=1)


def entry(i: int) -> ImageEntry:
    return ImageEntry(f"/p/{i}.jpg", f"{i:032x}", time=1, label=f"c{i % 2}")


def filled(folder: Path, x: Tensor) -> LocalStore:
    index = LocalStore.open(folder, IndexDescription("toy", "toy", x.shape[1]))
    with index.writer() as writer:
        writer.put([entry(i) for i in range(len(x))], x)
    return index


def recall(index: LocalStore, queries: Tensor, k: int = 10) -> float:
    found, truth = index.nearest(queries, k)[1], index.exact(queries, k)[1]
    return float(
        torch.tensor(
            [len(set(a) & set(b)) / k for a, b in zip(found.tolist(), truth.tolist(), strict=True)]
        ).mean()
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("approximate") / "ix"
    index = filled(folder, clustered(3000))
    about = build_approximate(index, clustered(50, seed=5))
    assert about.good and set(about.recall) == {
        "images",
        "words",
        "images, filtered",
        "words, filtered",
    }
    return folder


def test_its_recall_is_measured_and_true(built: Path) -> None:
    index = LocalStore.open(built)
    assert index.open_approximate()
    about = json.loads((built / "approximate.json").read_text())
    assert about["rows"] == 3000 and min(about["recall@10"].values()) >= 0.95
    queries = clustered(100, seed=1)
    assert recall(index, queries) > 0.9
    scores, rows = index.nearest(queries, 10)
    assert torch.allclose(
        scores,
        (index.vectors(rows.flatten()).view(100, 10, DIM) * queries[:, None]).sum(2),
        atol=1e-5,
    )
    assert (scores.diff(dim=1) <= 0).all()
    assert index.scan(queries[:1]) is None  # every image would take too long


def test_filtered_searches_of_many_images_are_approximate(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "MIN_IMAGES", 1000)
    index = LocalStore.open(shutil.copytree(built, tmp_path / "ix"))
    index.open_approximate()
    view, queries = index.select(Filter(classes=("c1",))), clustered(100, seed=1)
    assert len(view) == 1500 and view.is_approximate and view.scan(queries) is None
    assert (view.nearest(queries, 10)[1] % 2 == 1).all()
    assert recall(view, queries) > 0.9
    facts = json.loads((built / "approximate.json").read_text())
    assert facts["recall@10"]["images, filtered"] >= 0.95 and facts["filtered_probes"] >= 4
    assert index.select(Filter(classes=("c1",))) is view  # the last filter is not read again
    with index.writer() as writer:
        writer.remove([entry(1).path])
    assert len(index.select(Filter(classes=("c1",)))) == 1499


def test_filtered_searches_of_few_images_are_exact(built: Path) -> None:
    index = LocalStore.open(built)
    index.open_approximate()
    view = index.select(Filter(classes=("c1",)))
    queries = clustered(5, seed=2)
    assert (
        torch.equal(view.nearest(queries, 8)[1], view.exact(queries, 8)[1])
        and view.scan(queries) is not None
    )


def test_what_comes_and_goes_later(tmp_path: Path) -> None:
    index = filled(tmp_path / "ix", clustered(1500))
    build_approximate(index)
    index.open_approximate()
    new = clustered(40, seed=7)
    with index.writer() as writer:
        writer.put([entry(5000 + i) for i in range(40)], new)
        writer.remove([entry(i).path for i in range(300)])
    assert index.approximate is not None and index.approximate.rows == 1500
    near = index.nearest(new, 1)[1][:, 0]
    assert near.tolist() == list(range(1500, 1540))  # the new ones are found
    assert index.nearest(clustered(20, seed=8), 30)[1].min() >= 300  # the removed ones are not
    assert recall(index, clustered(50, seed=9)) > 0.9
    # Most of what it knows is gone: still as many as were asked for.
    with index.writer() as writer:
        writer.remove([entry(i).path for i in range(1480)])
    assert index.nearest(new[:2], 60)[1].shape == (2, 60)
    with index.writer() as writer:
        writer.compact()
    assert index.approximate is None and len(index) == 60  # its rows have other numbers now


def test_data_without_structure_stays_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.nn.functional.normalize(
        torch.randn(3000, 128, generator=torch.Generator().manual_seed(0)), dim=1
    )
    index = filled(tmp_path / "ix", x)
    monkeypatch.setattr(approximate, "PROBES", (1,))
    message = index.update_approximate("yes")
    assert message is not None and "recall@10 0." in message
    assert not index.open_approximate()
    assert torch.equal(index.nearest(x[:3], 5)[1], index.exact(x[:3], 5)[1])


def test_when_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(tmp_path / "ix", clustered(1200))
    assert (
        index.update_approximate() is None and not (tmp_path / "ix" / "approximate.json").exists()
    )  # too few
    monkeypatch.setattr(approximate, "MIN_IMAGES", 1000)
    message = index.update_approximate()
    assert message is not None and "recall@10" in message and index.open_approximate()
    assert index.update_approximate() is None  # fresh
    with index.writer() as writer:
        writer.put([entry(5000 + i) for i in range(300)], clustered(300, seed=3))
    assert index.update_approximate() is not None  # a quarter of it is new
    index.update_approximate("no")
    assert not list((tmp_path / "ix").glob("approximate*"))


def test_two_files_that_do_not_belong_together(built: Path, tmp_path: Path) -> None:
    index = filled(tmp_path / "ix", clustered(1200))
    build_approximate(index)
    for content in ((built / "approximate.faiss").read_bytes(), b"broken"):
        (tmp_path / "ix" / "approximate.faiss").write_bytes(content)
        assert not index.open_approximate()


@pytest.mark.parametrize(
    "content", ["[1]", "7", "{", '{"good": true}', '{"good": true, "rows": "x"}']
)
def test_a_damaged_description_is_ignored(tmp_path: Path, content: str) -> None:
    index = filled(tmp_path / "ix", clustered(50))
    (tmp_path / "ix" / "approximate.json").write_text(content)
    assert not index.open_approximate() and index.update_approximate() is None
