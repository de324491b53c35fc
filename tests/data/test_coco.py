"""COCO's JSON: corners, crowds, captions, and masks equal to an oracle that asks every pixel if it is inside."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.path import Path as Outline

from cenote.data import BadImage, Box, LayoutError, open_dataset
from cenote.data.coco import fill_polygon, read_coco, read_runs, unpack_runs
from tests.data.benchmarks.annotated_trees import dump, image, instances

NAMES = {9: "a.jpg", 25: "b.jpg"}


def make(root: Path, folder: str = "images", **changes: Any) -> Path:
    for name in NAMES.values():
        image(root / folder / name)
    dump(root / "annotations" / "instances_val2017.json", instances(NAMES) | changes)
    return root / "annotations" / "instances_val2017.json"


def star(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A polygon with dents, partly outside."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(3, 20)))
    radii = rng.uniform(0.1, 0.8, len(angles)) * min(height, width)
    return np.stack([width / 2 + radii * np.cos(angles), height / 2 + radii * np.sin(angles)], 1)


@pytest.mark.parametrize("seed", range(30))
def test_polygons_hold_the_pixels_whose_centres_are_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = (int(side) for side in rng.integers(1, 60, 2))
    corners = star(rng, height, width)
    y, x = np.mgrid[:height, :width] + 0.5
    inside = Outline(np.vstack([corners, corners[:1]])).contains_points(
        np.stack([x.ravel(), y.ravel()], 1)
    )
    assert np.array_equal(fill_polygon(corners, height, width), inside.reshape(height, width))


@pytest.mark.parametrize(
    "corners", [[[2, 1], [6, 1], [6, 5], [2, 5]], [[2, 5], [6, 5], [6, 1], [2, 1]]]
)
def test_a_square_has_its_area(corners: list[list[float]]) -> None:
    found = fill_polygon(np.array(corners, float), 8, 12)
    assert found[1:5, 2:6].all() and found.sum() == 16


@pytest.mark.parametrize(
    "corners",
    [[[50, 50], [60, 50], [60, 60]], [[-9, 1], [-5, 1], [-5, 6]], [[2, 2], [4, 4], [6, 6]]],
)
def test_nothing_inside(corners: list[list[float]]) -> None:
    assert not fill_polygon(np.array(corners, float), 8, 12).any()


def test_runs_by_hand() -> None:
    assert read_runs(np.array([1, 2, 3]), 2, 3).tolist() == [
        [False, True, False],
        [True, False, False],
    ]
    # As the reference program packs (row + column) % 3 == 0 in 7 x 9 pixels: 0, 1, 2, 1, 2, 1, ... with differences.
    runs = unpack_runs("0120000000000000000000000000000000000000000")
    assert np.array_equal(read_runs(np.array(runs), 7, 9), np.indices((7, 9)).sum(0) % 3 == 0)
    assert unpack_runs("PY=1") == [9 * 32 + 13 * 1024, 1]  # five bits at a time, the low ones first
    assert unpack_runs("7355O") == [7, 3, 5, 3 + 5, 5 - 1]  # O is 31, which is -1


def test_peer_pycocotools() -> None:
    peer = pytest.importorskip("pycocotools.mask", reason="needs: pip install pycocotools")
    rng = np.random.default_rng(0)
    overlaps = []
    for _ in range(100):
        height, width = (int(side) for side in rng.integers(20, 150, 2))
        noise = rng.random((height, width)) < rng.random()
        packed = peer.encode(np.asfortranarray(noise.astype(np.uint8)))["counts"].decode()
        assert np.array_equal(read_runs(np.array(unpack_runs(packed)), height, width), noise)
        corners = star(rng, height, width).clip(0, [width, height])
        theirs = peer.decode(
            peer.merge(peer.frPyObjects([corners.ravel().tolist()], height, width))
        ).astype(bool)
        ours = fill_polygon(corners, height, width)
        if theirs.sum() > 100:  # theirs rounds corners to fifths of a pixel, so outlines differ
            overlaps.append((ours & theirs).sum() / (ours | theirs).sum())
    assert min(overlaps) > 0.9 and np.mean(overlaps) > 0.98


@pytest.mark.parametrize("text", ["~~", "o", "0 1"])
def test_bad_runs(text: str) -> None:
    with pytest.raises(ValueError):
        unpack_runs(text)


@pytest.mark.parametrize(
    "folder", ["images", "val2017", "images/val2017", "annotations", ".", "annotations/images"]
)
def test_boxes_masks_and_the_usual_folders(folder: str, tmp_path: Path) -> None:
    dataset = read_coco(make(tmp_path, folder))
    assert (
        dataset.name == tmp_path.name
        and dataset.classes == ["person", "toothbrush"]
        and dataset.splits == {"val": 2}
    )
    assert dataset[1].image == "b.jpg" and dataset.image(1).size == (12, 8)
    assert dataset[1].boxes == (
        Box(2, 1, 6, 5, "toothbrush"),
        Box(6.5, 2, 9.5, 4.5, "person"),
        Box(0, 0, 2, 8, "person", crowd=True),
    )
    expected = np.zeros((8, 12), np.uint8)
    expected[:, :2] = 255
    expected[1:5, 2:6] = 1
    again = pickle.loads(pickle.dumps(dataset)).split("val").select([1])
    assert np.array_equal(dataset.mask(0), expected) and np.array_equal(again.mask(0), expected)  # type: ignore[arg-type]


def test_an_object_over_a_crowd_is_an_object(tmp_path: Path) -> None:
    content = instances({9: "a.jpg"})
    content["annotations"][2]["segmentation"] = {"size": [8, 12], "counts": [0, 96]}
    for order in (content["annotations"], content["annotations"][::-1]):
        found = read_coco(make(tmp_path, annotations=order, images=content["images"])).mask(0)
        assert (
            found is not None and (found[1:5, 2:6] == 1).all() and (found == 255).sum() == 96 - 16
        )


def test_no_segmentation_no_mask(tmp_path: Path) -> None:
    plain = [a | {"segmentation": []} for a in instances(NAMES)["annotations"]]
    assert read_coco(make(tmp_path, annotations=plain)).mask(0) is None
    one = read_coco(make(tmp_path, annotations=instances({9: "a.jpg"})["annotations"]))
    assert one.mask(0) is not None and one.mask(1) is None


def test_captions(tmp_path: Path) -> None:
    path = make(tmp_path)
    captions = [
        {"id": 1, "image_id": 9, "caption": " A dog\n runs. "},
        {"id": 2, "image_id": 9, "caption": "A dog."},
    ]
    listed = instances(NAMES)["images"]
    dump(
        tmp_path / "annotations" / "captions_val2017.json",
        {"images": listed, "annotations": captions},
    )
    both = read_coco(path, captions=tmp_path / "annotations" / "captions_val2017.json")
    assert (
        both[0].caption == "A dog runs.\nA dog."
        and both[1].caption is None
        and len(both[0].boxes) == 3
    )
    alone = read_coco(tmp_path / "annotations" / "captions_val2017.json")
    assert alone[0].caption == both[0].caption and alone[0].boxes == () and alone.mask(0) is None


def test_a_bad_annotation_costs_itself(tmp_path: Path) -> None:
    good = instances({9: "a.jpg"})["annotations"]
    bad: list[dict[str, Any]] = [
        {"bbox": [1, 2, 3]},
        {"bbox": [1, 2, 0, 4]},
        {"bbox": [1, 2, float("nan"), 4]},
        {"bbox": "wide"},
        {"category_id": 5},
        {"segmentation": [[1, 2, 3]]},
        {"segmentation": [["x", 2, 3, 4, 5, 6]]},
        {"segmentation": 7},
        {"segmentation": {"counts": [96]}},
        {"segmentation": {"size": [8, 12], "counts": "~"}},
    ]
    entries = [good[0] | change | {"id": 100 + i} for i, change in enumerate(bad)]
    missing = {"id": 110, "image_id": 9, "category_id": 1}
    dataset = read_coco(make(tmp_path, annotations=[*entries, missing, *good]))
    assert len(dataset) == 2 and dataset[0].boxes[-3:] == read_coco(make(tmp_path))[0].boxes
    assert len(dataset.problems) == 11
    for number, problem in enumerate(dataset.problems, 100):
        assert "instances_val2017.json" in problem and "a.jpg" in problem and "\n" not in problem
        assert re.search(rf"\b{number}\b", problem)


def test_runs_of_another_size_are_said_when_drawn(tmp_path: Path) -> None:
    content = instances({9: "a.jpg"})["annotations"]
    for runs in (
        {"size": [4, 4], "counts": [16]},
        {"size": [8, 12], "counts": [3, 4]},
        {"size": [8, 12], "counts": [-1, 97]},
    ):
        content[2]["segmentation"] = runs
        with pytest.raises(BadImage, match=r"a\.jpg"):
            read_coco(make(tmp_path, annotations=content)).mask(0)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("{", "instances_val2017"),
        ("[]", "images.*annotations"),
        ('{"info": 1}', r"\binfo\b"),
        ('{"images": 3}', r"\bint\b"),
        ('{"images": [{"file_name": "a.jpg"}]}', r"\bid\b.*'a.jpg'"),
        ('{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{}]}', "image_id"),
        ('{"images": [{"id": 1}]}', "file_name"),
        ('{"images": []}', "instances_val2017"),
        ('{"images": ' + "[" * 100_000, "instances_val2017"),
    ],
)
def test_a_damaged_file_is_named(content: str, values: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    path.write_text(content)
    with pytest.raises(ValueError, match=values) as error:
        read_coco(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_images_that_are_not_there(tmp_path: Path) -> None:
    path = make(tmp_path, "elsewhere")
    with pytest.raises(LayoutError, match=r"a\.jpg.*val2017"):
        read_coco(path)
    assert read_coco(path, images=tmp_path / "elsewhere").path(0).is_file()


def test_open_dataset_knows_it(tmp_path: Path) -> None:
    assert len(open_dataset(make(tmp_path))) == 2
    entries = json.loads(make(tmp_path).read_text())
    assert len(entries["annotations"]) == 6
