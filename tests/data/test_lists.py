"""A list says what it says under any of the usual names; a bad line is named and the others are read."""

import json
from pathlib import Path

import pytest

from cenote.data import Box, Record, open_dataset, read_list
from tests.shared_data import shared_data


def write(folder: Path, text: str, name: str = "list.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text, name",
    [
        ("file,label,split,x1,y1,x2,y2\na.jpg,cat,train,1,2,3,4\nb.jpg,dog,,,,,\n", "l.csv"),
        ("\ufeffPath;Class;Subset;xmin;ymin;xmax;ymax\r\na.jpg; cat ;train;1;2;3;4\r\nb.jpg;dog;;;;;\r\n", "l.csv"),
        ('filename\tcategory\tset\tbbox\na.jpg\tcat\ttrain\t"[1, 2, 3, 4]"\nb.jpg\tdog\t\t\n', "l.tsv"),
        ('{"image": "a.jpg", "label": "cat", "split": "train", "boxes": [[1, 2, 3, 4]]}\n\n'
         '{"image": "b.jpg", "label": "dog"}\n', "l.jsonl"),
        ('[{"file": "a.jpg", "class": "cat", "split": "train", "box": [1, 2, 3, 4]},'
         ' {"file": "b.jpg", "class": "dog"}]', "l.json"),
    ],
    ids=["csv", "semicolons, BOM, CRLF", "tsv", "jsonl", "json"],
)  # fmt: skip
def test_one_list_in_many_spellings(tmp_path: Path, text: str, name: str) -> None:
    dataset = open_dataset(write(tmp_path, text, name))
    assert list(dataset) == [
        Record("a.jpg", "cat", "train", (Box(1, 2, 3, 4),)),
        Record("b.jpg", "dog"),
    ]
    assert dataset.root == tmp_path and not dataset.problems


def test_plain_text(tmp_path: Path) -> None:
    dataset = open_dataset(write(tmp_path, "a b.jpg 10\nc.jpg 9\nmy cat.png\n", "l.txt"))
    assert list(dataset) == [Record("a b.jpg", "10"), Record("c.jpg", "9"), Record("my cat.png")]
    assert dataset.classes == ["9", "10"]


def test_everything_a_line_can_say(tmp_path: Path) -> None:
    row = {
        "file": "a.jpg", "label": "cat", "split": "val", "boxes": [["ear", 1, 1, 2, 2], ["eye", 3, 3, 4, 4]],
        "mask": "m.png", "ignore": "i.png", "domain": "photo", "caption": "a cat", "attributes": {"count": 2},
        "weather": "rain", "image_id": 17,
    }  # fmt: skip
    (record,) = open_dataset(write(tmp_path, json.dumps(row), "l.jsonl"))
    boxes = (Box(1, 1, 2, 2, "ear"), Box(3, 3, 4, 4, "eye"))
    attributes = {"count": "2", "weather": "rain"}
    assert record == Record(
        "a.jpg", "cat", "val", boxes, ("m.png",), "i.png", "photo", attributes, "a cat"
    )


def test_lines_of_one_image_are_one_record(tmp_path: Path) -> None:
    text = "file,label,x1,y1,x2,y2,mask\na,cat,0,0,1,1,m\na,cat,2,2,3,3,n\nb,dog,0,0,1,1,\na,cat,,,,,\n"
    records = list(open_dataset(write(tmp_path, text)))
    assert [r.image for r in records] == ["a", "b", "a"]
    assert len(records[0].boxes) == 2 and records[0].masks == ("m", "n")


def test_boxes_of_several_classes_in_one_image(tmp_path: Path) -> None:
    text = "file,label,x1,y1,x2,y2\na,cat,0,0,1,1\na,dog,2,2,3,3\na,cat,4,4,5,5\na,cow,,,,\n"
    dataset = open_dataset(path := write(tmp_path, text))
    (record,) = dataset
    assert [box.label for box in record.boxes] == ["cat", "dog", "cat"]
    assert record.labels == ("cat", "dog") and dataset.classes == ["cat", "dog"]
    (problem,) = dataset.problems
    assert f"{path}, line 5" in problem and "'cat'" in problem and "'cow'" in problem


def test_splits_have_one_name(tmp_path: Path) -> None:
    text = "file,label,split\na,x,Training\nb,x,VALID\nc,x,Test\nd,x,mine\n"
    assert open_dataset(write(tmp_path, text)).splits == {
        "train": 1,
        "val": 1,
        "test": 1,
        "mine": 1,
    }


def test_numbers_order_the_names(tmp_path: Path) -> None:
    text = "file,class_id,class_name\na,2,ant\nb,0,zebra\nc,10,bee\n"
    assert open_dataset(write(tmp_path, text)).classes == ["zebra", "ant", "bee"]
    lines = [
        {"file": "a", "class_id": 1, "class_name": "cat"},
        {"file": "b", "class_id": 0, "class_name": "zebra"},
    ]
    assert open_dataset(write(tmp_path, json.dumps(lines), "l.json")).classes == ["zebra", "cat"]


def test_boxes_by_prefix(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "file,head_x1,head_y1,head_x2,head_y2,body_x1,body_y1,body_x2,body_y2\na,1,1,2,2,0,0,9,9\n",
    )
    assert read_list(path)[0].boxes == (Box(1, 1, 2, 2),) and not read_list(path)[0].attributes


def test_bad_lines_are_named_and_left_out(tmp_path: Path) -> None:
    lines = [
        "a,cat,3,0,1,1",
        ",dog,,,,",
        "b,cat,nan,0,1,1",
        "c,cat,one,0,1,1",
        "d,cat,0,0,1,1,7",
        "e,cat,,,,",
    ]
    text = "\n".join(["file,label,x1,y1,x2,y2", *lines])
    dataset = open_dataset(path := write(tmp_path, text))
    assert [r.image for r in dataset] == ["e"]
    for number, value, problem in zip(
        range(2, 7), ["3, 0, 1, 1", "", "nan, 0, 1, 1", "'one'", ""], dataset.problems, strict=True
    ):
        assert f"{path}, line {number}: " in problem and value in problem
    dataset = open_dataset(
        path := write(
            tmp_path, '{"file": "a"}\n{"file": \n[1]\n{"file": "b", "box": 3}\n', "l.jsonl"
        )
    )
    assert [r.image for r in dataset] == ["a"] and len(dataset.problems) == 3
    assert all(f"{path}, line {n}: " in p for n, p in zip((2, 3, 4), dataset.problems, strict=True))


@pytest.mark.parametrize(
    "text, name, values",
    [
        ("", "l.csv", r"l\.csv"),
        ("file,label\n", "l.csv", r"l\.csv"),
        ("name,label\na,b\n", "l.csv", r"l\.csv.*\bfile, path, .*\bname, label"),
        ("file,label\n,cat\n", "l.csv", r"l\.csv, line 2\b"),
        ("[1, 2", "l.json", r"l\.json"),
        ('["a"]', "l.json", r"l\.json"),
        ("x", "l.parquet", r"l\.parquet.*\.csv"),
    ],
)
def test_a_useless_list_is_refused(tmp_path: Path, text: str, name: str, values: str) -> None:
    with pytest.raises(ValueError, match=values):
        open_dataset(write(tmp_path, text, name))


def test_an_identifier_is_no_attribute(tmp_path: Path) -> None:
    text = "file,uuid,kind\n" + "".join(f"{i}.jpg,u{i},{i % 3}\n" for i in range(10_100))
    dataset = open_dataset(write(tmp_path, text))
    (problem,) = dataset.problems
    assert str(tmp_path / "list.csv") in problem and "'uuid'" in problem and "10000" in problem
    assert dataset.attribute("kind").names == ["0", "1", "2"]


@pytest.mark.parametrize(
    "name, images, classes, boxes, masks, domains",
    [
        ("cub", 1200, 100, 1200, 0, 0),
        ("pets", 740, 37, 740, 740, 0),
        ("pacs", 840, 7, 0, 0, 4),
        ("weizmann_horse", 164, 0, 164, 164, 0),
        ("coco", 128, 74, 884, 0, 0),
        ("rsscn7", 350, 7, 0, 0, 0),
    ],
)
def test_real_sets(
    name: str, images: int, classes: int, boxes: int, masks: int, domains: int
) -> None:
    dataset = open_dataset(shared_data(name))
    assert (len(dataset), len(dataset.classes), dataset.problems) == (images, classes, [])
    assert sum(len(r.boxes) for r in dataset) == boxes and int(dataset.has_masks.sum()) == masks
    assert len(dataset.domains.names) == domains
    for i in range(0, images, images // 5):
        width, height = dataset.image(i).size
        assert all(box.x2 <= width + 1 and box.y2 <= height + 1 for box in dataset[i].boxes)
        mask = dataset.mask(i)
        assert (mask is None) == (masks == 0) and (mask is None or mask.shape == (height, width))
