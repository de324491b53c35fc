"""A world is the same in memory, on disk, and on disk after a killed run."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cenote.cli.world import run
from cenote.data import Dataset, open_dataset
from cenote.data.synthetic import World, generate, read_settings, world, write_world

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


def test_subclasses_and_collages_survive_the_way(tmp_path: Path) -> None:
    for name in ("hard", "collage"):
        small = World.preset(name, images=12, size=64)
        write_world(small, tmp_path / name, progress=False)
        assert_same(open_dataset(tmp_path / name), world(small, progress=False))


def test_the_presets_by_name() -> None:
    dataset = open_dataset("world/tiny")
    assert len(dataset) == 96 and len(dataset.classes) == 6 and dataset.name == "world/tiny"
    assert set(dataset.splits) == {"train", "val", "test"}
    assert dataset.image(0).size == (64, 64)
    assert {"colour", "size", "count", "texture", "shape", "density", "scene", "family"} <= set(
        dataset[0].attributes
    )
    with pytest.raises(ValueError, match="seed"):
        world(TINY, seed=1)
    with pytest.raises(ValueError, match=r"'world/smll'.*'small'"):
        open_dataset("world/smll")


def test_several_processes_draw_the_same_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "MIN_IMAGES_PER_PROCESS", 10)
    plan = World(images=40, size=32)
    serial, parallel = (
        list(generate.for_each_image(shot, plan, 40, jobs, progress=False)) for jobs in (1, 2)
    )
    assert [pixels for pixels, _ in serial] == [pixels for pixels, _ in parallel]
    assert os.getpid() not in {process for _, process in parallel}


def shot(plan: World, i: int) -> tuple[bytes, int]:
    return plan.draw(i).pixels.tobytes(), os.getpid()


def test_a_killed_run_resumes_to_the_same_result(
    tmp_path: Path, memory: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child process is killed while it writes its 20th file."""
    save, saved = Image.Image.save, []

    def killed_at_the_20th(image: Image.Image, path: Path, **options: Any) -> None:
        saved.append(path)
        if len(saved) == 20:
            path.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        save(image, path, **options)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(Image.Image, "save", killed_at_the_20th)
            write_world(TINY, tmp_path / "w", jobs=1, progress=False)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "w" / "annotations.jsonl").exists()
    files = [file for file in tmp_path.glob("w/*/*/*.png") if not file.name.startswith(".")]
    assert len(files) == 19
    for file in files:
        Image.open(file).load()  # nothing half-written has a final name
    write_world(TINY, tmp_path / "w", progress=False)
    assert_same(open_dataset(tmp_path / "w"), memory)


def test_resuming_trusts_what_is_whole_and_redraws_what_is_not(
    tmp_path: Path, memory: Dataset
) -> None:
    out = tmp_path / "w"
    write_world(TINY, out, progress=False)
    listed = (out / "annotations.jsonl").read_bytes()
    kept, lost = (out / memory[i].image for i in range(2))
    before = kept.stat().st_mtime_ns
    lost.unlink()
    (out / memory[2].masks[0]).write_bytes(b"\x89PNG damaged")
    (out / "annotations.jsonl").unlink()
    write_world(TINY, out, progress=False)
    assert kept.stat().st_mtime_ns == before
    assert (out / "annotations.jsonl").read_bytes() == listed
    assert_same(open_dataset(out), memory)


def test_a_world_grows_and_nothing_else(tmp_path: Path, memory: Dataset) -> None:
    out = tmp_path / "w"
    part = World.preset("tiny", images=10, domains=("photo", "sketch"))
    write_world(part, out, progress=False)
    write_world(TINY, out, progress=False)
    assert_same(open_dataset(out), memory)
    with pytest.raises(ValueError, match=r"\b24\b.*\b10\b"):
        write_world(part, out)
    with pytest.raises(ValueError, match="seed, bias"):
        write_world(
            World.preset("tiny", images=24, domains=("photo", "sketch"), seed=1, bias=0.5), out
        )
    settings = json.loads((out / "world.json").read_text())
    (out / "world.json").write_text(json.dumps({**settings, "version": 0}))
    with pytest.raises(ValueError, match=r"world\.json.*\b0\b.*\b1\b"):
        write_world(TINY, out)
    for text in ("{", json.dumps({**settings, "weather": "rain"})):
        (out / "world.json").write_text(text)
        with pytest.raises(ValueError, match=r"world\.json.*damaged"):
            write_world(TINY, out)


def test_it_does_not_write_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
        write_world(TINY, tmp_path)
    assert os.listdir(tmp_path) == ["holiday.jpg"]
    with pytest.raises(ValueError, match=r"holiday\.jpg"):
        write_world(TINY, tmp_path / "holiday.jpg")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "w"
    run(
        out,
        preset="tiny",
        images=12,
        classes=("cat", "bird"),
        labels="subclasses",
        domain=("dim",),
        jobs=1,
    )
    out_text = capsys.readouterr().out
    assert "12" in out_text and "10" in out_text
    dataset = open_dataset(out)
    assert dataset.classes[0] == "bird/collared" and dataset.domains.names == ["dim"]
    with Image.open(out / "sheet.png") as sheet:
        assert sheet.width > 1000 and len(sheet.getcolors(1 << 24) or ()) > 5000
    with pytest.raises(ValueError, match=r"'dog'"):
        run(tmp_path / "v", classes=("dog",))
    assert not (tmp_path / "v").exists()
