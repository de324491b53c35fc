"""Updates of an index: new images are embedded, moved ones are recognised, broken ones are reported."""

import os
import shutil
import tarfile
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from PIL import Image

from cenote.data import open_dataset, read_folders
from cenote.search.index import IndexReport, open_images, source_of, update_index
from cenote.search.local_store import LocalStore
from cenote.search.store import ImageEntry, IndexDescription
from tests.toy_models import ColourModel, CountingColourModel, picture, word_memory

from .rankings import assert_ranked

MADE = IndexDescription(
    "toy", "toy 1", 6, words={"name": "w", "digest": word_memory().digest, "n": 3}
)


def photographs(folder: Path, count: int = 12) -> None:
    for i in range(count):
        path = folder / ("cats" if i % 2 else "dogs") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture("red" if i % 3 else "blue", "square", i).save(path)


def update(
    folder: Path, index: Path, model: ColourModel | None = None, **options: object
) -> IndexReport:
    data = (str(folder),)
    store = LocalStore.open(index, MADE)
    dataset = open_images(data, (index,))
    return update_index(
        store,
        dataset,
        model or ColourModel(),
        word_memory(),
        source=source_of(data),
        batch=5,
        **options,
    )  # type: ignore[arg-type]


def test_images_of_a_shard_that_were_exchanged_are_embedded_again(tmp_path: Path) -> None:
    def write(colour: str) -> None:
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            for i in range(3):
                picture(colour, "square", i).save(tmp_path / "image.png")
                tar.add(tmp_path / "image.png", f"{i}.png")

    store, model = LocalStore.open(tmp_path / "ix", MADE), ColourModel()
    for colour, embedded in (("red", 3), ("red", 0), ("blue", 3)):
        write(colour)
        data = (f"wds:{tmp_path / 'a.tar'}",)
        dataset = open_images(data, (tmp_path / "ix",))
        source = source_of(data)
        report = update_index(store, dataset, model, word_memory(), source=source)
        assert report.embedded == embedded


@pytest.mark.slow
def test_memory_does_not_grow_with_the_known_images(tmp_path: Path) -> None:
    """Of Python and numpy, beside the numbers of the rows, with ten times as many known images."""
    photographs(tmp_path / "photos")
    peaks = list[int]()
    for known in (3_000, 30_000):
        index = tmp_path / f"ix{known}"
        update(tmp_path / "photos", index)
        vectors = torch.nn.functional.normalize(torch.ones(known, 6), dim=1)
        with LocalStore.open(index).writer() as writer:
            entries = [ImageEntry(f"/elsewhere/{i:06d}.png", f"{i:032x}") for i in range(known)]
            writer.put(entries, vectors, torch.zeros(known, 3))
        del entries, vectors
        update(tmp_path / "photos", index)
        tracemalloc.start()
        assert update(tmp_path / "photos", index).same == 12
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 24 * 27_000


def counts(report: IndexReport) -> tuple[int, ...]:
    """embedded, moved, noted, same, removed, failed"""
    return (
        report.embedded,
        report.moved,
        report.noted,
        report.same,
        report.removed,
        len(report.failed),
    )


def check(folder: Path, index: Path) -> None:
    """Every image that can be read is there with its own vector, words and labels, and nothing else."""
    store, model = LocalStore.open(index), ColourModel()
    known = store.images()
    dataset = read_folders(folder)
    readable = {}
    for i in range(len(dataset)):
        try:
            readable[os.path.abspath(dataset.path(i))] = i, dataset.image(i)
        except ValueError:
            continue
    assert known.keys() == readable.keys()
    for path, (i, image) in readable.items():
        row, entry = known[path]
        vector = model.embed_images(model.transform()(image)[None])
        assert torch.allclose(store.vectors(torch.tensor([row])), vector, atol=1e-5)
        (words,) = store.words(torch.tensor([row]))  # type: ignore[misc]
        assert_ranked(words, word_memory().vectors.double() @ vector[0].double())
        state = os.stat(path)
        assert (entry.size, entry.time) == (state.st_size, state.st_mtime_ns)
        assert (entry.width, entry.height) == image.size and entry.label == dataset[i].label


def test_only_what_is_new_is_embedded(tmp_path: Path) -> None:
    folder, index = tmp_path / "photos", tmp_path / "ix"
    photographs(folder)
    assert counts(update(folder, index)) == (12, 0, 0, 0, 0, 0)
    check(folder, index)
    model = CountingColourModel()
    assert counts(update(folder, index, model)) == (0, 0, 0, 12, 0, 0) and model.embedded == 0
    photographs(folder, 14)  # all are written again, two are new
    assert counts(update(folder, index, model)) == (2, 0, 12, 0, 0, 0) and model.embedded == 2
    picture("green", "stripes", 77).save(folder / "dogs" / "0.png")
    os.remove(folder / "dogs" / "2.png")
    os.remove(folder / "cats" / "1.png")
    assert counts(update(folder, index, model)) == (1, 0, 0, 11, 2, 0)
    check(folder, index)


def test_moved_and_copied_files_are_not_embedded_again(tmp_path: Path) -> None:
    folder, index = tmp_path / "photos", tmp_path / "ix"
    photographs(folder)
    update(folder, index)
    model = CountingColourModel()
    os.rename(folder / "dogs" / "0.png", folder / "cats" / "zero.png")  # and with it its class
    shutil.copy(folder / "cats" / "1.png", folder / "dogs" / "one.png")
    assert counts(update(folder, index, model)) == (0, 2, 0, 11, 1, 0) and model.embedded == 0
    check(folder, index)
    # Two change places, and a third takes the contents that one of them had.
    a, b = folder / "cats" / "1.png", folder / "cats" / "3.png"
    os.rename(a, tmp_path / "a")
    os.rename(b, a)
    os.rename(tmp_path / "a", b)
    assert counts(update(folder, index, model))[1] == 2 and model.embedded == 0
    check(folder, index)
    picture("green", "stripes", 500).save(folder / "dogs" / "new.png")
    shutil.copy(folder / "dogs" / "new.png", folder / "dogs" / "twin.png")
    assert counts(update(folder, index, model))[:2] == (1, 1)
    check(folder, index)


def test_broken_images_are_told_and_tried_again(tmp_path: Path) -> None:
    folder, index = tmp_path / "photos", tmp_path / "ix"
    photographs(folder)
    good = (folder / "dogs" / "0.png").read_bytes()
    (folder / "dogs" / "broken.png").write_bytes(good[:200])
    report = update(folder, index)
    assert counts(report) == (12, 0, 0, 0, 0, 1) and "broken.png: " in report.failed[0]
    assert counts(update(folder, index)) == (0, 0, 0, 12, 0, 1)
    (folder / "dogs" / "broken.png").write_bytes(good)
    assert counts(update(folder, index)) == (0, 1, 0, 12, 0, 0)
    (folder / "dogs" / "4.png").write_bytes(b"no image")  # one that was good leaves
    os.utime(folder / "dogs" / "4.png", (2e9, 2e9))
    assert counts(update(folder, index)) == (0, 0, 0, 12, 1, 1)
    check(folder, index)


def test_several_folders_in_one_index(tmp_path: Path) -> None:
    photographs(tmp_path / "a", 4)
    photographs(tmp_path / "b", 6)
    update(tmp_path / "a", tmp_path / "ix")
    assert counts(update(tmp_path / "b", tmp_path / "ix")) == (2, 4, 0, 0, 0, 0)
    os.remove(tmp_path / "a" / "dogs" / "0.png")
    assert counts(update(tmp_path / "b", tmp_path / "ix")) == (0, 0, 0, 6, 0, 0)
    assert counts(update(tmp_path / "a", tmp_path / "ix")) == (0, 0, 0, 3, 1, 0)
    # A folder that is gone altogether, or not mounted, takes nothing along.
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(ValueError, match=str(tmp_path / "a")):
        update(tmp_path / "a", tmp_path / "ix")
    assert len(LocalStore.open(tmp_path / "ix")) == 9


def update_all(data: list[str], index: Path, **options: object) -> IndexReport:
    """As `cenote index` does with several DATA: what is not there is told, the rest is done."""
    missing = list[str]()
    store, dataset = LocalStore.open(index, MADE), open_images(data, (index,), missing.append)
    return update_index(
        store, dataset, ColourModel(), word_memory(), source=source_of(data), **options
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("disk", ["disk", "home/disk", "disk/**/*.png"])
def test_a_disk_that_is_not_mounted_takes_nothing_along(
    tmp_path: Path, disk: str, there: bool
) -> None:
    """Its folder is gone, or there and empty; also inside another."""
    home, away = tmp_path / "home", tmp_path / disk.removesuffix("/**/*.png")
    photographs(home, 6)
    for i in range(3):
        away.mkdir(exist_ok=True)
        picture("green", "stripes", i).save(away / f"{i}.png")
    data = [str(home), str(tmp_path / disk)]
    assert counts(update_all(data, tmp_path / "ix")) == (9, 0, 0, 0, 0, 0)
    os.remove(home / "dogs" / "0.png")
    os.rename(away, tmp_path / "elsewhere")
    if there:
        away.mkdir()
    assert counts(update_all(data, tmp_path / "ix")) == (0, 0, 0, 5, 1, 0)
    if there:
        away.rmdir()
    os.rename(tmp_path / "elsewhere", away)
    os.remove(away / "1.png")
    assert counts(update_all(data, tmp_path / "ix")) == (0, 0, 0, 7, 1, 0)


def test_files_named_one_by_one(tmp_path: Path) -> None:
    """As a shell does with p/*.png: each is its own source, and those that are gone leave though none names them."""
    photographs(tmp_path / "p", 6)
    photographs(tmp_path / "q", 3)

    def named(folder: str) -> list[str]:
        return sorted(map(str, (tmp_path / folder).glob("*/*.png")))

    for folder in "pq":
        update_all(named(folder), tmp_path / "ix")
    known = LocalStore.open(tmp_path / "ix").images()
    assert len(known) == 9 and all(old.entry.source == path for path, old in known.items())
    os.remove(tmp_path / "p" / "cats" / "1.png")
    os.remove(tmp_path / "q" / "cats" / "1.png")
    assert counts(update_all(named("p")[1:], tmp_path / "ix")) == (
        0,
        0,
        0,
        4,
        1,
        0,
    )  # the first is there, and stays
    assert counts(update_all([str(tmp_path / "p")], tmp_path / "ix")) == (
        0,
        0,
        5,
        0,
        0,
        0,
    )  # with labels now
    assert {str(p) for p in LocalStore.open(tmp_path / "ix").images()} == {
        *named("p"),
        str(tmp_path / "q/cats/1.png"),
    } | {*named("q")}


def test_another_job_between_opening_and_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are numbered anew by whoever compacts: they are read when nobody else can."""
    folder, index = tmp_path / "photos", tmp_path / "ix"
    photographs(folder)
    store = LocalStore.open(index, MADE)
    update(folder, index)
    model, data = CountingColourModel(), open_images([str(folder)])
    report = update_index(store, data, model, word_memory(), source=str(folder))  # type: ignore[arg-type]
    assert counts(report) == (0, 0, 0, 12, 0, 0) and model.embedded == 0
    for i in range(6):
        os.remove(folder / ("cats" if i % 2 else "dogs") / f"{i}.png")
    update(folder, index)
    assert LocalStore.open(index).db.generation == 1
    for name in ("a", "b"):  # the second is found by looking again
        picture("green", "stripes", 500).save(folder / "cats" / f"{name}.png")
    for i in (7, 9, 11):
        shutil.copy(folder / "cats" / f"{i}.png", folder / "dogs" / f"z{i}.png")
    monkeypatch.setattr("cenote.search.index.CHUNK", 2)
    update_index(
        store, open_images([str(folder)]), ColourModel(), word_memory(), source=str(folder)
    )  # type: ignore[arg-type]
    check(folder, index)


def test_the_contents_of_what_broke_turn_up_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is gone by then."""
    folder, index = tmp_path / "photos", tmp_path / "ix"
    photographs(folder)
    update(folder, index)
    os.rename(folder / "cats" / "1.png", folder / "dogs" / "z.png")
    (folder / "cats" / "1.png").write_bytes(b"no image")
    monkeypatch.setattr("cenote.search.index.CHUNK", 1)
    report = update(folder, index)
    assert len(report.failed) == 1 and report.embedded + report.moved == 1
    check(folder, index)


def test_the_index_may_lie_among_the_images(tmp_path: Path) -> None:
    photographs(tmp_path, 4)
    (tmp_path / "ix").mkdir()
    update(tmp_path, tmp_path / "ix")
    Image.new("RGB", (9, 9)).save(tmp_path / "ix" / "sheet.jpg")
    assert counts(update(tmp_path, tmp_path / "ix")) == (0, 0, 0, 4, 0, 0)


class Stopping(CountingColourModel):
    """Ctrl-C, or a power cut, after so many images."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def embed_images(self, pixels: torch.Tensor) -> torch.Tensor:
        if self.embedded >= self.after:
            raise KeyboardInterrupt
        return super().embed_images(pixels)


def test_interrupted_and_taken_up(tmp_path: Path) -> None:
    folder, index = tmp_path / "photos", tmp_path / "ix"
    photographs(folder, 23)
    with pytest.raises(KeyboardInterrupt):
        update(folder, index, Stopping(10))
    assert len(LocalStore.open(index)) == 10
    seen = list[tuple[int, int]]()
    assert counts(update(folder, index, progress=lambda *done: seen.append(done))) == (
        13,
        0,
        0,
        10,
        0,
        0,
    )
    assert seen == [(0, 13), (5, 13), (10, 13), (13, 13)]
    check(folder, index)


def test_a_list_with_labels_and_without_files(tmp_path: Path) -> None:
    photographs(tmp_path / "photos", 4)
    table = tmp_path / "list.csv"
    table.write_text(
        "file,class,domain\nphotos/dogs/0.png,dog,photo\nphotos/cats/1.png,cat,photo\nphotos/gone.png,x,y\n"
    )
    store = LocalStore.open(tmp_path / "ix", MADE)
    for domain, wanted in (("photo", (2, 0, 0, 0, 0, 1)), ("sketch", (0, 0, 2, 0, 0, 1))):
        table.write_text(table.read_text().replace("photo\n", f"{domain}\n"))
        report = update_index(
            store, open_dataset(table), ColourModel(), word_memory(), source=str(table)
        )  # type: ignore[arg-type]
        assert counts(report) == wanted and len(report.failed) == 1
        assert report.failed[0].startswith(f"{tmp_path / 'photos/gone.png'}: ")
        entries = {Path(p).name: k.entry for p, k in store.images().items()}
        assert {e.domain for e in entries.values()} == {domain} and entries["1.png"].label == "cat"


def test_dates_are_the_cameras(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x8769] = {36867: "2019:05:17 18:30:00"}
    (tmp_path / "p").mkdir()
    picture("red", "square", 1).save(tmp_path / "p" / "camera.jpg", exif=exif)
    picture("red", "square", 2).save(tmp_path / "p" / "plain.jpg")
    os.utime(tmp_path / "p" / "plain.jpg", (5000, 5000))
    store = LocalStore.open(tmp_path / "ix", MADE)
    update_index(store, open_images([str(tmp_path / "p")]), ColourModel(), word_memory())  # type: ignore[arg-type]
    dates = {Path(path).name: known.entry.date for path, known in store.images().items()}
    date = time.localtime(dates["camera.jpg"])
    assert (date.tm_year, date.tm_mon, date.tm_mday, date.tm_hour) == (2019, 5, 17, 18) and dates[
        "plain.jpg"
    ] == 5000


def test_images_that_are_no_files(tmp_path: Path) -> None:
    world = open_dataset("world/tiny")
    store = LocalStore.open(tmp_path / "ix", MADE)
    some = world.select(range(5))
    assert counts(update_index(store, some, ColourModel(), word_memory(), source="world/tiny")) == (
        5,
        0,
        0,
        0,
        0,
        0,
    )  # type: ignore[arg-type]
    assert counts(update_index(store, some, ColourModel(), word_memory(), source="world/tiny")) == (
        0,
        0,
        0,
        5,
        0,
        0,
    )  # type: ignore[arg-type]
    entry = store.entries(torch.tensor([0]))[0]
    assert entry.path == f"{world.name}:{world[0].image}" and (entry.label, entry.domain) == (
        world[0].label,
        world[0].domain,
    )


def test_another_model_is_refused(tmp_path: Path) -> None:
    photographs(tmp_path / "photos", 2)
    update(tmp_path / "photos", tmp_path / "ix")
    other = ColourModel()
    other.name, other.identity = "other", "other 1"
    with pytest.raises(ValueError, match=r"\bix\b.*'toy'.*'other'"):
        update(tmp_path / "photos", tmp_path / "ix", other)


def test_frames_of_videos_are_images(tmp_path: Path) -> None:
    av = pytest.importorskip("av", reason="needs: pip install 'cenote[video]'")
    folder, index = tmp_path / "photos", tmp_path / "index"
    photographs(folder, 2)
    (folder / "broken.mp4").write_bytes(b"no video")
    with av.open(str(folder / "clip.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=1)
        stream.width = stream.height = 64
        for colour in ("red", "blue"):
            frame = av.VideoFrame.from_image(Image.new("RGB", (64, 64), colour))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    report = update(folder, index)
    assert counts(report) == (4, 0, 0, 0, 0, 1) and "broken.mp4: damaged" in report.failed[0]
    assert counts(update(folder, index)) == (0, 0, 0, 4, 0, 1)
    (folder / "clip.mp4").unlink()
    assert counts(update(folder, index)) == (0, 0, 0, 2, 2, 1)
