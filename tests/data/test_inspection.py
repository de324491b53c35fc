"""Inspection of data with known faults: each is reported, and nothing else is."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cenote.data.inspection as inspection_module
from cenote.data import Box, Dataset, Record, RetrievalQuery, open_dataset, pack, read_folders
from cenote.data.inspection import (
    class_balance,
    inspect_dataset,
    report_text,
)
from tests.data.broken import BAD, GOOD, make_bad, make_good, noise
from tests.shared_data import shared_data


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Odd and broken files, one in two splits, one with two labels, one twice."""
    root = tmp_path_factory.mktemp("data") / "mess"
    make_good(root / "train" / "odd")
    make_bad(root / "train" / "bad")
    (root / "test" / "odd").mkdir(parents=True)
    shutil.copy(root / "train" / "odd" / "cmyk.jpg", root / "test" / "odd" / "copy.jpg")
    shutil.copy(root / "train" / "odd" / "grey.jpg", root / "train" / "bad" / "grey.jpg")
    shutil.copy(root / "train" / "odd" / "deep.png", root / "train" / "odd" / "deep2.png")
    return root


def test_every_broken_file_is_named_with_its_reason(mess: Path) -> None:
    found = inspect_dataset(read_folders(mess))
    assert [Path(fault.file).name for fault in found.broken] == sorted(BAD)
    for fault in found.broken:
        assert BAD[Path(fault.file).name] in fault.reason
        assert f"{fault.file}: {fault.reason}" in report_text(found)
    assert found.opened == 16 and found.readable == 11 and len(found.good) == 11


@pytest.mark.parametrize("name", GOOD)
def test_odd_files_are_read_and_told(mess: Path, name: str) -> None:
    found = inspect_dataset(read_folders(mess))
    assert f"train/odd/{name}" in found.odd[GOOD[name]]
    plain = Counter(file for files in found.odd.values() for file in files)
    assert plain["train/odd/turned.jpg"] == 1  # nothing else is odd about it


def test_copies_across_splits_and_with_two_labels_stand_out(mess: Path) -> None:
    found = inspect_dataset(read_folders(mess))
    assert [t.files for t in found.across_splits] == [["test/odd/copy.jpg", "train/odd/cmyk.jpg"]]
    assert [t.labels for t in found.two_labels] == [["bad", "odd"]]
    assert sorted(len(t.files) for t in found.twins) == [2, 2, 2]
    text = report_text(found)
    assert text.count("WARNING: 1 ") == 2 and "test/odd/copy.jpg" in text
    assert "train/odd/deep.png = train/odd/deep2.png" in text


def test_empty_files_are_no_copies_of_each_other(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jpg").touch()
    assert inspect_dataset(read_folders(tmp_path)).twins == []


def test_files_of_one_length_are_told_apart_by_their_content(tmp_path: Path) -> None:
    for i in range(4):
        noise(i % 3).save(
            tmp_path / f"{i}.bmp"
        )  # all of one length, the first and the last the same
    dataset = read_folders(tmp_path)
    assert len({dataset.path(i).stat().st_size for i in range(4)}) == 1
    (twins,) = inspect_dataset(dataset).twins
    assert twins.files == ["0.bmp", "3.bmp"]


def test_processes_change_nothing(tmp_path: Path) -> None:
    for i in range(90):
        noise(i % 80, (20, 16)).save(tmp_path / f"{i}.png")
    (tmp_path / "z.jpg").touch()
    dataset = read_folders(tmp_path)
    one, two = inspect_dataset(dataset, workers=0), inspect_dataset(dataset, workers=2)
    assert one.as_json() == two.as_json() and len(one.twins) == 10 and len(one.broken) == 1


def test_masks_and_boxes_are_held_against_the_image(tmp_path: Path) -> None:
    noise(0).save(tmp_path / "a.png")  # 48 x 32
    Image.new("L", (48, 32), 1).save(tmp_path / "right.png")
    Image.new("L", (32, 48), 1).save(tmp_path / "wrong.png")
    boxes = (Box(0, 0, 48.6, 32), Box(0, 0, 60, 32), Box(-9, 0, 10, 10), Box(5, 5, 5, 9))
    records = [
        Record("a.png", masks=("right.png",), boxes=boxes),
        Record("a.png", masks=("wrong.png",)),
        Record("a.png", masks=("gone.png",)),
    ]
    found = inspect_dataset(pack(records, tmp_path, "d"))
    reasons = [fault.reason for fault in found.box_faults]
    for reason, box in zip(reasons, ("0, 0, 60, 32", "-9, 0, 10, 10", "5, 5, 5, 9"), strict=True):
        assert box in reason
    assert ["48 x 32" in reason for reason in reasons] == [True, True, False]
    size, missing = (fault.reason for fault in found.mask_faults)
    assert "32 x 48" in size and "48 x 32" in size and "gone.png" in missing
    assert found.with_masks == 3 and found.boxes == 4 and found.with_boxes == 1


def test_balance_is_of_classes_that_have_any() -> None:
    found = class_balance(np.repeat([0, 1, 2, 4], [10, 1, 5, 3]), list("abcde"))
    assert found is not None
    assert (found.classes, found.least, found.median, found.most, found.ratio) == (4, 1, 4, 10, 10)
    assert found.smallest[0] == ("b", 1) and found.largest[0] == ("a", 10) and found.empty == ["d"]
    assert class_balance(np.array([-1, -1]), ["a"]) is None


def rows(**changes: object) -> Record:
    return Record("a.png")._replace(**changes)  # type: ignore[arg-type]


def test_counts_of_what_a_part_of_a_data_set_has(tmp_path: Path) -> None:
    """Oracle: the records themselves, counted one by one."""
    noise(0).save(tmp_path / "a.png")
    rng = np.random.default_rng(0)
    records = [
        rows(
            label=[None, "x", "y"][rng.integers(3)],
            split=["train", "test", None][rng.integers(3)],
            domain=[None, "photo", "sketch"][rng.integers(3)],
            attributes={"size": "big"} if rng.random() < 0.3 else {},
            caption="a thing" if rng.random() < 0.4 else None,
            boxes=tuple(
                Box(0, 0, 5, 5, [None, "x", "z"][rng.integers(3)]) for _ in range(rng.integers(3))
            ),
        )
        for _ in range(60)
    ]
    dataset = pack(records, tmp_path, "d")
    dataset.queries = [
        RetrievalQuery(0, {"targets": (1, 2)}, "more"),
        RetrievalQuery(3, {"targets": (4,)}),
    ]
    for part in (dataset, dataset.select(range(5, 40)), dataset.select([7, 3, 59])):
        found, own = inspect_dataset(part), list(part)
        assert found.images == len(own) and found.unlabelled == sum(r.label is None for r in own)
        assert {k: v.images for k, v in found.splits.items()} == Counter(
            r.split or "(no split)" for r in own
        )
        assert found.domains == Counter(r.domain for r in own if r.domain)
        assert found.attributes["size"].get("big", 0) == sum("size" in r.attributes for r in own)
        assert found.with_captions == sum(r.caption is not None for r in own)
        assert found.boxes == sum(len(r.boxes) for r in own) and found.with_boxes == sum(
            bool(r.boxes) for r in own
        )
        named = Counter(box.label for r in own for box in r.boxes if box.label)
        assert dict(found.box_balance.largest if found.box_balance else []) == named
    assert inspect_dataset(dataset).queries == {"queries": 2, "with text": 1, "targets": 3}


def test_classes_that_train_lacks_are_told(tmp_path: Path) -> None:
    noise(0).save(tmp_path / "a.png")
    records = [
        rows(label=label, split=split)
        for label, split in [("a", "train"), ("b", "test"), ("a", "test")]
    ]
    found = inspect_dataset(pack(records, tmp_path, "d"))
    assert found.splits["test"].not_in_train == 1 and found.splits["train"].not_in_train == 0
    (line,) = (line for line in report_text(found).splitlines() if "test 2 " in line)
    assert "2 classes" in line and "1 " in line.partition("2 classes")[2]


def test_a_large_set_is_sampled_the_same_each_time_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection_module, "MAX_OPENED", 10)
    for i in range(25):
        noise(i, (8, 8)).save(tmp_path / f"{i}.png")
    dataset = read_folders(tmp_path)
    found = inspect_dataset(dataset)
    assert found.opened == 10 and found.images == 25 and found.as_json()["sampled"]
    assert any(
        "10" in line and "25" in line and "--all" in line
        for line in report_text(found).splitlines()
    )
    assert found.good.tolist() == inspect_dataset(dataset).good.tolist() != list(range(10))
    assert (
        inspect_dataset(dataset, all=True).opened == 25
        and not inspect_dataset(dataset, all=True).as_json()["sampled"]
    )


class Memory:
    """Pixels that are in no file."""

    def image(self, row: int) -> Image.Image:
        return noise(min(row, 2))  # rows 2 and 3 are the same

    def mask(self, row: int) -> np.ndarray | None:
        return np.ones((32, 48), np.uint8) if row else None


def test_images_that_are_in_no_file(tmp_path: Path) -> None:
    dataset: Dataset = pack([Record("", "a") for _ in range(4)], tmp_path, "memory")
    dataset.pixels = Memory()
    found = inspect_dataset(dataset)
    assert found.readable == 4 and found.with_masks == 3 and found.formats == {}
    assert [t.files for t in found.twins] == [["image 2", "image 3"]]


def test_the_report_is_json_and_lists_are_short_in_text(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"{i}.jpg").touch()
    found = inspect_dataset(read_folders(tmp_path))
    report = json.loads(json.dumps(found.as_json()))
    assert len(report["broken"]) == 30 and "good" not in report and report["readable"] == 0
    lines = report_text(found).splitlines()
    assert sum(".jpg: " in line for line in lines) == 8
    assert any("22" in line and "--json" in line and "--out" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "images", "boxes", "masks", "domains", "classes"),
    [
        ("weizmann_horse", 164, 164, 164, 0, 0),
        ("coco", 128, 884, 0, 0, 74),
        pytest.param("pets", 740, 740, 740, 0, 37, marks=pytest.mark.slow),
        pytest.param("pacs", 840, 0, 0, 4, 7, marks=pytest.mark.slow),
    ],
)
def test_real_sets(
    name: str, images: int, boxes: int, masks: int, domains: int, classes: int
) -> None:
    found = inspect_dataset(open_dataset(shared_data(name)))
    assert (found.images, found.readable, found.boxes, found.with_masks) == (
        images,
        images,
        boxes,
        masks,
    )
    assert (
        len(found.domains) == domains and (found.balance.classes if found.balance else 0) == classes
    )
    assert not (found.broken or found.mask_faults or found.box_faults or found.problems)
