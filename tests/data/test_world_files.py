"""A world in memory, on disk, and on disk after an accident is one and the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.cli.world import run
from cenote.data import Dataset, open_dataset
from cenote.data.world import World, read_settings, world, write_world
from cenote.data.world.workers import over

TINY = World.preset("tiny", images=24, domains=("photo", "sketch"))


def assert_same(one: Dataset, other: Dataset) -> None:
    assert len(one) == len(other) and one.classes == other.classes and one.splits == other.splits
    for i in range(len(one)):
        assert one[i] == other[i]
        assert (np.asarray(one.image(i)) == np.asarray(other.image(i))).all()
        first, second = one.mask(i), other.mask(i)
        assert first is not None and second is not None
        assert (first == second).all() and set(np.unique(first)) == {0, 1}


@pytest.fixture(scope="module")
def memory() -> Dataset:
    return world(TINY, progress=False)


def test_written_and_read_it_is_the_one_in_memory(tmp_path: Path, memory: Dataset) -> None:
    write_world(TINY, tmp_path / "w", progress=False)
    read = open_dataset(tmp_path / "w")
    assert not read.problems
    assert_same(read, memory)
    for i in range(len(read)):
        numbers = np.asarray(Image.open(tmp_path / "w" / read[i].masks[0]))
        assert (numbers == TINY.draw(i).mask).all()  # the file keeps the objects apart
    assert (tmp_path / "w" / "classes.txt").read_text().split() == read.classes
    assert read_settings(tmp_path / "w") == TINY.settings
    with Image.open(tmp_path / "w" / "sheet.png") as sheet:
        assert sheet.width > 1000 and len(sheet.getcolors(1 << 24) or ()) > 5000


def test_subclasses_and_collages_survive_the_way(tmp_path: Path) -> None:
    for name in ("hard", "collage"):
        small = World.preset(name, images=12, size=64)
        write_world(small, tmp_path / name, progress=False, sheet=False)
        assert_same(open_dataset(tmp_path / name), world(small, progress=False))


def test_the_presets_by_name() -> None:
    dataset = open_dataset("world/tiny")
    assert len(dataset) == 96 and len(dataset.classes) == 6 and dataset.name == "world/tiny"
    assert set(dataset.splits) == {"train", "val", "test"}
    assert dataset.image(0).size == (64, 64)
    assert {"colour", "size", "count", "texture", "shape", "density", "scene", "family"} <= set(dataset[0].attributes)
    with pytest.raises(ValueError, match="only a preset takes other settings"):
        world(TINY, seed=1)
    with pytest.raises(ValueError, match="no world 'world/smll'; did you mean 'small'"):
        open_dataset("world/smll")


def test_several_processes_draw_the_same_in_the_same_order() -> None:
    plan = World(images=400, size=32)
    serial, parallel = (list(over(shot, plan, jobs=jobs, progress=False)) for jobs in (1, 2))
    assert serial == parallel


def shot(plan: World, i: int) -> bytes:
    return plan.draw(i).pixels.tobytes()


def test_a_killed_run_goes_on_to_the_same_result(tmp_path: Path) -> None:
    arguments = "World.preset('tiny', images=400), Path(sys.argv[1]), progress=False, sheet=False"
    code = f"import sys; from pathlib import Path; from cenote.data.world import *; write_world({arguments})"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "w")], start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "w").glob("images/*/*.png"))) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)  # its own session, started above
    process.wait()
    assert not (tmp_path / "w" / "annotations.jsonl").exists()
    for file in tmp_path.glob("w/*/*/*.png"):
        if not file.name.startswith("."):
            Image.open(file).load()  # nothing half-written has a final name
    whole = World.preset("tiny", images=400)
    write_world(whole, tmp_path / "w", progress=False, sheet=False)
    assert_same(open_dataset(tmp_path / "w"), world(whole, progress=False))


def test_resuming_trusts_what_is_whole_and_redraws_what_is_not(tmp_path: Path, memory: Dataset) -> None:
    out = tmp_path / "w"
    write_world(World.of(TINY.settings), out, progress=False, sheet=False)
    listed = (out / "annotations.jsonl").read_bytes()
    kept, lost = (out / memory[i].image for i in range(2))
    before = kept.stat().st_mtime_ns
    lost.unlink()
    (out / memory[2].masks[0]).write_bytes(b"\x89PNG damaged")
    (out / "annotations.jsonl").unlink()
    write_world(TINY, out, progress=False, sheet=False)
    assert kept.stat().st_mtime_ns == before
    assert (out / "annotations.jsonl").read_bytes() == listed
    assert_same(open_dataset(out), memory)


def test_a_world_grows_and_nothing_else(tmp_path: Path, memory: Dataset) -> None:
    out = tmp_path / "w"
    part = World.preset("tiny", images=10, domains=("photo", "sketch"))
    write_world(part, out, progress=False, sheet=False)
    write_world(TINY, out, progress=False, sheet=False)
    assert_same(open_dataset(out), memory)
    with pytest.raises(ValueError, match="a world of 24 images, more than 10"):
        write_world(part, out)
    with pytest.raises(ValueError, match="another seed, bias: choose another folder"):
        write_world(World.preset("tiny", images=24, domains=("photo", "sketch"), seed=1, bias=0.5), out)
    settings = json.loads((out / "world.json").read_text())
    (out / "world.json").write_text(json.dumps({**settings, "version": 0}))
    with pytest.raises(ValueError, match="version 0"):
        write_world(TINY, out)
    (out / "world.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        write_world(TINY, out)


def test_it_does_not_write_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="not empty and holds no world"):
        write_world(TINY, tmp_path)
    assert os.listdir(tmp_path) == ["holiday.jpg"]
    with pytest.raises(ValueError, match="is a file"):
        write_world(TINY, tmp_path / "holiday.jpg")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "w"
    run(out, preset="tiny", images=12, classes=("cat", "bird"), labels="subclasses", domain=("dim",), jobs=1)
    assert "12 images of 10 classes" in capsys.readouterr().out
    dataset = open_dataset(out)
    assert dataset.classes[0] == "bird/collared" and dataset.domains.names == ["dim"]
    assert (out / "sheet.png").is_file()
    with pytest.raises(ValueError, match="no class 'dog'"):
        run(tmp_path / "v", classes=("dog",))
    assert not (tmp_path / "v").exists()
