"""Vectors in shards, and the index made of them: the same as by `cenote index`, after kills, too."""

import io
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch
from PIL import Image

pytest.importorskip("pyarrow", reason="needs: pip install 'cenote[parquet]'")

from cenote.data import shards as shard_readers
from cenote.search.index import EntryImages, open_images, update_index
from cenote.search.load import load_model, open_store
from cenote.search.local_store import LocalStore
from cenote.search.shard_workers import run_here, run_processes, run_ray
from cenote.search.store import Filter
from cenote.search.vector_shards import (
    ShardEmbedder,
    index_shards,
    pending,
    plan_shards,
    read_description,
)

COLOURS = ("red", "lime", "blue", "white", "black", "orange")


def photos(folder: Path) -> Path:
    """Two classes of three photographs each."""
    for i, colour in enumerate(COLOURS):
        path = folder / f"class{i % 2}" / f"{colour}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (48, 32 + i), colour).save(path)
    return folder


def tars(folder: Path, count: int = 3) -> Path:
    """Shards with two images each, and their classes."""
    folder.mkdir()
    for number in range(count):
        with tarfile.open(folder / f"{number:02d}.tar", "w") as tar:
            for i in range(2):
                file = io.BytesIO()
                Image.new("RGB", (40, 40), COLOURS[(2 * number + i) % 6]).save(file, "PNG")
                label = f"class{i}".encode()
                for suffix, content in (("png", file.getvalue()), ("cls", label)):
                    member = tarfile.TarInfo(f"{number}-{i}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return folder


def embed(data: str, folder: Path, size: int = 10_000) -> int:
    """Embed what is missing and return the number of shards."""
    missing = pending(plan_shards([data], size), folder)
    embedder = ShardEmbedder(folder, words="none")
    embedder.describe()
    for _, result in run_here(missing, embedder):
        assert not result.failed
    return len(missing)


def make_index(shards: Path, folder: Path) -> LocalStore:
    store = open_store(folder, read_description(shards))
    index_shards(store, shards)
    assert isinstance(store, LocalStore)
    return store


def test_the_index_is_that_of_cenote_index(tmp_path: Path) -> None:
    data, shards = photos(tmp_path / "photos"), tmp_path / "shards"
    assert embed(str(data), shards, size=4) == 2
    store = make_index(shards, tmp_path / "ix")
    direct = open_store(tmp_path / "direct", read_description(shards))
    update_index(direct, open_images([str(data)]), load_model(direct), source=str(data))
    images, expected = store.images(), direct.images()
    assert {path: image.entry for path, image in images.items()} == {
        path: image.entry for path, image in expected.items()
    }
    for path, image in images.items():
        vector = store.vectors(torch.tensor([image.row]))
        assert torch.allclose(vector, direct.vectors(torch.tensor([expected[path].row])), atol=2e-3)
    assert torch.allclose(store.moments().covariance, direct.moments().covariance, atol=1e-3)
    # The folder of images can be indexed again: nothing is embedded anew.
    report = update_index(store, open_images([str(data)]), load_model(store), source=str(data))
    assert (report.same, report.embedded) == (6, 0)


def test_only_missing_and_changed_shards_are_embedded(tmp_path: Path) -> None:
    data, shards = f"wds:{tars(tmp_path / 'tars')}", tmp_path / "shards"
    assert embed(data, shards) == 3
    assert embed(data, shards) == 0
    next(iter(sorted(shards.glob("01-*.parquet")))).unlink()
    assert embed(data, shards) == 1
    store = make_index(shards, tmp_path / "ix")
    assert len(store) == 6 and len(store.select(Filter(classes=("class1",)))) == 3
    assert index_shards(store, shards).same == 6
    with tarfile.open(tmp_path / "tars" / "02.tar", "a") as tar:
        photo = tmp_path / "new.png"
        Image.new("RGB", (9, 9), "purple").save(photo)
        tar.add(photo, "new.png")
    assert embed(data, shards) == 1
    assert index_shards(store, shards).added == 1
    entry = next(e.entry for p, e in store.images().items() if p.endswith("new.png"))
    picture = EntryImages()(entry)
    assert picture is not None and picture.size == (9, 9)
    with pytest.raises(ValueError, match="name another folder"):
        ShardEmbedder(shards).describe()  # with words


def test_damaged_shards_are_named(tmp_path: Path) -> None:
    folder = tars(tmp_path / "tars")
    (folder / "01.tar").write_bytes(b"not a tar file")
    with tarfile.open(folder / "03.tar", "w") as tar:
        member = tarfile.TarInfo("broken.png")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"123"))
    shards = tmp_path / "shards"
    embedder = ShardEmbedder(shards, words="none")
    embedder.describe()
    results = dict(run_here(plan_shards([f"wds:{folder}"]), embedder))
    failed = {task.name[:2]: result.failed for task, result in results.items() if result.failed}
    assert sorted(failed) == ["01", "03"]
    assert "01.tar" in failed["01"][0] and "03.tar" in failed["03"][0]
    assert {task.name[:2] for task in pending(plan_shards([f"wds:{folder}"]), shards)} == {
        "01",
        "03",
    }
    path = next(shards.glob("02-*.parquet"))
    path.write_bytes(path.read_bytes()[:-50])
    store = open_store(tmp_path / "ix", read_description(shards))
    report = index_shards(store, shards)
    assert len(report.failed) == 1 and path.name in report.failed[0] and len(store) == 2
    for content in (b"", b"no sums", next(shards.glob("00-*.npz")).read_bytes()[:-90]):
        next(shards.glob("00-*.npz")).write_bytes(content)
        assert len(index_shards(store, shards).failed) == 2


def test_a_truncated_parquet_file_of_images_is_named(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    folder, shards = tmp_path / "tables", tmp_path / "shards"
    folder.mkdir()
    for number in range(2):
        file = io.BytesIO()
        Image.new("RGB", (40, 40), COLOURS[number]).save(file, "PNG")
        table = pyarrow.table({"image": [file.getvalue()]})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet")
    broken = folder / "1.parquet"
    broken.write_bytes(broken.read_bytes()[:-50])
    embedder = ShardEmbedder(shards, words="none")
    results = [result for _, result in run_here(plan_shards([f"parquet:{folder}"]), embedder)]
    assert [result.images for result in results] == [1, 0]
    assert "1.parquet" in results[1].failed[0]


def test_a_row_without_an_image_is_not_tried_again(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file, shards = io.BytesIO(), tmp_path / "vectors"
    Image.new("RGB", (40, 40), "red").save(file, "PNG")
    rows = [{"bytes": file.getvalue(), "path": None}, {"bytes": None, "path": None}, None]
    parquet.write_table(arrow.table({"image": rows}), tmp_path / "images.parquet")
    shards.mkdir()
    tasks = plan_shards([f"parquet:{tmp_path}/images.parquet"])
    embedder = ShardEmbedder(shards, words="none")
    ((_, result),) = run_here(pending(tasks, shards), embedder)
    assert result.images == 1 and len(result.failed) == 2
    assert [f"images.parquet/{row}" in text for row, text in enumerate(result.failed, 1)] == [
        True
    ] * 2
    assert not pending(tasks, shards)

    data = open_images([f"parquet:{tmp_path}/images.parquet"])
    store = open_store(tmp_path / "ix", embedder.description)
    report = update_index(store, data, embedder.model)
    assert report.embedded == 1 and len(report.failed) == 2 and report.same == 0


def test_missing_and_half_read_shards_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"wds:{tars(tmp_path / 'tars')}/{{00..03}}.tar"
    shards, embedder = tmp_path / "shards", ShardEmbedder(tmp_path / "shards", words="none")
    read = shard_readers._Place.read

    def fail_once(place: shard_readers._Place) -> bytes:
        if place.file.name.endswith("01.tar"):
            raise OSError("the connection broke")
        return read(place)

    with monkeypatch.context() as patch:
        patch.setattr(shard_readers._Place, "read", fail_once)
        results = [result for _, result in run_here(plan_shards([data]), embedder)]
    assert [result.images for result in results] == [2, 0, 2, 0]
    assert "cannot be read" in results[1].failed[0] and "03.tar" in results[3].failed[0]
    missing = pending(plan_shards([data]), shards)
    assert [task.name[:2] for task in missing] == ["01", "03"]
    assert [result.images for _, result in run_here(missing, embedder)] == [2, 0]


def test_a_database_that_fails_is_not_a_damaged_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = tmp_path / "shards"
    embed(f"wds:{tars(tmp_path / 'tars')}", shards)
    store = open_store(tmp_path / "ix", read_description(shards))

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("cenote.search.local_store.LocalWriter.put", fail)
        with pytest.raises(OSError, match="no space left"):
            index_shards(store, shards)
    assert index_shards(store, shards).added == 6


def test_two_folders_have_blocks_of_their_own(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    for name in ("one", "two"):
        assert embed(str(photos(tmp_path / name)), shards) == 1
    assert len(make_index(shards, tmp_path / "ix")) == 12


def test_an_unreachable_cluster_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs: pip install 'cenote[ray]'")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    tasks = plan_shards([f"wds:{tars(tmp_path / 'tars')}"])
    with pytest.raises(ValueError, match=f"--ray {address} cannot be reached"):
        next(run_ray(tasks, partial(ShardEmbedder, tmp_path), address))


def test_milvus_takes_the_sums_of_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("milvus_lite", reason="needs: pip install 'cenote[milvus]'")
    from cenote.search.milvus_store import MilvusStore

    shards = tmp_path / "shards"
    embed(f"wds:{tars(tmp_path / 'tars')}", shards)
    store = open_store(tmp_path / "ix.db", read_description(shards))
    assert isinstance(store, MilvusStore)
    expected = make_index(shards, tmp_path / "ix").moments()
    with monkeypatch.context() as patch:
        patch.delattr(MilvusStore, "compute_sums")  # reads all vectors
        index_shards(store, shards)
    assert len(store) == 6
    assert torch.allclose(store.moments().covariance, expected.covariance, atol=1e-6)


@pytest.mark.slow
def test_processes_write_the_same_files(tmp_path: Path) -> None:
    data, one, two = f"wds:{tars(tmp_path / 'tars', 6)}", tmp_path / "one", tmp_path / "two"
    embed(data, one)
    make_embedder = partial(ShardEmbedder, two, None, "none")
    make_embedder().describe()
    results = run_processes(plan_shards([data]), make_embedder, 2)
    first = next(results)
    _kill("spawn_main")  # its shard is embedded by another process
    names = {first[0].name, *(task.name for task, _ in results)}
    assert len(names) == 6
    _assert_same_files(one, two)


@pytest.mark.slow
def test_ray_writes_the_same_files(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="needs: pip install 'cenote[ray]'")
    data, one, two = f"wds:{tars(tmp_path / 'tars', 6)}", tmp_path / "one", tmp_path / "two"
    embed(data, one)
    make_embedder = partial(ShardEmbedder, two, None, "none")
    make_embedder().describe()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        results = run_ray(plan_shards([data]), make_embedder, "local")
        next(results)
        _kill("_RayEmbedder")
        assert len(list(results)) == 5
    finally:
        ray.shutdown()
    _assert_same_files(one, two)


@pytest.mark.slow
def test_a_killed_driver_loses_nothing(tmp_path: Path) -> None:
    data, one, two = f"wds:{tars(tmp_path / 'tars', 6)}", tmp_path / "one", tmp_path / "two"
    run_command("embed", data, "-o", str(one))
    command = ["embed", data, "-o", str(two), "--processes", "2"]
    with subprocess.Popen([sys.executable, "-m", "cenote", *command]) as driver:
        while not list(two.glob("*.parquet")):
            assert driver.poll() is None
            time.sleep(0.01)
        workers = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
    _, alive = psutil.wait_procs(workers, 60)
    assert not alive
    run_command(*command)
    _assert_same_files(one, two)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ix", "ix.db"])
def test_a_killed_database_loses_nothing(tmp_path: Path, name: str) -> None:
    """The local index and Milvus Lite are libraries: their process is the one that writes."""
    pytest.importorskip("milvus_lite", reason="needs: pip install 'cenote[milvus]'")
    shards, index = tmp_path / "shards", str(tmp_path / name)
    embed(str(photos(tmp_path / "photos")), shards, size=1)
    expected = make_index(shards, tmp_path / "expected")
    with subprocess.Popen([sys.executable, "-c", WRITE_AND_WAIT, index, str(shards)]) as writer:
        while not (tmp_path / "written").exists():
            assert writer.poll() is None
            time.sleep(0.01)
        children = psutil.Process(writer.pid).children(recursive=True)
        for process in [*children, writer]:
            process.kill()
    store = open_store(index)
    assert 0 < len(store) < len(expected)
    report = index_shards(store, shards)
    assert report.added + report.same == len(store) == len(expected)
    assert not report.failed
    paths = expected.images()
    assert {p: i.entry for p, i in store.images().items()} == {p: i.entry for p, i in paths.items()}
    assert torch.allclose(store.moments().covariance, expected.moments().covariance, atol=1e-9)


# Writes three of the shards, then waits to be killed in the middle of its work.
WRITE_AND_WAIT = """
import sys, time
from pathlib import Path
from cenote.search import vector_shards
from cenote.search.load import open_store
index, shards = map(Path, sys.argv[1:])
store, calls = open_store(str(index), vector_shards.read_description(shards)), []
add_new = vector_shards._add_new
def add(store, writer, batch, report):
    add_new(store, writer, batch, report)
    writer.flush()
    calls.append(batch)
    if len(calls) == 3:
        shards.with_name("written").touch()
        time.sleep(1000)
vector_shards._add_new = add
vector_shards.index_shards(store, shards)
"""


def run_command(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "cenote", *arguments], check=True)


def _kill(name: str) -> None:
    """Kill one of the processes that this one has started."""
    processes = psutil.Process().children(recursive=True)
    victim = next(p for p in processes if name in " ".join(p.cmdline()))
    victim.kill()


def _assert_same_files(one: Path, two: Path) -> None:
    names = sorted(path.name for path in one.glob("*.parquet"))
    assert names == sorted(path.name for path in two.glob("*.parquet")) and names
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    shutil.rmtree(two)
