"""Readers of published sets with boxes, masks or queries: what the release says, and no other tree is taken."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cenote.data import Dataset, LayoutError, RetrievalQuery
from cenote.data.benchmarks import find_benchmark
from cenote.data.record import Box
from tests.data.benchmarks import annotated_trees as trees

VOC = "VOCdevkit/VOC2007"
BIRDS = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
SUBSET = (12, 13, 15, 16, 17)


class Case(NamedTuple):
    make: Callable[[Path], None]
    splits: dict[str | None, int]
    classes: list[str] | int
    needed: list[str]  # without any of these the tree is refused
    first: dict[str, Any]  # of the first record
    masks: dict[int, list[int]] = {}  # noqa: RUF012  # position: values of its first row
    queries: list[RetrievalQuery] = []  # noqa: RUF012


VOC_BOXES = (Box(0, 0, 12, 8, "dog", truncated=True), Box(2, 1, 6, 7, "person", difficult=True))
COCO_BOXES = (
    Box(2, 1, 6, 5, "toothbrush"),
    Box(6.5, 2, 9.5, 4.5, "person"),
    Box(0, 0, 2, 8, "person", crowd=True),
)
COCO_ROW = [255, 255] + [0] * 10
WSOL_BOXES = (Box(1, 2, 9, 7), Box(3, 3, 5, 5))
LANDMARKS = [
    RetrievalQuery(3, {"easy": (0,), "hard": (1,), "junk": (2,)}, box=(1.5, 2, 9, 7)),
    RetrievalQuery(4, {"easy": (), "hard": (2,), "junk": ()}, box=(0, 0, 5, 5)),
]
CASES = {
    "voc07": Case(
        trees.voc07,
        {"test": 1, "trainval": 2},
        20,
        [f"{VOC}/Annotations", f"{VOC}/JPEGImages", f"{VOC}/ImageSets/Main/trainval.txt"],
        {"image": "JPEGImages/000005.jpg", "split": "trainval", "label": None, "boxes": VOC_BOXES},
    ),
    "voc12": Case(
        trees.voc12,
        {"trainval": 2},
        20,
        ["Annotations", "JPEGImages", "ImageSets/Main/trainval.txt"],
        {"image": "JPEGImages/2007_000027.jpg", "boxes": (Box(1.5, 0, 5, 5, "tvmonitor"),)},
    ),
    "voc12-segmentation": Case(
        trees.voc12,
        {"train": 1, "val": 1},
        21,
        [
            "SegmentationClass",
            "JPEGImages",
            "ImageSets/Segmentation/train.txt",
            "ImageSets/Segmentation/val.txt",
        ],
        {"image": "JPEGImages/2007_000027.jpg", "split": "train", "boxes": ()},
        masks={1: [0] * 4 + [20] * 4 + [255] * 4},
    ),
    "coco": Case(
        trees.coco,
        {"train": 2, "val": 1},
        ["person", "toothbrush"],
        [
            "train2017",
            "val2017",
            "annotations/instances_train2017.json",
            "annotations/instances_val2017.json",
        ],
        {
            "image": "train2017/000000000009.jpg",
            "split": "train",
            "boxes": COCO_BOXES,
            "caption": "one 9\none 9",
        },
        masks={0: COCO_ROW, 2: COCO_ROW},
    ),
    "coco20k": Case(
        trees.coco20k,
        {"train": 2},
        ["person", "toothbrush"],
        ["images/train2014", "annotations/instances_train2014.json", "coco_20k_filenames.txt"],
        {"image": "COCO_train2014_000000000030.jpg", "boxes": COCO_BOXES},
        masks={0: COCO_ROW},
    ),
    "ade20k": Case(
        trees.ade20k,
        {"train": 1, "val": 1},
        ["wall", "screen, edifice", "screen, sky"],
        [
            *(
                f"ADEChallengeData2016/{k}/{s}"
                for k in ("images", "annotations")
                for s in ("training", "validation")
            ),
            "ADEChallengeData2016/objectInfo150.txt",
        ],
        {
            "image": "images/training/ADE_train_00000001.jpg",
            "label": None,
            "split": "train",
            "attributes": {"scene": "airport_terminal"},
        },
        masks={0: [255] * 4 + [0] * 4 + [2] * 4},
    ),
    "wsol-cub": Case(
        trees.wsol_cub,
        {"train": 2, "val": 2, "test": 2},
        BIRDS,
        ["metadata/CUB", "dataset/CUB", "metadata/CUB/test/class_labels.txt"],
        {
            "image": f"dataset/CUB/{BIRDS[1]}/train.jpg",
            "label": BIRDS[1],
            "split": "train",
            "boxes": (),
        },
    ),
    "wsol-ilsvrc": Case(
        trees.wsol_ilsvrc,
        {"val": 2, "test": 2},
        ["2", "10"],
        ["metadata/ILSVRC", "dataset/ILSVRC", "metadata/ILSVRC/val/class_labels.txt"],
        {
            "image": "dataset/ILSVRC/val2/10/0.jpeg",
            "label": "10",
            "split": "val",
            "boxes": WSOL_BOXES,
        },
    ),
    "wsol": Case(
        trees.wsol_own,
        {"test": 2},
        ["a", "b"],
        ["metadata", "images", "metadata/test/image_ids.txt", "metadata/test/class_labels.txt"],
        {"image": "images/a/1.png", "label": "a", "split": "test", "boxes": WSOL_BOXES},
    ),
    "openimages": Case(
        trees.openimages,
        {"train": 2, "val": 2, "test": 2},
        ["Football", "Book, big"],
        ["metadata/OpenImages", "dataset/OpenImages", "metadata/OpenImages/test/class_labels.txt"],
        {
            "image": "dataset/OpenImages/train/01226z/0.jpg",
            "label": "Football",
            "split": "train",
            "masks": (),
        },
        masks={2: [1, 1, 255, 0]},
    ),
    "roxford": Case(
        lambda root: trees.landmarks(root, "roxford5k"),
        {"gallery": 3, "query": 2},
        [],
        ["jpg", "gnd_roxford5k.pkl"],
        {"image": "jpg/all_souls_000001.jpg", "split": "gallery"},
        queries=LANDMARKS,
    ),
    "rparis": Case(
        lambda root: trees.landmarks(root, "rparis6k"),
        {"gallery": 3, "query": 2},
        [],
        ["jpg", "gnd_rparis6k.pkl"],
        {"image": "jpg/all_souls_000001.jpg", "split": "gallery"},
        queries=LANDMARKS,
    ),
    "patternnet": Case(
        trees.patterncom,
        {None: 6},
        ["airplane", "bridge", "overpass"],
        ["images"],
        {"image": "images/airplane/airplane001.jpg", "label": "airplane", "attributes": {}},
    ),
    "patterncom": Case(
        trees.patterncom,
        {None: 6},
        ["airplane", "bridge", "overpass"],
        ["images", "PatternCom/color.csv", "PatternCom/shape.csv"],
        {
            "image": "images/airplane/airplane001.jpg",
            "attributes": {"color": "white", "context": "water"},
        },
        queries=[
            RetrievalQuery(0, {"targets": (1,)}, "purple & white", group="color"),
            RetrievalQuery(1, {"targets": (0,)}, "white", group="color"),
            RetrievalQuery(
                2, {"targets": (4, 5)}, "road", group="context"
            ),  # a bridge asks for overpasses: one class here
            RetrievalQuery(
                4, {"targets": (2,)}, "water", group="context"
            ),  # and not for the airplane over water
            RetrievalQuery(5, {"targets": (2,)}, "water", group="context"),
        ],
    ),
    "fashioniq": Case(
        trees.fashioniq,
        {"train": 12, "val": 12, "test": 12},
        ["dress", "shirt", "toptee"],
        ["images", "captions/cap.dress.train.json", "image_splits/split.toptee.val.json"],
        {"image": "images/dresstrain0.jpg", "label": "dress", "split": "train"},
        queries=[
            RetrievalQuery(
                12 * kind + 4 * split,
                {} if split == 2 else {"targets": (12 * kind + 4 * split + 3,)},
                "is red and has a bow",
                group=("dress", "shirt", "toptee")[kind],
            )
            for kind in range(3)
            for split in range(3)
        ],
    ),
    "cirr": Case(
        trees.cirr,
        {"train": 6, "val": 6, "test": 6},
        [],
        ["captions", "image_splits", "img_raw"],
        {"image": "train/34/train-0-0-img0.png", "split": "train"},
        queries=[
            RetrievalQuery(2, {"subset": (0, 1, 3, 4, 5), "targets": (5,)}, "add a dog", name="1"),
            RetrievalQuery(
                8, {"subset": (6, 7, 9, 10, 11), "targets": (11,)}, "add a dog", name="1"
            ),
            RetrievalQuery(14, {"subset": SUBSET}, "add a dog", name="1"),
        ],
    ),
    "circo": Case(
        trees.circo,
        {None: 3},
        [],
        [
            "annotations/val.json",
            "COCO2017_unlabeled/unlabeled2017",
            "COCO2017_unlabeled/annotations",
        ],
        {"image": "COCO2017_unlabeled/unlabeled2017/000000243611.jpg"},
        queries=[RetrievalQuery(2, {"targets": (1, 0)}, "is in a garden", name="0")],
    ),
    "circo-test": Case(
        trees.circo,
        {None: 3},
        [],
        ["annotations/test.json", "COCO2017_unlabeled/unlabeled2017"],
        {"image": "COCO2017_unlabeled/unlabeled2017/000000243611.jpg"},
        queries=[RetrievalQuery(2, {}, "is in a garden", name="0")],
    ),
    "icir": Case(
        trees.icir,
        {"gallery": 7, "query": 3},
        ["mug", "temple"],
        ["query_files.csv", "database_files.csv", "query", "database"],
        {"image": "database/temple/0.jpg", "label": "temple", "split": "gallery"},
        queries=[
            RetrievalQuery(7, {"targets": (0, 1)}, "at sunset", group="temple"),
            RetrievalQuery(7, {"targets": (2,)}, "as a drawing", group="temple"),
            RetrievalQuery(8, {"targets": (0, 1)}, "at sunset", group="temple"),
            RetrievalQuery(9, {"targets": (5,)}, "on a table", group="mug"),
        ],
    ),
}


def opened(name: str, root: Path) -> Dataset:
    CASES[name].make(root)
    return find_benchmark(name).read(root)


def refusal(name: str, root: Path) -> str:
    with pytest.raises(LayoutError) as error:
        find_benchmark(name).read(root)
    sentence = str(error.value)
    assert "\n" not in sentence and str(root) in sentence
    return sentence


@pytest.mark.parametrize("name", CASES)
def test_reads_what_the_release_says(name: str, tmp_path: Path) -> None:
    case, dataset = CASES[name], opened(name, tmp_path)
    assert dataset.name == name and not dataset.problems
    assert dataset.splits == case.splits
    assert (
        len(dataset.classes) if isinstance(case.classes, int) else dataset.classes
    ) == case.classes
    assert {key: getattr(dataset[0], key) for key in case.first} == case.first
    assert dataset.queries == case.queries
    again = pickle.loads(pickle.dumps(dataset))
    assert list(again) == list(dataset) and again.queries == dataset.queries
    for i in range(len(dataset)):
        assert dataset.path(i).is_file()
        assert again.image(i).size == dataset.image(i).size == (12, 8)
        found, repeated = dataset.mask(i), again.mask(i)
        assert (found is None and repeated is None) or np.array_equal(found, repeated)  # type: ignore[arg-type]
        assert bool(dataset[i].masks) <= (found is not None)
    for i, row in case.masks.items():
        found = dataset.mask(i)
        assert found is not None and found[0].tolist() == row


@pytest.mark.parametrize("name", CASES)
def test_opens_no_image(name: str, tmp_path: Path) -> None:
    CASES[name].make(tmp_path)
    for folder, _, files in os.walk(tmp_path):
        for file in files:
            if file.lower().endswith((".jpg", ".jpeg", ".png")):
                Path(folder, file).write_bytes(b"no image at all")
    assert len(find_benchmark(name).read(tmp_path))


@pytest.mark.parametrize("name", CASES)
def test_another_tree_is_refused(name: str, tmp_path: Path) -> None:
    refusal(name, tmp_path / "missing")
    empty = tmp_path / "empty"
    empty.mkdir()
    refusal(name, empty)
    (empty / "notes.txt").write_text("of something else")
    assert "notes.txt" in refusal(name, empty)
    for number, needed in enumerate(CASES[name].needed):
        root = tmp_path / str(number)
        CASES[name].make(root)
        (shutil.rmtree if (root / needed).is_dir() else os.remove)(root / needed)
        message = refusal(name, root)
        assert needed.rpartition("/")[2] in message or (name, needed) == (
            "cirr",
            "img_raw",
        )  # the folders may be above


@pytest.mark.parametrize("name", CASES)
def test_damaged_json_is_named_with_the_reason(name: str, tmp_path: Path) -> None:
    CASES[name].make(tmp_path / "good")
    damaged = sorted((tmp_path / "good").rglob("*.json"))
    for number, path in enumerate(damaged):
        root = tmp_path / str(number)
        shutil.copytree(tmp_path / "good", root)
        target = root / path.relative_to(tmp_path / "good")
        for content in (target.read_text()[:-5], "[" * 100_000, '"a word"', "[3]"):
            target.write_text(content)
            try:
                dataset = find_benchmark(name).read(root)
            except ValueError as error:
                assert target.name in str(error) and "\n" not in str(error)
            else:  # a file that this set does not use
                assert list(dataset) == list(find_benchmark(name).read(tmp_path / "good"))
                assert target.name == {"circo": "test.json", "circo-test": "val.json"}.get(name)


def test_a_split_takes_its_queries_along(tmp_path: Path) -> None:
    val = opened("cirr", tmp_path).split("val")
    assert val.queries == [
        RetrievalQuery(2, {"subset": (0, 1, 3, 4, 5), "targets": (5,)}, "add a dog", name="1")
    ]
    assert len(val) == 6


def test_a_malicious_ground_truth_runs_nothing(tmp_path: Path) -> None:
    trees.landmarks(tmp_path, "roxford5k")

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "gnd_roxford5k.pkl").write_bytes(pickle.dumps({"imlist": Evil()}))
    with pytest.raises(ValueError, match=r"gnd_roxford5k\.pkl.*mkdir"):
        find_benchmark("roxford").read(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("qimlist"),
        lambda found: found["gnd"].pop(),
        lambda found: found["gnd"][0].update(easy=[99]),
        lambda found: found["gnd"][0].update(bbx=[1, 2]),
        lambda found: found.update(gnd=7),
    ],
)
def test_a_wrong_ground_truth_is_named(change: Callable[[Any], Any], tmp_path: Path) -> None:
    trees.landmarks(tmp_path, "rparis6k")
    path = tmp_path / "gnd_rparis6k.pkl"
    found = pickle.loads(path.read_bytes())
    change(found)
    path.write_bytes(pickle.dumps(found))
    with pytest.raises(ValueError, match=r"gnd_rparis6k\.pkl"):
        find_benchmark("rparis").read(tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "line", "values"),
    [
        (
            "wsol-cub",
            "metadata/CUB/val/localization.txt",
            "x.jpg,1,2,wide,4",
            "localization.txt, line 5",
        ),
        ("wsol-cub", "metadata/CUB/val/class_labels.txt", "x.jpg", "class_labels.txt, line 3"),
        (
            "wsol-cub",
            "metadata/CUB/val/class_labels.txt",
            "x.jpg,bird",
            r"class_labels\.txt.*x\.jpg",
        ),
        ("wsol-cub", "metadata/CUB/val/image_ids.txt", "x.jpg", r"x\.jpg"),
        ("coco20k", "coco_20k_filenames.txt", "train2014/photo", "coco_20k_filenames.txt, line 3"),
        ("patterncom", "PatternCom/color.csv", "airplane001.jpg,white", "color.csv, line 3"),
        ("icir", "query_files.csv", "icir/query/mug/b.jpg,at sunset", "query_files.csv, line 5"),
        ("icir", "database_files.csv", "mug/9.jpg,at sunset,mug", "database_files.csv, line 8"),
        (
            "ade20k",
            "ADEChallengeData2016/objectInfo150.txt",
            "4\ttree",
            "objectInfo150.txt, line 5",
        ),
    ],
)
def test_a_damaged_line_is_named(
    name: str, file: str, line: str, values: str, tmp_path: Path
) -> None:
    CASES[name].make(tmp_path)
    with open(tmp_path / file, "a") as lines:
        lines.write(line + "\n")
    with pytest.raises(ValueError, match=values):
        find_benchmark(name).read(tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "change"),
    [
        ("fashioniq", "captions/cap.dress.val.json", {"target": "nowhere"}),
        ("cirr", "captions/cap.rc2.val.json", {"reference": "nowhere"}),
        ("cirr", "captions/cap.rc2.val.json", {"img_set": {"members": ["nowhere"]}}),
        ("circo", "annotations/val.json", {"gt_img_ids": [5]}),
    ],
)
def test_a_query_for_an_unknown_image_is_left_out_and_said(
    name: str, file: str, change: dict[str, Any], tmp_path: Path
) -> None:
    CASES[name].make(tmp_path)
    entries = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(json.dumps([entries[0] | change, *entries]))
    dataset = find_benchmark(name).read(tmp_path)
    assert dataset.queries == CASES[name].queries
    (problem,) = dataset.problems
    assert (
        Path(file).name in problem
        and "entry 1" in problem
        and ("nowhere" in problem or "5" in problem)
    )


def test_cirr_beside_or_above_its_lists(tmp_path: Path) -> None:
    trees.cirr(tmp_path / "cirr")
    expected = [record.image for record in find_benchmark("cirr").read(tmp_path / "cirr")]
    for folder in (tmp_path / "cirr" / "img_raw").iterdir():
        shutil.move(folder, tmp_path / folder.name)
    above = find_benchmark("cirr").read(tmp_path)
    assert [record.image for record in above] == expected and above.path(0).is_file()


def test_icir_in_shards_is_refused(tmp_path: Path) -> None:
    trees.text(tmp_path / "annotations" / "query_files.csv", "icir/query/a.jpg,old,mug")
    (tmp_path / "webdataset" / "query").mkdir(parents=True)
    assert "webdataset/" in refusal("icir", tmp_path)


def test_icir_as_its_authors_split_lines(tmp_path: Path) -> None:
    """Values after the third are ignored, and paths may begin in the folder."""
    trees.icir(tmp_path / "icir")
    expected = list(find_benchmark("icir").read(tmp_path))  # the folder above
    for name in ("query_files.csv", "database_files.csv"):
        path = tmp_path / "icir" / name
        lines = path.read_text().splitlines()
        path.write_text("".join(f"{line.removeprefix('icir/')},0.5\n" for line in lines))
    again = find_benchmark("icir").read(tmp_path / "icir")
    assert list(again) == expected and again.queries == CASES["icir"].queries
