"""Class folders, with and without splits, as they lie on people's disks."""

import os
import re
from pathlib import Path

import pytest
from PIL import Image

from cenote.data import LayoutError, Record, check_layout, open_dataset


def photographs(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(root / name)


def test_folders_are_classes(tmp_path: Path) -> None:
    photographs(tmp_path, "b/2.jpg", "b/10.PNG", "a/deep/1.jpg", ".hidden/x.jpg", "a/.x.jpg")
    (tmp_path / "b" / "notes.txt").write_text("x")
    dataset = open_dataset(tmp_path)
    assert list(dataset) == [
        Record("a/deep/1.jpg", "a"),
        Record("b/10.PNG", "b"),
        Record("b/2.jpg", "b"),
    ]
    assert dataset.image(1).size == (8, 6) and dataset.name == tmp_path.name


def test_splits(tmp_path: Path) -> None:
    photographs(tmp_path, "train/a/1.jpg", "Validation/a/1.jpg", "test/b/1.jpg")
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"train": 1, "val": 1, "test": 1} and dataset.classes == ["a", "b"]
    assert open_dataset(tmp_path, "val")[0] == Record("Validation/a/1.jpg", "a", "val")


def test_what_lies_beside_splits_is_left_out(tmp_path: Path) -> None:
    photographs(tmp_path, "train/a/1.jpg", "val/a/1.jpg", "masks/1.png")
    dataset = open_dataset(tmp_path)
    assert dataset.classes == ["a"] and dataset.splits == {"train": 1, "val": 1}
    (problem,) = dataset.problems
    assert str(tmp_path / "masks") in problem and "train, val" in problem


def test_a_list_of_class_names_is_no_list_of_images(tmp_path: Path) -> None:
    photographs(tmp_path, "cat/1.jpg")
    (tmp_path / "labels.txt").write_text("cat\n")
    assert open_dataset(tmp_path).classes == ["cat"]


def test_a_class_may_be_called_test(tmp_path: Path) -> None:
    photographs(tmp_path, "test/1.jpg", "cat/1.jpg")
    assert open_dataset(tmp_path).classes == ["cat", "test"]


def test_loose_images_have_no_class(tmp_path: Path) -> None:
    photographs(tmp_path, "1.jpg", "cat/1.jpg")
    assert [r.label for r in open_dataset(tmp_path)] == [None, "cat"]


def test_an_empty_class_is_said(tmp_path: Path) -> None:
    photographs(tmp_path, "cat/1.jpg")
    (tmp_path / "dog").mkdir()
    (problem,) = open_dataset(tmp_path).problems
    assert str(tmp_path / "dog") in problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything: run as another user")
def test_a_locked_class_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    photographs(tmp_path, "cat/1.jpg", "dog/1.jpg")
    (tmp_path / "cat").chmod(0)
    dataset = open_dataset(tmp_path)
    assert [r.label for r in dataset] == ["dog"]
    (problem,) = dataset.problems
    assert str(tmp_path / "cat") in problem


def test_links_are_followed_but_no_circle(tmp_path: Path) -> None:
    photographs(tmp_path / "data", "cat/1.jpg")
    photographs(tmp_path / "other", "2.jpg")
    (tmp_path / "data" / "cat" / "more").symlink_to(tmp_path / "other")
    (tmp_path / "data" / "cat" / "again").symlink_to(tmp_path / "data")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "data" / "cat")
    assert [r.image for r in open_dataset(tmp_path / "data")] == ["cat/1.jpg", "cat/more/2.jpg"]


def test_what_is_not_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.bin").write_bytes(b"x")
    for data, values in {
        "empty": "empty",
        "gone": "gone.*NAME:FOLDER",
        "x.bin": r"x\.bin.*\.csv",
    }.items():
        with pytest.raises(LayoutError, match=values):
            open_dataset(tmp_path / data)
    with pytest.raises(ValueError, match=r"'cup'.*'cub'"):
        open_dataset("cup:somewhere")


def test_expect_says_what_was_expected_and_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b.txt").write_text("")
    check_layout(tmp_path, "it", "a/", "b.txt", "c.txt|b.txt")
    with pytest.raises(LayoutError) as caught:
        check_layout(tmp_path, "Such", "a/", "b.txt/", "c.txt|d.txt")
    expected, missing, existing = (
        ["a/", "b.txt/", "c.txt", "d.txt"],
        ["b.txt/", "c.txt", "d.txt"],
        ["a/", "b.txt"],
    )
    path, _, message = str(caught.value).partition(" Such")
    assert path.startswith(str(tmp_path))
    assert re.findall(r"\b[a-d](?:\.txt)?/|\b[a-d]\.txt", message) == expected + missing + existing
