"""What is written reads back the same: by our readers, COCO by COCO's own, YOLO by supervision's; or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.data import open_dataset, read_list
from cenote.data.coco import read_coco, read_runs
from cenote.data.images import read_mask
from cenote.data.voc import read_annotation
from cenote.data.write_boxes import ImageBoxes, open_writers, remove_earlier, run_lengths

BOXES = {
    "a": [(0, 0, 12, 8), (3, 2, 4, 3)],
    "b": [(2, 1, 7, 8)],
    "c": [],
}  # all of the image, one pixel; nothing
RED = Image.new("RGB", (12, 8), "red")
LABELS = {"a": "black cat", "b": "dog & <wolf>", "c": "dog & <wolf>"}


def found(root: Path, name: str, masks: bool = False) -> ImageBoxes:
    drawn = []
    for x0, y0, x1, y1 in BOXES[name] if masks else []:
        mask = np.zeros((8, 12), bool)
        mask[y0:y1, x0:x1] = True
        mask[y0, x0] = (y0, x0) != (0, 0)  # not every box is full
        drawn.append(mask)
    boxes = BOXES[name]
    scores = [0.25, 0.123456][: len(boxes)]
    return ImageBoxes(root / f"{name}.png", name, (12, 8), LABELS[name], boxes, scores, drawn)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in BOXES:
        Image.new("RGB", (12, 8)).save(folder / f"{name}.png")
    return folder


def write(photos: Path, out: Path, *formats: str, masks: bool = False) -> None:
    with open_writers(out, formats, masks, ["black cat", "dog & <wolf>"]) as writers:
        for name in BOXES:
            for writer in writers:
                writer.add(found(photos, name, masks))


def corners(boxes: object) -> list[tuple[float, ...]]:
    return [tuple(box[:4]) for box in boxes]  # type: ignore[attr-defined]


def test_voc(photos: Path) -> None:
    write(photos, photos, "voc")
    for name, boxes in BOXES.items():
        read = read_annotation(photos / "Annotations" / f"{name}.xml")
        assert corners(read) == boxes and all(box.label == LABELS[name] for box in read)
    dataset = open_dataset(photos)  # beside the photographs, it is a data set
    assert [corners(record.boxes) for record in dataset] == list(
        BOXES.values()
    ) and not dataset.problems


def test_csv(photos: Path, tmp_path: Path) -> None:
    write(photos, tmp_path / "out", "csv")
    dataset = read_list(tmp_path / "out" / "boxes.csv")
    assert [corners(record.boxes) for record in dataset] == list(
        BOXES.values()
    ) and not dataset.problems
    assert [record.label for record in dataset] == list(LABELS.values())
    assert dataset.image(2).size == (12, 8)  # found from the list's own folder
    assert dataset[0].attributes["score"] == "0.2500"


def test_coco(photos: Path, tmp_path: Path) -> None:
    write(photos, tmp_path / "out", "coco", masks=True)
    path = tmp_path / "out" / "boxes.json"
    dataset = read_coco(path)
    assert [corners(record.boxes) for record in dataset] == list(
        BOXES.values()
    ) and not dataset.problems
    assert dataset.classes == ["black cat", "dog & <wolf>"] and dataset.image(1).size == (12, 8)
    for i, name in enumerate(["a", "b"]):
        union = np.any(found(photos, name, masks=True).masks, axis=0)
        assert (dataset.mask(i) == union).all()


def test_coco_s_own_reader(photos: Path, tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco", reason="needs: pip install pycocotools")
    write(photos, tmp_path / "out", "coco", masks=True)
    read = coco.COCO(str(tmp_path / "out" / "boxes.json"))
    for number, name in enumerate(BOXES, 1):
        told = found(photos, name, masks=True)
        entries = read.loadAnns(read.getAnnIds(imgIds=[number]))
        assert [entry["bbox"] for entry in entries] == [
            [x0, y0, x1 - x0, y1 - y0] for x0, y0, x1, y1 in BOXES[name]
        ]
        for entry, mask in zip(entries, told.masks, strict=True):
            assert (read.annToMask(entry) == mask).all() and entry["area"] == mask.sum()
            assert read.cats[entry["category_id"]]["name"] == LABELS[name]
    plain = coco.COCO()  # results of a detector, against this file as the truth
    plain.dataset = read.dataset
    plain.createIndex()
    assert len(plain.loadRes(read.dataset["annotations"]).anns) == 3


def test_yolo(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(photos, out, "yolo")
    dataset = open_dataset(out / "yolo")
    records = {Path(record.image).stem: record for record in dataset}
    assert dataset.classes == ["black cat", "dog & <wolf>"] and not dataset.problems
    assert dataset.splits == {"train": 2, "val": 1} and dataset.image(0).size == (12, 8)
    for name, boxes in BOXES.items():
        assert corners(records[name].boxes) == boxes
        assert {box.label for box in records[name].boxes} <= {LABELS[name]}
    lines = (out / "yolo" / "labels" / "b.txt").read_text().splitlines()
    assert lines == ["1 0.375000 0.562500 0.416667 0.875000"]  # (2, 1, 7, 8) of 12 x 8
    assert len(open_dataset(out / "yolo" / "data.yaml")) == 3
    (out / "yolo").rename(tmp_path / "moved")  # it needs nothing else
    assert len(open_dataset(tmp_path / "moved")) == 3


def test_yolo_as_supervision_reads_it(photos: Path, tmp_path: Path) -> None:
    supervision = pytest.importorskip("supervision", reason="pip install 'cenote[supervision]'")
    write(photos, tmp_path, "yolo")
    folder = tmp_path / "yolo"
    names = [str(folder / name) for name in ("images", "labels", "data.yaml")]
    dataset = supervision.DetectionDataset.from_yolo(*names)
    assert dataset.classes == ["black cat", "dog & <wolf>"] and len(dataset) == 3
    for path, image, detections in dataset:
        name = Path(path).stem
        assert image.shape == (8, 12, 3)
        np.testing.assert_allclose(
            detections.xyxy, np.reshape(BOXES[name], (-1, 4)), rtol=0, atol=1e-4
        )
        assert {dataset.classes[i] for i in detections.class_id} <= {LABELS[name]}


def test_yolo_writes_images_that_are_not_files_and_removes_those_of_an_earlier_run(
    photos: Path, tmp_path: Path
) -> None:
    write(photos, tmp_path, "yolo")
    frame = ImageBoxes(
        tmp_path / "clip.gif", "d", (12, 8), None, [(0, 0, 6, 8)], [1.0], read=lambda: RED
    )
    with open_writers(tmp_path, ("yolo",)) as writers:
        writers[0].add(frame)
    (image,) = (tmp_path / "yolo" / "images").iterdir()
    assert image.name == "d.jpg" and Image.open(image).getpixel((3, 3))[0] > 200
    assert [path.name for path in (tmp_path / "yolo" / "labels").iterdir()] == ["d.txt"]
    assert (tmp_path / "yolo" / "val.txt").read_text() == ""
    remove_earlier(tmp_path, ["yolo"], ["d"])
    assert image.exists()
    write(photos, tmp_path, "csv")
    remove_earlier(tmp_path, ["csv"], ["a"])
    assert not (tmp_path / "yolo").exists() and (tmp_path / "boxes.csv").exists()


def test_yolo_has_each_class_once(tmp_path: Path) -> None:
    with open_writers(tmp_path, ("yolo",), classes=["crane", "owl", "crane", "dog"]) as writers:
        for label in ("dog", "crane"):
            box = [(0, 0, 6, 8)]
            entry = ImageBoxes(Path(f"{label}.gif"), label, (12, 8), label, box, [1.0])
            writers[0].add(entry._replace(read=lambda: RED))
    dataset = open_dataset(tmp_path / "yolo")
    assert dataset.classes == ["crane", "owl", "dog"]
    assert [record.boxes[0].label for record in dataset] == ["dog", "crane"]


def test_a_yolo_data_set_of_others_is_not_overwritten(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "yolo").mkdir()
    (tmp_path / "yolo" / "data.yaml").write_text("names: [mine]\n")
    with pytest.raises(ValueError, match=r"data\.yaml was not written by Cenote"):
        write(photos, tmp_path, "yolo")
    remove_earlier(tmp_path, ["csv"], [])
    assert (tmp_path / "yolo" / "data.yaml").read_text() == "names: [mine]\n"


def test_label_studio(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)  # its document root
    Image.new("RGB", (12, 8)).save(photos / "a b&c.png")
    out = tmp_path / "out"
    with open_writers(out, ("label-studio",)) as writers:
        for name in BOXES:
            writers[0].add(found(photos, name))
        writers[0].add(ImageBoxes(photos / "a b&c.png", "x", (12, 8), None, [(0, 0, 3, 8)], [0.5]))
    tasks = json.loads((out / "label-studio.json").read_text())
    for task, name in zip(tasks, BOXES, strict=False):
        assert task["data"] == {"image": f"/data/local-files/?d=photos/{name}.png"}
        (prediction,) = task["predictions"]
        boxes = []
        for result in prediction["result"]:
            assert (result["from_name"], result["to_name"]) == ("label", "image")
            assert (result["original_width"], result["original_height"]) == (12, 8)
            value = result["value"]
            assert value["rectanglelabels"] == [LABELS[name]]
            x, width = (value[key] * 12 / 100 for key in ("x", "width"))
            y, height = (value[key] * 8 / 100 for key in ("y", "height"))
            boxes.append(tuple(round(edge) for edge in (x, y, x + width, y + height)))
        assert boxes == BOXES[name]
        assert prediction["score"] == max([0.0, *(r["score"] for r in prediction["result"])])
    assert tasks[3]["data"]["image"] == "/data/local-files/?d=photos/a%20b%26c.png"
    assert tasks[3]["predictions"][0]["result"][0]["value"]["rectanglelabels"] == ["object"]


def test_masks(photos: Path, tmp_path: Path) -> None:
    write(photos, tmp_path, masks=True)
    assert not (tmp_path / "boxes.csv").exists() and not (tmp_path / "boxes.json").exists()
    for name in BOXES:
        masks = found(photos, name, masks=True).masks
        expected = np.any(masks, axis=0) if masks else np.zeros((8, 12), bool)
        assert (read_mask([tmp_path / "masks" / f"{name}.png"]) == expected).all()


def test_runs_are_undone_by_their_reader() -> None:
    draw = np.random.default_rng(0)
    cases = [draw.random((7, 5)) < share for share in (0.1, 0.5, 0.9)]
    for mask in [*cases, np.zeros((3, 4), bool), np.ones((3, 4), bool), np.eye(4, dtype=bool)]:
        found = run_lengths(mask)
        assert (read_runs(np.array(found), *mask.shape) == mask).all() and all(
            length > 0 for length in found[1:]
        )


def test_nothing_half_written(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        pytest.raises(KeyboardInterrupt),
        open_writers(out, ("coco", "csv"), classes=["black cat"]) as writers,
    ):
        for writer in writers:
            writer.add(found(photos, "a"))
        raise KeyboardInterrupt
    assert list(out.iterdir()) == []
    write(photos, out, "coco")
    before = (out / "boxes.json").read_text()
    with pytest.raises(RuntimeError), open_writers(out, ("coco",), classes=["black cat"]):
        raise RuntimeError
    assert (out / "boxes.json").read_text() == before and json.loads(before)["categories"]
    with pytest.raises(ValueError, match=r"'yol'.*coco, voc, csv"), open_writers(out, ("yol",)):
        pass


def test_two_runs_with_one_folder_do_not_mix(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with open_writers(out, ("coco", "csv"), classes=["black cat"]) as writers:
        for writer in writers:
            writer.add(found(photos, "a"))
        child = os.fork()
        if child == 0:
            try:
                write(photos, out, "coco", "csv")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert json.loads((out / "boxes.json").read_text())["images"]
    assert len(json.loads((out / "boxes.json").read_text())["images"]) == 1
    assert {path.name for path in out.iterdir()} == {"boxes.json", "boxes.csv"}


def test_what_a_killed_run_left_is_removed(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for number in (ended.pid, os.getppid(), 10**30):
        (out / f".boxes.{number}.json").write_text("{")
    (out / ".boxes.of-mine.csv").write_text("")
    write(photos, out, "coco", "csv")
    left = {path.name for path in out.iterdir()}
    assert left == {"boxes.json", "boxes.csv", f".boxes.{os.getppid()}.json", ".boxes.of-mine.csv"}
