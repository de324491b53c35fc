"""Tiny copies of published sets with boxes, masks or queries, laid out as their releases are."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def image(path: Path, size: tuple[int, int] = (12, 8), colour: int = 90) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, 120, 40)).save(path)


def mask(path: Path, values: list[list[int]]) -> None:
    """A PNG with a palette, as VOC's, whose indices are the values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(np.array(values, np.uint8)).convert("P")
    picture.putdata(np.array(values).ravel().tolist())
    picture.save(path)


def text(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))


def dump(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def annotation(path: Path, *objects: tuple[str, tuple[float, ...], int, int]) -> None:
    """VOC's XML: name, box as stored, difficult, truncated."""
    parts = [
        f"<object><name>{name}</name><truncated>{truncated}</truncated><difficult>{difficult}</difficult>"
        f"<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox>"
        "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>"
        "</object>"
        for name, box, difficult, truncated in objects
    ]
    text(path, "<annotation><filename>whatever.jpg</filename>", *parts, "</annotation>")


def voc07(root: Path) -> None:
    year = root / "VOCdevkit" / "VOC2007"
    for name in ("000005", "000007", "000001"):
        image(year / "JPEGImages" / f"{name}.jpg")
        annotation(
            year / "Annotations" / f"{name}.xml",
            ("dog", (1, 1, 12, 8), 0, 1),
            ("person", (3, 2, 6, 7), 1, 0),
        )
    text(year / "ImageSets/Main/trainval.txt", "000005", "000007")
    text(year / "ImageSets/Main/test.txt", "000001")
    text(year / "ImageSets/Main/dog_trainval.txt", "000005 -1", "000007  1")


def voc12(root: Path) -> None:
    for name in ("2007_000027", "2008_000002"):
        image(root / "JPEGImages" / f"{name}.jpg")
        annotation(root / "Annotations" / f"{name}.xml", ("tvmonitor", (2.5, 1, 5, 5), 0, 0))
        mask(root / "SegmentationClass" / f"{name}.png", [[0] * 4 + [20] * 4 + [255] * 4] * 8)
    text(root / "ImageSets/Main/trainval.txt", "2007_000027", "2008_000002")
    text(root / "ImageSets/Segmentation/train.txt", "2007_000027")
    text(root / "ImageSets/Segmentation/val.txt", "2008_000002")


def instances(names: dict[int, str]) -> dict[str, Any]:
    """Two objects and a crowd in every image; category ids have gaps, as COCO's."""
    square = [[2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0]]
    runs = {"size": [8, 12], "counts": [0, 16, 80]}  # the first two columns
    found: list[dict[str, Any]] = []
    for number in names:
        for category, box, crowd, outline in (
            (90, [2.0, 1.0, 4.0, 4.0], 0, square),
            (1, [6.5, 2.0, 3.0, 2.5], 0, []),
            (1, [0.0, 0.0, 2.0, 8.0], 1, runs),
        ):
            entry = {
                "id": len(found),
                "image_id": number,
                "category_id": category,
                "bbox": box,
                "iscrowd": crowd,
            }
            found.append(entry | {"segmentation": outline})
    return {
        "images": [
            {"id": n, "file_name": name, "width": 12, "height": 8} for n, name in names.items()
        ],
        "annotations": found,
        "categories": [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}],
    }


def coco(root: Path) -> None:
    for split, numbers in (("train2017", (9, 25)), ("val2017", (139,))):
        names = {number: f"{number:012d}.jpg" for number in numbers}
        for name in names.values():
            image(root / split / name)
        dump(root / "annotations" / f"instances_{split}.json", instances(names))
        captions = [
            {"id": i, "image_id": n, "caption": f"one {n}"}
            for i, n in enumerate([*numbers, *numbers])
        ]
        listed = [{"id": n, "file_name": name} for n, name in names.items()]
        dump(
            root / "annotations" / f"captions_{split}.json",
            {"images": listed, "annotations": captions},
        )


def coco20k(root: Path) -> None:
    names = {number: f"COCO_train2014_{number:012d}.jpg" for number in (9, 25, 30)}
    for name in names.values():
        image(root / "images" / "train2014" / name)
    dump(root / "annotations" / "instances_train2014.json", instances(names))
    text(root / "coco_20k_filenames.txt", f"train2014/{names[30]}", f"train2014/{names[9]}")


def ade20k(root: Path) -> None:
    root = root / "ADEChallengeData2016"
    for folder, name in (("training", "ADE_train_00000001"), ("validation", "ADE_val_00000001")):
        image(root / "images" / folder / f"{name}.jpg")
        mask(root / "annotations" / folder / f"{name}.png", [[0] * 4 + [1] * 4 + [3] * 4] * 8)
    rows = [
        "1\t0.1\t11664\t1172\twall",
        "2\t0.1\t6046\t612\tscreen, edifice",
        "3 \t0.08\t8265\t796\tscreen, sky ",
    ]
    text(root / "objectInfo150.txt", "Idx\tRatio\tTrain\tVal\tName", *rows)
    text(
        root / "sceneCategories.txt",
        "ADE_train_00000001 airport_terminal",
        "ADE_val_00000001 abbey",
    )


def wsol(root: Path, folder: str, images: str, names: dict[str, list[tuple[str, int]]]) -> None:
    for split, found in names.items():
        lists = root / folder / split
        for name, _ in found:
            image(root / images / name)
        text(lists / "image_ids.txt", *(name for name, _ in found))
        text(lists / "class_labels.txt", *(f"{name},{number}" for name, number in found))
        text(lists / "image_sizes.txt", *(f"{name},12,8" for name, _ in found))
        if split != "train":
            text(
                lists / "localization.txt",
                *(f"{n},{b}" for n, _ in found for b in ("1,2,9,7", "3,3,5,5")),
            )


def wsol_cub(root: Path) -> None:
    birds = ("002.Laysan_Albatross", 1), ("001.Black_footed_Albatross", 0)
    names = {
        s: [(f"{bird}/{s}.jpg", number) for bird, number in birds] for s in ("train", "val", "test")
    }
    wsol(root, "metadata/CUB", "dataset/CUB", names)


def wsol_ilsvrc(root: Path) -> None:
    names = {
        "val": [("val2/10/0.jpeg", 10), ("val2/2/0.jpeg", 2)],
        "test": [("val/ILSVRC2012_val_00000001.JPEG", 2), ("val/ILSVRC2012_val_00000002.JPEG", 10)],
    }
    wsol(root, "metadata/ILSVRC", "dataset/ILSVRC", names)


def wsol_own(root: Path) -> None:
    wsol(root, "metadata", "images", {"test": [("a/1.png", 0), ("b/2.png", 1)]})


def openimages(root: Path) -> None:
    names = {
        s: [(f"{s}/{m}/{i}.jpg", i) for i, m in enumerate(("01226z", "0bt_c3"))]
        for s in ("train", "val", "test")
    }
    wsol(root, "metadata/OpenImages", "dataset/OpenImages", names)
    for split in ("val", "test"):
        lines = []
        for name, _ in names[split]:
            stem = name.removesuffix(".jpg")
            for part, columns in (
                ("_m_1", [1, 1, 0, 0]),
                ("_m_2", [0, 1, 0, 0]),
                ("_ignore", [0, 1, 1, 0]),
            ):
                mask(
                    root / "dataset/OpenImages" / f"{stem}{part}.png",
                    [[255 * c for c in columns]] * 3,
                )
            lines += [f"{name},{stem}_m_1.png,{stem}_ignore.png", f"{name},{stem}_m_2.png,"]
        text(root / "metadata/OpenImages" / split / "localization.txt", *lines)
    text(root / "class-descriptions-boxable.csv", "/m/01226z,Football", '/m/0bt_c3,"Book, big"')


def landmarks(root: Path, published: str) -> None:
    database, queries = (
        ["all_souls_000001", "all_souls_000002", "oriel_000003"],
        ["all_souls_000013", "oriel_000009"],
    )
    for name in (*database, *queries):
        image(root / "jpg" / f"{name}.jpg")
    gnd = [
        {"bbx": [1.5, 2.0, 9.0, 7.0], "easy": [0], "hard": [1], "junk": [2]},
        {
            "bbx": np.array([0.0, 0.0, 5.0, 5.0]),
            "easy": np.array([], np.int64),
            "hard": np.array([2]),
            "junk": [],
        },
    ]
    content = {"imlist": database, "qimlist": queries, "gnd": gnd}
    (root / f"gnd_{published}.pkl").write_bytes(pickle.dumps(content, protocol=2))


def patterncom(root: Path) -> None:
    for kind in ("airplane", "bridge", "overpass"):
        for number in (1, 2):
            image(root / "images" / kind / f"{kind}{number:03d}.jpg")
    for name in ("color", "density", "existence", "quantity", "shape"):
        text(root / "PatternCom" / f"{name}.csv")
    text(
        root / "PatternCom" / "context.csv",
        "bridge001.jpg,context,water",
        "overpass001.jpg,context,road",
        "overpass002.jpg,context,road",
        "airplane001.jpg,context,water",
    )
    text(
        root / "PatternCom" / "color.csv",
        "airplane001.jpg,color,white",
        "airplane002.jpg,color,purple & white",
    )


def fashioniq(root: Path) -> None:
    for kind in ("dress", "shirt", "toptee"):
        for split in ("train", "val", "test"):
            names = [f"{kind}{split}{i}" for i in range(3)] + ["shared"]
            for name in names:
                image(root / "images" / f"{name}.jpg")
            dump(root / "image_splits" / f"split.{kind}.{split}.json", names)
            query = {"candidate": names[0], "captions": ["is red.", " has a bow, "]}
            dump(
                root / "captions" / f"cap.{kind}.{split}.json",
                [query | ({"target": "shared"} if split != "test" else {})],
            )


def cirr(root: Path) -> None:
    for split, folder in (("train", "train/34"), ("val", "dev"), ("test1", "test1")):
        names = [f"{folder.split('/')[0]}-{i}-0-img0" for i in range(6)]
        for name in names:
            image(root / "img_raw" / folder / f"{name}.png")
        dump(
            root / "image_splits" / f"split.rc2.{split}.json",
            {n: f"./{folder}/{n}.png" for n in names},
        )
        query = {
            "pairid": 1,
            "reference": names[2],
            "caption": "add a dog",
            "img_set": {"id": 0, "members": names},
        }
        known = (
            {"target_hard": names[5], "target_soft": {names[5]: 1.0}} if split != "test1" else {}
        )
        dump(root / "captions" / f"cap.rc2.{split}.json", [query | known])


def circo(root: Path) -> None:
    folder = root / "COCO2017_unlabeled"
    numbers = (243611, 535009, 97553)
    for number in numbers:
        image(folder / "unlabeled2017" / f"{number:012d}.jpg")
    listed = [{"id": number, "file_name": f"{number:012d}.jpg"} for number in numbers]
    dump(folder / "annotations" / "image_info_unlabeled2017.json", {"images": listed})
    query = {
        "reference_img_id": 97553,
        "relative_caption": "is in a garden",
        "shared_concept": "a bear",
        "id": 0,
    }
    dump(
        root / "annotations/val.json",
        [query | {"target_img_id": 535009, "gt_img_ids": [535009, 243611]}],
    )
    dump(root / "annotations/test.json", [query])


def icir(root: Path) -> None:
    """Two objects; a text of the database is that of a query, or of nothing that is asked for."""
    database = {
        "temple": {
            "0.jpg": "at sunset",
            "1.jpg": "at sunset",
            "2.jpg": "as a drawing",
            "hn/3.jpg": "",
        },
        "mug": {"0.jpg": "at sunset", "1.jpg": "on a table", "hn/2.jpg": "hard negative"},
    }
    queries = [("temple/a.jpg", "at sunset"), ("temple/a.jpg", "as a drawing")]
    queries += [("temple/b.jpg", "at sunset"), ("mug/a.jpg", "on a table")]
    lines: dict[str, list[str]] = {"query": [], "database": []}
    for name, wish in queries:
        image(root / "query" / name)
        lines["query"].append(f"icir/query/{name},{wish},{name.partition('/')[0]}")
    for instance, texts in database.items():
        for name, words in texts.items():
            image(root / "database" / instance / name)
            lines["database"].append(f"icir/database/{instance}/{name},{words},{instance}")
    for kind, rows in lines.items():
        text(root / f"{kind}_files.csv", *rows)
    text(root / "VERSION.txt", "v1.0.0")
