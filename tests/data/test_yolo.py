"""YOLO data sets of others: layouts, polygons, and labels that cannot be read."""

from pathlib import Path

import pytest
from PIL import Image

from cenote.data import LayoutError, open_dataset


def image(path: Path, orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (200, 100)).save(path, exif=exif)


def labels(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_folders_by_split(tmp_path: Path) -> None:
    """Roboflow's layout, whose paths begin with ../; polygons, confidences, a turned photograph."""
    for name in ("train/images/a.jpg", "train/images/b.jpg", "valid/images/c.jpg"):
        image(tmp_path / name, orientation=6 if name.endswith("c.jpg") else 1)
    labels(
        tmp_path / "train/labels/a.txt",
        "1 0.5 0.5 0.5 0.2\n\n0 0.1 0.2 0.3 0.2 0.3 0.8\n0 0.5 0.5 1 1 0.9\n",
    )
    labels(tmp_path / "valid/labels/c.txt", "0 0.5 0.5 1 0.5\n")
    (tmp_path / "data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnames: [cat, dog]\n"
    )
    dataset = open_dataset(tmp_path)
    assert dataset.splits == {"train": 2, "val": 1} and dataset.classes == ["cat", "dog"]
    assert [(*box[:4], box.label) for box in dataset[0].boxes] == [
        (50, 40, 150, 60, "dog"),
        (20, 20, 60, 80, "cat"),
        (0, 0, 200, 100, "cat"),
    ]
    assert dataset[0].labels == ("dog", "cat") and dataset[1].labels == ()
    assert dataset[2].boxes[0][:4] == (0, 50, 100, 150) and dataset.image(2).size == (100, 200)
    (problem,) = dataset.problems
    assert "test" in problem and "no such" in problem


def test_wrong_labels_and_images_are_reported(tmp_path: Path) -> None:
    for name in "abcd":
        image(tmp_path / "images" / f"{name}.jpg")
    for name, line in (("a", "0 0.5 0.5 1 1"), ("b", "7 0.5 0.5 1 1"), ("c", "0 a b c d")):
        labels(tmp_path / "labels" / f"{name}.txt", f"{line}\n")
    (tmp_path / "images" / "d.jpg").write_bytes(b"no image")
    labels(tmp_path / "labels" / "d.txt", "0 0.5 0.5 1 1\n")
    (tmp_path / "dataset.yaml").write_text("path: /moved\ntrain: images\nnames: {0: cat}\n")
    dataset = open_dataset(tmp_path)
    assert [record.image for record in dataset] == ["images/a.jpg"]
    first, second, third = dataset.problems
    assert "b.txt: line 1" in first and "c.txt: line 1" in second and "d.jpg" in third
    (tmp_path / "dataset.yaml").write_text("names: {0: cat}\n")
    with pytest.raises(LayoutError, match="no train"):
        open_dataset(tmp_path)
    (tmp_path / "dataset.yaml").write_text("train: images\n")
    with pytest.raises(ValueError, match=r"dataset\.yaml cannot be read.*names"):
        open_dataset(tmp_path)


def test_keypoints_follow_the_box(tmp_path: Path) -> None:
    image(tmp_path / "images" / "a.jpg")
    labels(tmp_path / "labels" / "a.txt", "0 0.5 0.5 0.5 0.2 0.1 0.1 2 0.9 0.9 1\n")
    (tmp_path / "data.yaml").write_text("train: images\nkpt_shape: [2, 3]\nnames: {0: person}\n")
    assert open_dataset(tmp_path)[0].boxes[0][:4] == (50, 40, 150, 60)
