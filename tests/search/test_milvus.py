"""The index in Milvus gives what the embedded one gives: Milvus Lite here, a real server in a network of its own."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytest.importorskip("pymilvus", reason="needs pymilvus")
pytest.importorskip("milvus_lite", reason="needs milvus-lite")

from cenote.data import read_folders
from cenote.search.ask import Question, ask
from cenote.search.embedded import Embedded
from cenote.search.filters import Filter
from cenote.search.index import fill
from cenote.search.milvus import Milvus, row_of
from cenote.search.store import Store, find_store, open_store

from .search_toys import COLOURS, SHAPES, Counting, Toy, picture, words
from .test_embedded import DIM, MADE, entry, ids, unit_rows
from .test_index import MADE as TOY_MADE

SERVER = os.environ.get("CENOTE_MILVUS", "")  # set by milvus_server.py
UNSHARE = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"{SERVER}/rows" if SERVER else str(tmp_path_factory.mktemp("lite") / "rows.db")


@pytest.fixture(scope="module")
def stores(address: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Embedded, Milvus]:
    """Both were told the same: 60 images, some of them changed, some removed."""
    embedded = Embedded.open(tmp_path_factory.mktemp("embedded") / "ix", MADE)
    assert find_store(address) is None
    milvus = open_store(address, MADE)
    assert isinstance(milvus, Milvus)
    for store in (embedded, milvus):
        change(store)
    return embedded, milvus


def change(store: Store) -> None:
    x, other = unit_rows(60), unit_rows(60, seed=3)
    with store.writing() as writer:
        writer.put([entry(i) for i in range(60)], x, ids(60))
    with store.writing() as writer:
        assert writer.remove([entry(i).path for i in range(0, 20, 3)] + ["/not/there"]) == 7
        writer.put([entry(7), entry(61)], other[7:9], ids(2, 500))
        writer.note([entry(8, caption='it\'s a "horse"', attributes={"colour": "blau"})])


def paths(store: Store, rows: torch.Tensor) -> list[str]:
    return [e.path for e in store.entries(rows)]


FILTERS = [
    Filter(),
    Filter(classes=("c1", "c'\"2")),
    Filter(domains=("sketch",), classes=("c0", "c1", "c2")),
    Filter(folders=("/photos/a/",)),
    Filter(folders=("/photos/a", "/photos/b"), since=10, until=40.5),
    Filter(smallest=1000, largest=2000),
    Filter(classes=("none",)),
]


@pytest.mark.parametrize("filter", FILTERS)
def test_the_same_neighbours_and_moments(stores: tuple[Embedded, Milvus], filter: Filter) -> None:
    embedded, milvus = (store.select(filter) for store in stores)
    assert len(embedded) == len(milvus)
    queries = unit_rows(3, seed=8)
    (a, at), (b, bt) = embedded.nearest(queries, 9), milvus.nearest(queries, 9)
    assert a.shape == b.shape and torch.allclose(a, b, atol=1e-6)
    for i in range(3):
        assert paths(stores[0], at[i]) == paths(stores[1], bt[i])
    if len(embedded):
        kept, own = embedded.moments(), milvus.moments()
        assert kept.count == own.count
        assert torch.allclose(kept.mean, own.mean, atol=1e-12)
        assert torch.allclose(kept.covariance, own.covariance, atol=1e-12)


def test_what_is_known_is_the_same(stores: tuple[Embedded, Milvus]) -> None:
    known, other = (store.known() for store in stores)
    assert {p: k.entry for p, k in known.items()} == {p: k.entry for p, k in other.items()}
    assert all(stores[0].names(column) == stores[1].names(column) != [] for column in ("label", "domain"))
    some = list(known)[::7]
    rows, others = torch.tensor([known[p].row for p in some]), torch.tensor([other[p].row for p in some])
    assert torch.equal(stores[0].vectors(rows), stores[1].vectors(others))
    assert torch.equal(stores[0].words(rows), stores[1].words(others))  # type: ignore[arg-type]
    for digest in (entry(8).digest, entry(0).digest):
        assert paths(stores[0], torch.tensor(stores[0].find(digest), dtype=torch.long)) == paths(
            stores[1], torch.tensor(stores[1].find(digest), dtype=torch.long)
        )
    assert all(other[p].row == row_of(p) for p in some)


def test_the_sums_are_kept_and_made_again(stores: tuple[Embedded, Milvus]) -> None:
    _, milvus = stores
    kept = milvus.kept_sums()
    assert kept is not None and kept.count == len(milvus)
    assert torch.allclose(kept.second, milvus.summed().second, atol=1e-9)
    with pytest.raises(RuntimeError, match="killed"), milvus.writing() as writer:
        writer.put([entry(70)], unit_rows(1, seed=70), ids(1))
        raise RuntimeError("killed")
    assert milvus.kept_sums() is None
    assert milvus.moments().count == len(milvus)  # through all vectors
    with milvus.writing() as writer:
        writer.remove([entry(70).path])
    assert milvus.kept_sums() is not None and row_of(entry(70).path) not in milvus.by_row([row_of(entry(70).path)], [])


def test_two_writers_leave_no_wrong_sums(stores: tuple[Embedded, Milvus]) -> None:
    """As many images as before, other vectors: the count alone says nothing."""
    _, milvus = stores

    def change(writer: object, i: int, seed: int) -> None:
        writer.put([entry(i)], unit_rows(1, seed=seed), ids(1, i))  # type: ignore[attr-defined]

    def check(kept: bool) -> None:
        moments, values = milvus.moments(), milvus.vectors(torch.tensor([k.row for k in milvus.known().values()]))
        assert torch.allclose(moments.covariance, torch.cov(values.double().T), atol=1e-9)
        assert (milvus.kept_sums() is not None) == kept

    old = milvus.vectors(torch.tensor([row_of(entry(i).path) for i in (40, 41)]))
    with milvus.writing() as one:
        with milvus.writing() as other:  # one began before it and ends after it
            change(other, 40, 140)
        check(True)
        change(one, 41, 141)
    check(True)  # through all vectors once
    with milvus.writing() as one:
        change(one, 40, 240)
        with milvus.writing() as other:
            change(other, 41, 241)
            change(one, 40, 340)
        check(False)
    check(False)
    with milvus.writing() as one:
        change(one, 40, 0)
        with milvus.writing() as other:
            change(other, 41, 0)
    check(False)  # one does not know what the other saw of it
    with milvus.writing() as one:
        one.put([entry(40), entry(41)], old, ids(2, 40))
    check(True)


def test_opened_again_by_its_address(stores: tuple[Embedded, Milvus], address: str) -> None:
    found = find_store(address)
    assert found is not None and found.description == MADE and len(found) == len(stores[0])
    assert found.scan(unit_rows(1)) is None
    with pytest.raises(ValueError, match=rf"queries are \(queries, {DIM}\)"):
        found.nearest(torch.zeros(DIM), 3)


def test_questions_have_the_same_answers(tmp_path: Path) -> None:
    """Filled from files, and brought up to date; FreeDom and WeiCom over the stored words and moments."""
    photos = tmp_path / "photos"
    for k, colour in enumerate(COLOURS):
        for shape in SHAPES:
            (photos / shape).mkdir(parents=True, exist_ok=True)
            for i in range(3):
                picture(colour, shape, 100 * k + i).save(photos / shape / f"{colour}{i}.png")
    address = f"{SERVER}/photos" if SERVER else str(tmp_path / "photos.db")
    both = (open_store(tmp_path / "ix", TOY_MADE), open_store(address, TOY_MADE))
    for store in both:
        model = Counting()
        fill(store, read_folders(photos), model, words(), source=str(photos))  # type: ignore[arg-type]
        assert model.embedded == len(store) == 24
    os.rename(photos / "square" / "red0.png", photos / "square" / "zero.png")
    os.remove(photos / "stripes" / "red0.png")
    picture("green", "stripes", 999).save(photos / "stripes" / "new.png")
    for store in both:
        model = Counting()
        report = fill(store, read_folders(photos), model, words(), source=str(photos))  # type: ignore[arg-type]
        assert (report.embedded, report.moved, report.removed, model.embedded) == (1, 1, 2, 1)
    mine = photos / "square" / "green1.png"
    for asked in (
        {"texts": ("red",)},
        {"images": (mine,)},
        {"images": (mine,), "texts": ("stripes",)},
        {"images": (mine,), "texts": ("stripes",), "options": {"weight": 0.4}},
        {"images": (mine,), "texts": ("stripes",), "filter": Filter(classes=("stripes",)), "method": "weicom"},
    ):
        one, other = (ask(Question(**asked), store, Toy(), words()) for store in both)  # type: ignore[arg-type]
        assert one.method == other.method and one.why.keys() == other.why.keys()
        assert [r.entry for r in one.results] == [r.entry for r in other.results]
        scores = torch.tensor([[r.score for r in answer.results] for answer in (one, other)])
        assert torch.allclose(scores[0], scores[1], atol=1e-5)


@pytest.mark.skipif(not SERVER, reason="of a server")
def test_a_graph_of_neighbours() -> None:
    """HNSW instead of FLAT, where the address asks for it."""
    store, x = open_store(f"{SERVER}/graph?index=hnsw", MADE), unit_rows(60)
    with store.writing() as writer:
        writer.put([entry(i) for i in range(60)], x, ids(60))
    assert paths(store, store.nearest(x[[7]], 1)[1][0]) == [entry(7).path]
    assert isinstance(store, Milvus) and store.client.describe_index(store.name, "vector")["index_type"] == "HNSW"


def test_wrong_addresses(tmp_path: Path) -> None:
    for wrong, sentence in (
        ("http://127.0.0.1:19530/a-b", "is no address of an index"),
        ("http://127.0.0.1:19530/a?index=ivf", "no index 'ivf'"),
        ("http://me:secret@127.0.0.1:19530/a-b", "'http://127.0.0.1:19530/a-b' is no address"),
    ):
        with pytest.raises(ValueError, match=sentence):
            open_store(wrong)


@pytest.mark.skipif(bool(SERVER), reason="of Milvus Lite")
def test_of_milvus_lite(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no index at .*: `cenote index"):
        open_store(tmp_path / "deep" / "none.db")
    assert find_store(tmp_path / "none.db") is None and not os.listdir(tmp_path)  # looking makes nothing
    hold = "import sys; from pymilvus import MilvusClient; c = MilvusClient(sys.argv[1]); print(1, flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "held.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(OSError, match="another process may have it open: Milvus Lite takes one at a time"):
            open_store(tmp_path / "held.db")
        other.communicate(b"\n")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(SERVER), reason="this is the server's run")
@pytest.mark.skipif(find_spec("milvus") is None, reason="needs the package milvus, a server: pip install milvus==2.3.5")
def test_the_same_on_a_real_server(tmp_path: Path) -> None:
    """Every test above once more, against Milvus 2.3.5."""
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("no network of its own may be made here, and the server would listen on all interfaces")
    here = Path(__file__)
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--timeout=500",
        str(here),
    ]
    command = [*UNSHARE, sys.executable, str(here.with_name("milvus_server.py")), str(tmp_path / "server"), *tests]
    done = subprocess.run(command, capture_output=True, text=True, timeout=590, cwd=here.parents[2])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
