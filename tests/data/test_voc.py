"""VOC's layout: pixels counted from 1 become edges, flags are kept, and one bad file costs one image."""

from pathlib import Path

import pytest

from cenote.data import Box, LayoutError, open_dataset
from cenote.data.voc import read_annotation, read_voc
from tests.data.benchmarks.annotated_trees import annotation, image, text


def make(root: Path, names: str = "a b c d", suffix: str = ".jpg") -> None:
    for name in names.split():
        image(root / "JPEGImages" / f"{name}{suffix}")
        annotation(
            root / "Annotations" / f"{name}.xml",
            ("cat", (1, 1, 12, 8), 0, 1),
            ("dog", (3, 4, 3, 4), 1, 0),
        )


def test_boxes_and_flags(tmp_path: Path) -> None:
    make(tmp_path)
    dataset = read_voc(tmp_path)
    assert (
        dataset.name == tmp_path.name
        and dataset.classes == ["cat", "dog"]
        and dataset.splits == {None: 4}
    )
    whole, pixel = dataset[
        0
    ].boxes  # a box over the whole image covers it, one of a single pixel has the area 1
    assert whole == Box(0, 0, *dataset.image(0).size, "cat", difficult=False, truncated=True)
    assert pixel == Box(2, 3, 3, 4, "dog", difficult=True, truncated=False)


def test_lists_are_splits(tmp_path: Path) -> None:
    make(tmp_path)
    text(tmp_path / "ImageSets/Main/train.txt", "c", "a")
    text(tmp_path / "ImageSets/Main/val.txt", "b  1")
    text(tmp_path / "ImageSets/Main/trainval.txt", "c", "a", "b")
    assert [(r.image, r.split) for r in read_voc(tmp_path)] == [
        ("JPEGImages/c.jpg", "train"),
        ("JPEGImages/a.jpg", "train"),
        ("JPEGImages/b.jpg", "val"),
    ]
    assert read_voc(tmp_path, split_lists=["trainval", "test"]).splits == {"trainval": 3}
    with pytest.raises(
        LayoutError, match=r"ImageSets/Main/unseen\.txt.*Annotations/, ImageSets/, JPEGImages/"
    ):
        read_voc(tmp_path, split_lists=["unseen"])
    (tmp_path / "ImageSets/Main/train.txt").unlink()
    assert read_voc(tmp_path).splits == {"trainval": 3}


def test_a_folder_of_annotations_in_lower_case(tmp_path: Path) -> None:
    make(tmp_path, "a b")
    (tmp_path / "Annotations").rename(tmp_path / "annotations")
    (tmp_path / "JPEGImages").rename(tmp_path / "images")
    assert [len(record.boxes) for record in open_dataset(tmp_path)] == [2, 2]


def test_other_suffixes_and_folders(tmp_path: Path) -> None:
    make(tmp_path, "a b", ".png")
    (tmp_path / "JPEGImages").rename(tmp_path / "images")
    dataset = open_dataset(tmp_path)
    assert [r.image for r in dataset] == ["images/a.png", "images/b.png"] and dataset.image(
        1
    ).size == (12, 8)


BOMB = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
BOMB = f'<!DOCTYPE annotation [<!ENTITY e0 "lol">{BOMB}]><annotation><object><name>&e11;</name></object></annotation>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><annotation><object><name>&e;</name></object></annotation>'
BOX = "<bndbox><xmin>{}</xmin><ymin>1</ymin><xmax>{}</xmax><ymax>5</ymax></bndbox>"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"", ""),
        (b"<annotation><object>", ""),
        (b"\xff\xd8\xff\xe0 a photograph", ""),
        (BOMB.encode(), ""),
        (f'<?xml version="1.0" encoding="utf-16"?>{BOMB}'.encode("utf-16"), ""),
        (OUTSIDE.encode(), ""),
        (b"<annotation><object><name>cat</name></object></annotation>", "'cat'"),
        (
            f"<annotation><object><name>cat</name>{BOX.format(9, 3)}</object></annotation>".encode(),
            "xmin > xmax",
        ),
        (
            f"<annotation><object><name>cat</name>{BOX.format('nan', 3)}</object></annotation>".encode(),
            "nan",
        ),
        (
            f"<annotation><object><name>cat</name>{BOX.format('one', 3)}</object></annotation>".encode(),
            "one",
        ),
    ],
)
def test_a_bad_file_costs_one_image(content: bytes, value: str, tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "Annotations" / "b.xml"
    path.write_bytes(content)
    dataset = read_voc(tmp_path)
    assert [Path(r.image).stem for r in dataset] == ["a", "c", "d"]
    (problem,) = dataset.problems
    assert str(path) in problem and value in problem and "\n" not in problem and len(problem) < 400
    assert "lol" not in problem and "root:" not in problem  # nothing of an entity
    with pytest.raises(ValueError, match=r"b\.xml"):
        read_annotation(path)


def test_a_listed_image_that_is_not_there(tmp_path: Path) -> None:
    make(tmp_path)
    text(tmp_path / "ImageSets/Main/train.txt", "a", "ghost")
    dataset = read_voc(tmp_path)
    assert len(dataset) == 1 and "ghost" in dataset.problems[0]


def test_wrong_trees(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"Annotations/"):
        read_voc(tmp_path)
    (tmp_path / "Annotations").mkdir()
    with pytest.raises(LayoutError, match=r"JPEGImages/"):
        read_voc(tmp_path)
