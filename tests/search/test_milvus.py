"""The index in Milvus gives what the embedded one gives: Milvus Lite, or the server whose address is in CENOTE_MILVUS.

On a server, every run writes to collections of its own and drops them.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("pymilvus", reason="needs pymilvus: install cenote[milvus]")
pytest.importorskip("milvus_lite", reason="needs milvus-lite: install cenote[milvus]")

from cenote.data import read_folders
from cenote.search import milvus_store
from cenote.search.index import update_index
from cenote.search.load import find_store, open_store
from cenote.search.local_store import LocalStore
from cenote.search.milvus_store import INDEXES, MilvusAddress, MilvusStore, row_of
from cenote.search.query import SearchRequest, ask
from cenote.search.store import Filter, Store, StoreWriter
from tests.toy_models import COLOURS, SHAPES, ColourModel, CountingColourModel, picture, word_memory

from .rankings import assert_ranked
from .test_index import MADE as TOY_MADE
from .test_local_store import MADE, entry, ids, unit_rows

SERVER = os.environ.get("CENOTE_MILVUS", "")  # such as http://localhost:19530
RUN = f"cenote_test_{uuid.uuid4().hex}"


class ShortSleeps:
    """The module time, but sleeps end after 20 ms."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.02))


@pytest.fixture(scope="module", autouse=True)
def short_sleeps() -> Iterator[None]:
    """pymilvus sleeps half a second before it asks for the first time whether an index is created."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymilvus.client.grpc_handler.time", ShortSleeps(), raising=False)
        yield


@pytest.fixture(scope="module", autouse=True)
def clean_server() -> Iterator[None]:
    yield
    if SERVER:
        from pymilvus import MilvusClient

        client = MilvusClient(SERVER)
        for name in client.list_collections():
            if name.startswith(RUN):
                client.drop_collection(name)


needs_server = pytest.mark.skipif(
    not SERVER, reason="needs a Milvus server: set CENOTE_MILVUS to its address"
)


@pytest.fixture(scope="module", params=["lite", pytest.param("server", marks=needs_server)])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def address_of(backend: str, name: str, folder: Path) -> str:
    return f"{SERVER}/{RUN}_{name}" if backend == "server" else str(folder / f"{name}.db")


@pytest.fixture(scope="module")
def address(backend: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return address_of(backend, "rows", tmp_path_factory.mktemp(backend))


@pytest.fixture(scope="module")
def stores(
    address: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LocalStore, MilvusStore]:
    """Both were told the same: 60 images, some of them changed, some removed."""
    embedded = LocalStore.open(tmp_path_factory.mktemp("embedded") / "ix", MADE)
    assert find_store(address) is None
    milvus = open_store(address, MADE)
    assert isinstance(milvus, MilvusStore)
    for store in (embedded, milvus):
        change(store)
    return embedded, milvus


def change(store: Store) -> None:
    x, other = unit_rows(60), unit_rows(60, seed=3)
    with store.writer() as writer:
        writer.put([entry(i) for i in range(60)], x, ids(60))
    with store.writer() as writer:
        assert writer.remove([entry(i).path for i in range(0, 20, 3)] + ["/not/there"]) == 7
        writer.put([entry(7), entry(61)], other[7:9], ids(2, 500))
        writer.update([entry(8, caption='it\'s a "horse"', attributes={"colour": "blau"})])


def test_rows_are_a_filter(stores: tuple[LocalStore, MilvusStore]) -> None:
    for store in stores:
        rows = store.nearest(unit_rows(1, seed=5), 4)[1][0]
        view = store.select(Filter(rows=tuple(rows.tolist()[1:])))
        assert len(view) == 3
        assert view.nearest(unit_rows(1, seed=5), 9)[1][0].tolist() == rows.tolist()[1:]


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
def test_the_same_neighbours_and_moments(
    stores: tuple[LocalStore, MilvusStore], filter: Filter
) -> None:
    embedded, milvus = (store.select(filter) for store in stores)
    assert len(embedded) == len(milvus)
    queries = unit_rows(3, seed=8)
    (a, _), (b, rows) = embedded.nearest(queries, 9), milvus.nearest(queries, 9)
    assert a.shape == b.shape and torch.allclose(a, b, atol=1e-5)
    row_of_path = {path: known.row for path, known in stores[0].images().items()}
    similarities, chosen = embedded.scan(queries)  # type: ignore[misc]
    for ranking, similarity in zip(rows, similarities, strict=True):
        scores = dict(zip(chosen.tolist(), similarity.tolist(), strict=True))
        assert_ranked([row_of_path[path] for path in paths(stores[1], ranking)], scores)
    if len(embedded):
        kept, own = embedded.moments(), milvus.moments()
        assert kept.count == own.count
        assert torch.allclose(kept.mean, own.mean, atol=1e-12)
        assert torch.allclose(kept.covariance, own.covariance, atol=1e-12)


def test_what_is_known_is_the_same(stores: tuple[LocalStore, MilvusStore]) -> None:
    known, other = (store.images() for store in stores)
    assert {p: k.entry for p, k in known.items()} == {p: k.entry for p, k in other.items()}
    assert all(
        stores[0].distinct_values(column) == stores[1].distinct_values(column) != []
        for column in ("label", "domain")
    )
    some = list(known)[::7]
    rows, others = (
        torch.tensor([known[p].row for p in some]),
        torch.tensor([other[p].row for p in some]),
    )
    assert torch.equal(stores[0].vectors(rows), stores[1].vectors(others))
    assert torch.equal(stores[0].words(rows), stores[1].words(others))  # type: ignore[arg-type]
    for digest in (entry(8).digest, entry(0).digest):
        assert paths(
            stores[0], torch.tensor(stores[0].rows_with_digest(digest), dtype=torch.long)
        ) == paths(stores[1], torch.tensor(stores[1].rows_with_digest(digest), dtype=torch.long))
    assert all(other[p].row == row_of(p) for p in some)


@pytest.mark.parametrize("filter", FILTERS)
def test_the_same_texts(stores: tuple[LocalStore, MilvusStore], filter: Filter) -> None:
    for words in (["c1"], ["sketches", "C2"], ["horses"], ["blau"], ["none"], ['"%_', "c"]):
        texts = []
        for store in stores:
            hits = store.select(filter).find_texts(words)
            assert hits is not None
            names = paths(store, hits.rows)
            fields = [(hits.texts[i], tuple(hits.words[i].tolist())) for i in hits.places.tolist()]
            texts.append(sorted(zip(names, fields, strict=True)))
        assert texts[0] == texts[1] and (filter or words[0] in ("none", '"%_') or texts[0])


def test_a_collection_of_an_earlier_version(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no field for texts: it is filled and read without them."""
    create = milvus_store._create

    def create_without_texts(client: Any, name: str, dim: int, fields: Any, *more: Any) -> None:
        fields = {key: value for key, value in fields.items() if key not in ("stems", "keywords")}
        create(client, name, dim, fields, *more)

    monkeypatch.setattr(milvus_store, "_create", create_without_texts)
    store = open_store(address_of(backend, "earlier", tmp_path), MADE)
    with store.writer() as writer:
        writer.put([entry(i) for i in range(3)], unit_rows(3), ids(3))
        writer.update([entry(1, caption="a horse")])
    assert store.find_texts(["horse"]) is None
    entries = sorted(image.entry for image in store.images().values())
    expected = [entry(0), entry(2), entry(1, caption="a horse")]
    assert entries == [image._replace(keywords="") for image in expected]


def test_the_sums_are_kept_and_made_again(stores: tuple[LocalStore, MilvusStore]) -> None:
    _, milvus = stores
    kept = milvus.stored_sums()
    assert kept is not None and kept.count == len(milvus)
    assert torch.allclose(kept.second, milvus.compute_sums().second, atol=1e-9)
    with pytest.raises(RuntimeError, match="failed"), milvus.writer() as writer:
        writer.put([entry(70)], unit_rows(1, seed=70), ids(1))
        raise RuntimeError("failed")
    assert milvus.stored_sums() is None
    assert milvus.moments().count == len(milvus)  # through all vectors
    with milvus.writer() as writer:
        writer.remove([entry(70).path])
    assert milvus.stored_sums() is not None and row_of(entry(70).path) not in milvus.by_row(
        [row_of(entry(70).path)], []
    )


def change_one(writer: StoreWriter, i: int, seed: int) -> None:
    writer.put([entry(i)], unit_rows(1, seed=seed), ids(1, i))
    writer.flush()


def check_sums(store: MilvusStore, stored: bool = True) -> None:
    values = store.vectors(torch.tensor([image.row for image in store.images().values()]))
    covariance = torch.cov(values.double().T)
    assert torch.allclose(store.moments().covariance, covariance, atol=1e-9)
    assert (store.stored_sums() is not None) == stored


def test_one_writer_keeps_the_sums_without_reading_all_vectors(
    stores: tuple[LocalStore, MilvusStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, milvus = stores
    before = milvus.images()[entry(42).path]
    with monkeypatch.context() as patch:
        patch.delattr(MilvusStore, "compute_sums")
        with milvus.writer() as writer:
            change_one(writer, 42, 542)
            change_one(writer, 43, 543)
            change_one(writer, 43, 643)
            writer.put([entry(80), entry(80)], unit_rows(2, seed=80), ids(2))
            writer.remove([entry(44).path])
    check_sums(milvus)
    rows = unit_rows(60)
    with milvus.writer() as writer:
        writer.put([entry(i) for i in (42, 43, 44)], rows[42:45], ids(60)[42:45])
        writer.remove([entry(80).path])
    check_sums(milvus)
    assert milvus.images()[entry(42).path] == before


def test_two_writers_leave_right_sums(stores: tuple[LocalStore, MilvusStore]) -> None:
    """As many images as before, other vectors: the count alone says nothing."""
    _, milvus = stores
    old = milvus.vectors(torch.tensor([row_of(entry(i).path) for i in (40, 41)]))
    with milvus.writer() as one:
        change_one(one, 41, 240)
        with milvus.writer() as other:  # one began before it and ends after it
            change_one(other, 40, 140)
        check_sums(milvus)
        change_one(one, 41, 141)
        check_sums(milvus, stored=False)
    check_sums(milvus)
    with milvus.writer() as one:
        change_one(one, 40, 240)
        with milvus.writer() as other:
            change_one(other, 41, 241)
            change_one(one, 40, 340)
        check_sums(milvus, stored=False)  # the last writer has not ended
        change_one(one, 40, 0)
        check_sums(milvus, stored=False)
    check_sums(milvus)
    with milvus.writer() as one:
        one.put([entry(40), entry(41)], old, ids(2, 40))
    check_sums(milvus)


def test_filters_read_their_vectors_once(
    stores: tuple[LocalStore, MilvusStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, milvus = stores
    view = milvus.select(Filter(classes=("c1",)))
    expected = view.moments()
    monkeypatch.delattr(MilvusStore, "compute_sums")
    assert milvus.select(Filter(classes=("c1",))).moments() is expected


def test_opened_again_by_its_address(stores: tuple[LocalStore, MilvusStore], address: str) -> None:
    found = find_store(address)
    assert found is not None and found.description == MADE and len(found) == len(stores[0])
    assert found.scan(unit_rows(1)) is None


def test_questions_have_the_same_answers(backend: str, tmp_path: Path) -> None:
    """Filled from files, and brought up to date; FreeDom and WeiCom over the stored words and moments."""
    photos = tmp_path / "photos"
    for k, colour in enumerate(COLOURS):
        for shape in SHAPES:
            (photos / shape).mkdir(parents=True, exist_ok=True)
            for i in range(3):
                picture(colour, shape, 100 * k + i).save(photos / shape / f"{colour}{i}.png")
    address = address_of(backend, "photos", tmp_path)
    both = (open_store(tmp_path / "ix", TOY_MADE), open_store(address, TOY_MADE))
    for store in both:
        model = CountingColourModel()
        update_index(store, read_folders(photos), model, word_memory(), source=str(photos))  # type: ignore[arg-type]
        assert model.embedded == len(store) == 24
    os.rename(photos / "square" / "red0.png", photos / "square" / "zero.png")
    os.remove(photos / "stripes" / "red0.png")
    picture("green", "stripes", 999).save(photos / "stripes" / "new.png")
    for store in both:
        model = CountingColourModel()
        report = update_index(store, read_folders(photos), model, word_memory(), source=str(photos))  # type: ignore[arg-type]
        assert (report.embedded, report.moved, report.removed, model.embedded) == (1, 1, 2, 1)
    mine = photos / "square" / "green1.png"
    for asked in (
        {"texts": ("red",)},
        {"images": (mine,)},
        {"images": (mine,), "texts": ("stripes",)},
        {"images": (mine,), "texts": ("stripes",), "options": {"weight": 0.4}},
        {
            "images": (mine,),
            "texts": ("stripes",),
            "filter": Filter(classes=("stripes",)),
            "method": "weicom",
        },
    ):
        one, other = (
            ask(SearchRequest(**asked), store, ColourModel(), word_memory()) for store in both
        )  # type: ignore[arg-type]
        assert one.method == other.method and one.why.keys() == other.why.keys()
        scores = [
            {result.entry.path: result.score for result in answer.results}
            for answer in (one, other)
        ]
        assert scores[0] == pytest.approx(
            scores[1], abs=1e-4
        )  # in an order that may differ where scores do not


@pytest.mark.parametrize("kind", ["hnsw", "diskann", "ivf_rabitq"])
def test_other_indexes_than_the_exact_one(backend: str, kind: str, tmp_path: Path) -> None:
    """With filters, too; Milvus Lite has one of them."""
    pytest.importorskip("faiss", reason="Milvus Lite needs faiss: install cenote[faiss]")
    address = f"{address_of(backend, kind, tmp_path)}?index={kind}"
    if backend == "lite" and kind != "hnsw":
        with pytest.raises(
            ValueError, match=rf"no index '{kind}' of Milvus Lite: use flat or hnsw"
        ):
            open_store(address, MADE)
        return
    store, x = open_store(address, MADE), unit_rows(60)
    with store.writer() as writer:
        writer.put([entry(i) for i in range(60)], x, ids(60))
    store = open_store(address)
    assert isinstance(store, MilvusStore)
    assert paths(store, store.nearest(x[[7]], 1)[1][0]) == [entry(7).path]
    view = store.select(Filter(classes=(entry(7).label or "",)))
    assert paths(view, view.nearest(x[[7]], 1)[1][0]) == [entry(7).path]
    description = store.client.describe_index(store.name, "vector")
    assert description["index_type"] == kind.upper()


@pytest.mark.parametrize(
    ("kind", "parameters", "search"),
    [
        ("FLAT", {}, {}),
        ("HNSW", {"M": 32, "efConstruction": 200}, {"ef": 80}),
        ("DISKANN", {}, {"search_list": 100}),
        (
            "IVF_RABITQ",
            {"nlist": 2048, "refine": True, "refine_type": "SQ8"},
            {"nprobe": 64, "refine_k": 4},
        ),
    ],
)
def test_what_a_server_is_told(
    kind: str, parameters: dict[str, object], search: dict[str, object]
) -> None:
    """No server runs here: what would be sent to it, by name."""
    address = MilvusAddress.parse(f"http://127.0.0.1:19530/a?index={kind.lower()}")
    assert address.index_type == kind
    assert INDEXES[kind].parameters == parameters and INDEXES[kind].search(40) == search


def test_an_unreachable_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus_store, "TIMEOUT", 0.5)
    with pytest.raises(OSError, match=r"Milvus at http://127\.0\.0\.1:9"):
        open_store("http://127.0.0.1:9/photos")


def test_wrong_addresses(tmp_path: Path) -> None:
    for wrong, value in (
        ("http://127.0.0.1:19530/a-b", "'http://127.0.0.1:19530/a-b'"),
        ("http://127.0.0.1:19530/a?index=ivf", "'ivf'"),
        (
            "http://me:secret@127.0.0.1:19530/a-b",
            "'http://127.0.0.1:19530/a-b'",
        ),  # without the password
    ):
        with pytest.raises(ValueError, match=value):
            open_store(wrong)


def test_of_milvus_lite(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.db.*`cenote index"):
        open_store(tmp_path / "deep" / "none.db")
    assert find_store(tmp_path / "none.db") is None and not os.listdir(
        tmp_path
    )  # looking makes nothing
    hold = "import sys; from pymilvus import MilvusClient; c = MilvusClient(sys.argv[1]); print(1, flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "held.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(OSError, match=r"held\.db"):
            open_store(tmp_path / "held.db")
        other.communicate(b"\n")
