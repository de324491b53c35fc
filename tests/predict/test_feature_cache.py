"""Features come back as they went in, whoever wrote them, and whenever a writer was killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cenote.data.digests import digest_of, digests
from cenote.predict.cache_folder import cache_folder
from cenote.predict.feature_cache import CachedFeatures, FeatureCache, Layout, check_space
from tests.synthetic import squares

LAYOUT = Layout((2, 3), 4, cls=True)


def row(number: int) -> np.ndarray:
    return np.full((7, 4), number, np.float32)


def name(number: int) -> bytes:
    return digest_of(str(number).encode())


def test_rows_come_back(tmp_path: Path) -> None:
    store = FeatureCache(tmp_path).open({"backbone": "b"}, LAYOUT)
    assert store.values().shape == (0, 7, 4) and store.find([name(1)]).tolist() == [-1]
    store.append([name(5), name(6), name(5)], np.stack([row(5), row(6), row(5)]))
    store.append([name(6), name(7)], np.stack([row(99), row(7)]))  # 6 is there already
    again = FeatureCache(tmp_path).open({"backbone": "b"}, LAYOUT)
    assert len(again) == 3
    places = again.find([name(7), name(8), name(6), name(5)])
    assert places[1] == -1
    assert again.values()[places[[0, 2, 3]], 0, 0].tolist() == [7, 6, 5]
    assert not again.values().flags.writeable


def test_other_settings_are_another_store(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    cache.open({"backbone": "b"}, LAYOUT).append([name(1)], row(1)[None])
    for made_by, layout in [
        ({"backbone": "c"}, LAYOUT),
        ({"backbone": "b"}, LAYOUT._replace(dtype="float32")),
    ]:
        assert len(cache.open(made_by, layout)) == 0
    assert len(cache.stores()) == 3 and sum(s["rows"] for s in cache.stores()) == 1


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    store = FeatureCache(tmp_path).open({}, LAYOUT)
    for factor in (1e6, np.nan):  # too large for float16
        with pytest.raises(ValueError, match="float16"):
            store.append([name(1)], row(1)[None] * factor)
    assert len(store) == 0


def test_space_is_checked_before_features_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ImageNet in ViT-B/16's features: 388 GB."""
    store = FeatureCache(tmp_path).open({"backbone": "vit"}, Layout((14, 14), 768, cls=True))
    images, disk = 1_281_167, shutil.disk_usage(tmp_path)
    sizes = (
        "the features of 1281167 images take 387.7 GB in .*, where 400.0 GB are free: "
        "use a sample that fits, sample/1200000:DATA"
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=400_000_000_000))
    with pytest.raises(OSError, match=sizes):
        check_space(store, images)
    assert not caplog.messages
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=4_000_000_000_000))
    check_space(store, images)
    check_space(store, 1000)
    (message,) = caplog.messages
    assert "387.7 GB" in message and "CENOTE_CACHE" in message


def test_space_is_checked_before_processes_share_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, disk = FeatureCache(tmp_path), shutil.disk_usage(tmp_path)
    store, shared = cache.open({"backbone": "vit"}, Layout((1, 1), 4, cls=False)), list[object]()

    def gathered(value: object) -> list[object]:
        shared.append(value)
        return [value]

    monkeypatch.setattr("cenote.predict.feature_cache.gathered", gathered)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=0))
    with pytest.raises(OSError, match="the features of 3 images"):
        cache.fill(store, squares(3), lambda image: image, lambda images: images, 2, 0)
    assert len(shared) == 1  # the digests of the images


def test_remains_of_a_dead_writer_are_overwritten(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    store = cache.open({}, LAYOUT)
    store.append([name(1)], row(1)[None])
    with open(store.folder / "rows.bin", "ab") as file:
        file.write(b"x" * (store.row_bytes + 5))
    with open(store.folder / "digests.bin", "ab") as file:
        file.write(b"y" * 7)
    again = cache.open({}, LAYOUT)
    assert len(again) == 1
    again.append([name(2)], row(2)[None])
    last = cache.open({}, LAYOUT)
    assert last.values()[last.find([name(1), name(2)]), 0, 0].tolist() == [1, 2]


WRITER = """
import sys, numpy as np
from pathlib import Path
from cenote.predict.feature_cache import FeatureCache, Layout
from cenote.data.digests import digest_of, digests
store = FeatureCache(Path(sys.argv[1])).open({}, Layout((2, 3), 4, True))
start, stop = map(int, sys.argv[2:])
for i in range(start, stop, 3):
    batch = range(i, min(i + 3, stop))
    store.append([digest_of(str(k).encode()) for k in batch], np.stack([np.full((7, 4), k % 2048) for k in batch]))
    print(i, flush=True)
"""


def check(folder: Path) -> int:
    store = FeatureCache(folder).open({}, LAYOUT)
    values, places = store.values(), store.find([name(k) for k in range(3000)])
    for k in np.flatnonzero(places >= 0):
        assert (values[places[k]] == k % 2048).all()
    assert (places >= 0).sum() == len(store)
    return len(store)


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    """Both write half of the numbers and a common part in the middle."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, *part]) for part in (("0", "200"), ("100", "300"))]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert check(tmp_path) == 300


def test_a_killed_writer_leaves_a_sound_store(tmp_path: Path) -> None:
    for round_ in range(3):
        command = [
            sys.executable,
            "-c",
            WRITER,
            str(tmp_path),
            str(round_ * 1000),
            str(round_ * 1000 + 1000),
        ]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None and writer.stdout.readline()
        time.sleep(0.02 * round_)
        writer.send_signal(signal.SIGKILL)
        writer.wait(60)
        assert check(tmp_path) > 0
    subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path), "0", "30"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert check(tmp_path) >= 30


def test_stores_are_listed_and_pruned(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    old, new = cache.open({"backbone": "old"}, LAYOUT), cache.open({"backbone": "new"}, LAYOUT)
    new.append([name(1)], row(1)[None])
    week_ago = time.time() - 7 * 86400
    os.utime(old.folder / "store.json", (week_ago, week_ago))
    first, second = cache.stores()
    assert (
        first["made_by"] == {"backbone": "new"}
        and first["rows"] == 1
        and first["bytes"] == 7 * 4 * 2
    )
    assert second["made_by"] == {"backbone": "old"} and json.loads(
        (old.folder / "store.json").read_text()
    )
    assert cache.prune(unused_days=3) == [old.folder.name] and not old.folder.exists()
    assert cache.prune([new.folder.name[:8]]) == [new.folder.name] and cache.stores() == []


def test_the_folder_is_the_users_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("CENOTE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "cenote" / "features"


def test_pruned_under_a_writer(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    first = cache.open({}, LAYOUT)
    first.append([name(k) for k in range(3)], np.stack([row(k) for k in range(3)]))
    cache.prune([first.folder.name])
    second = cache.open({}, LAYOUT)
    first.append([name(7)], row(7)[None])
    second.append([name(8)], row(8)[None])
    third = cache.open({}, LAYOUT)
    assert len(third) == 2 and third.find([name(0)]).tolist() == [-1]
    assert third.values()[third.find([name(7), name(8)]), 0, 0].tolist() == [7, 8]
    assert [p.name for p in tmp_path.iterdir()] == [third.folder.name]


def test_lost_rows_are_computed_again(tmp_path: Path) -> None:
    store = FeatureCache(tmp_path).open({}, LAYOUT)
    store.append([name(i) for i in range(6)], np.stack([row(i) for i in range(6)]))
    os.truncate(store.folder / "rows.bin", 3 * store.row_bytes + 1)
    again = FeatureCache(tmp_path).open({}, LAYOUT)
    assert again.find([name(i) for i in range(6)]).tolist() == [0, 1, 2, -1, -1, -1]
    again.append([name(5)], row(5)[None])
    again = FeatureCache(tmp_path).open({}, LAYOUT)
    assert again.find([name(3), name(5)]).tolist() == [-1, 3]
    assert (again.values()[3] == 5).all() and len(again) == 4


def test_damaged_features_name_the_remedy(tmp_path: Path) -> None:
    data = squares(4)
    store = FeatureCache(tmp_path).open({}, LAYOUT)
    names = digests(data)
    store.append([n or b"" for n in names], np.stack([row(i) for i in range(4)]))
    (store.folder / "rows.bin").write_bytes(b"\xff" * 4 * store.row_bytes)
    cached = CachedFeatures(data, store, store.find(names), [])
    with pytest.raises(
        ValueError, match=f"damaged: `cenote cache .* --prune {store.folder.name[:12]}"
    ):
        cached.features([0, 1])
