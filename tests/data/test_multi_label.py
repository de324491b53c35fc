"""Images with several classes: readers, the table, splits."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import Dataset, Record, open_dataset
from cenote.data.coco import read_coco
from cenote.data.dataset import pack
from cenote.data.inspection import inspect_dataset, report_text
from cenote.data.loading import load
from cenote.data.splits import class_splits, split
from cenote.data.voc import read_voc


def images(folder: Path, names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names.split():
        Image.new("RGB", (12, 8)).save(folder / f"{name}.jpg")


def classes(dataset: Dataset) -> list[tuple[str, ...] | None]:
    return [record.labels for record in dataset]


def test_table() -> None:
    records = [
        Record("a", labels=("dog", "cat", "dog")),
        Record("b", "cat"),
        Record("c", labels=()),
        Record("d"),
    ]
    dataset = pickle.loads(pickle.dumps(pack(records, Path(), "made")))
    assert dataset.multi_label and dataset.classes == ["cat", "dog"]
    assert classes(dataset) == [("dog", "cat"), ("cat",), (), None]
    assert dataset.labels.tolist() == [-1] * 4 and dataset[1].label is None
    assert dataset.labelled.tolist() == [True, True, True, False]
    assert dataset.class_matrix.tolist() == [[1, 1], [1, 0], [0, 0], [0, 0]]
    assert dataset.select([1, 0]).class_counts.tolist() == [2, 1]


def test_one_class_each_is_a_single_label_data_set() -> None:
    dataset = pack([Record("a", labels=("x",)), Record("b", "y"), Record("c")], Path(), "made")
    assert not dataset.multi_label and dataset.labels.tolist() == [0, 1, -1]
    assert dataset.class_matrix.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert [r.label for r in dataset] == ["x", "y", None] and classes(dataset) == [None] * 3


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("file,label\na.jpg,cat|dog\nb.jpg,cat\nc.jpg,\n", "l.csv"),
        ("file,labels\na.jpg,cat;dog\nb.jpg,cat\nc.jpg,\n", "l.csv"),
        ('file,Classes\na.jpg,"cat, dog"\nb.jpg,cat\nc.jpg,\n', "l.csv"),
        ('{"file": "a.jpg", "labels": ["cat", "dog"]}\n{"file": "b.jpg", "labels": "cat"}\n'
         '{"file": "c.jpg"}\n', "l.jsonl"),
        ("file,label,x1,y1,x2,y2\na.jpg,cat,0,0,1,1\na.jpg,dog,0,0,2,2\nb.jpg,cat,,,,\nc.jpg,,,,,\n",
         "l.csv"),
    ],
)  # fmt: skip
def test_lists(text: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    dataset = open_dataset(tmp_path / name)
    assert classes(dataset) == [("cat", "dog"), ("cat",), None] and not dataset.problems


def test_commas_in_the_name_of_one_class(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text('file,label\na.jpg,"tench, Tinca tinca"\nb.jpg,a;b\n')
    assert [r.label for r in open_dataset(tmp_path / "l.csv")] == ["tench, Tinca tinca", "a;b"]


def test_classes_of_boxes(tmp_path: Path) -> None:
    lines = [
        {"file": "a.jpg", "boxes": [["cat", 0, 0, 1, 1], ["dog", 0, 0, 2, 2], ["cat", 0, 0, 3, 3]]},
        {"file": "b.jpg", "boxes": []},
    ]
    (tmp_path / "l.json").write_text(json.dumps(lines))
    assert classes(open_dataset(tmp_path / "l.json")) == [("cat", "dog"), ()]


def test_coco(tmp_path: Path) -> None:
    images(tmp_path / "images", "a b c")
    boxes = [(1, 7), (1, 3), (1, 3), (2, 3)]
    content = {
        "images": [{"id": i, "file_name": f"{name}.jpg"} for i, name in enumerate("abc", 1)],
        "categories": [{"id": 3, "name": "person"}, {"id": 7, "name": "kite"}],
        "annotations": [
            {"id": i, "image_id": image, "category_id": category, "bbox": [0, 0, 3, 4]}
            for i, (image, category) in enumerate(boxes)
        ],
    }
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content))
    assert classes(read_coco(path)) == [("kite", "person"), ("person",), ()]
    path.write_text(json.dumps({**content, "annotations": []}))  # as of test images
    assert not read_coco(path).multi_label and not read_coco(path).labelled.any()


def test_voc(tmp_path: Path) -> None:
    images(tmp_path / "JPEGImages", "a b c")
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("a\nb\nc\n")
    corners = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox>"
    for name, labels in {"a": "cat dog cat", "b": "dog"}.items():
        objects = "".join(f"<object><name>{x}</name>{corners}</object>" for x in labels.split())
        (tmp_path / "Annotations" / f"{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    assert classes(read_voc(tmp_path)) == [("cat", "dog"), ("dog",), None]


def made(count: int) -> Dataset:
    """Return images with two common classes, one rare class, and none."""
    rng = np.random.default_rng(0)
    records = []
    for i in range(count):
        names = [name for name, share in zip("abz", (0.6, 0.4, 0.05), strict=True)
                 if rng.random() < share]  # fmt: skip
        records.append(Record(f"{i}.jpg", labels=tuple(names)))
    return pack(records, Path(), "made")


def test_a_share_of_every_class_is_held_out() -> None:
    dataset = made(400)
    train, val, test = split(dataset, quiet=True)
    assert test is None and len(train) + len(val) == 400
    share = val.class_counts / dataset.class_counts
    assert ((share > 0.15) & (share < 0.25)).all()
    assert 0.15 < (~val.class_matrix).all(1).sum() / (~dataset.class_matrix).all(1).sum() < 0.25
    again = split(dataset.select(np.arange(400)[::-1]), quiet=True)
    assert {r.image for r in again.val} == {r.image for r in val}
    with pytest.raises(ValueError, match="one class per image"):
        class_splits(dataset)


def test_batches_have_rows_of_the_matrix(tmp_path: Path) -> None:
    images(tmp_path, "a b c")
    labels = [("x", "y"), (), ("y",)]
    records = [Record(f"{n}.jpg", labels=x) for n, x in zip("abc", labels, strict=True)]
    dataset = pack(records, tmp_path, "made")
    (batch,) = load(dataset, lambda image: np.array(image), batch=3)
    assert batch.labels.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_report(tmp_path: Path) -> None:
    images(tmp_path, "a b")
    records = [Record("a.jpg", labels=("cat", "dog")), Record("b.jpg", labels=("dog",))]
    report = inspect_dataset(pack(records, tmp_path, "made"), workers=0)
    assert report.several_classes == 1 and report.classes_per_image == pytest.approx(1.5)
    assert report.unlabelled == 0 and report.balance is not None and report.balance.most == 2
    assert "several classes on 1 of 2 images: 1.5 per image" in report_text(report)
