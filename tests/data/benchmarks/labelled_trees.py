"""Tiny copies of published sets of labelled images, laid out as their releases are; each function makes one."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from scipy.io import savemat

WNIDS = ("n01440764", "n02012849", "n03126707")  # tench, and the two cranes
MAPPING = "n01440764 tench, Tinca tinca\nn02012849 crane\nn03126707 crane\n"
FLAGS = np.random.default_rng(0).integers(0, 256, (6, 3 * 32 * 32), np.uint8)  # six images of CIFAR
V9 = (
    "original",
    "only_fg",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
    "no_fg",
    "only_bg_b",
    "only_bg_t",
)


def picture(path: Path, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (90, 140, 200)).save(path, format="JPEG")


def text(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def pictures(root: Path, *paths: str) -> None:
    for path in paths:
        picture(root / path)


def voc_xml(path: Path, name: str, *corners: int) -> None:
    keys = ("xmin", "ymin", "xmax", "ymax")
    box = "".join(f"<{key}>{value}</{key}>" for key, value in zip(keys, corners, strict=True))
    text(
        path, f"<annotation><object><name>{name}</name><bndbox>{box}</bndbox></object></annotation>"
    )


def struct(**columns: list[Any]) -> np.ndarray:
    """A MATLAB struct array."""
    rows = np.zeros(len(next(iter(columns.values()))), [(name, object) for name in columns])
    for name, values in columns.items():
        rows[name] = values
    return rows


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Strings and bytes both as Python 2 wrote them, and NumPy by its old name."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_string(self, value: str | bytes) -> None:
        data = value.encode("latin1") if isinstance(value, str) else value
        self.write(b"T" + len(data).to_bytes(4, "little") + data)

    dispatch[str] = dispatch[bytes] = save_string


def python2_pickle(path: Path, value: Any) -> None:
    buffer = io.BytesIO()
    Python2Pickler(buffer, 2).dump(value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue().replace(b"cnumpy._core.", b"cnumpy.core."))


# ImageNet


def imagenet(root: Path) -> None:
    for wnid in WNIDS[:2]:
        pictures(
            root,
            f"train/{wnid}/{wnid}_10.JPEG",
            f"train/{wnid}/{wnid}_9.JPEG",
            f"val/{wnid}/{wnid}_val.JPEG",
        )
    text(root / f"train/{WNIDS[0]}/notes.txt", "not an image")


def imagenet_kaggle(root: Path) -> None:
    data = root / "ILSVRC/Data/CLS-LOC"
    for wnid in WNIDS:
        pictures(data, f"train/{wnid}/{wnid}_1.JPEG")
    pictures(data, "val/ILSVRC2012_val_00000001.JPEG", "val/ILSVRC2012_val_00000002.JPEG")
    (root / "LOC_synset_mapping.txt").write_text(MAPPING)
    text(
        root / "LOC_train_solution.csv",
        "ImageId,PredictionString",
        "n02012849_1,n02012849 0 0 39 29 ",
    )
    first = "ILSVRC2012_val_00000001,n03126707 1 2 10 20 n03126707 5 6 7 8 "
    text(
        root / "LOC_val_solution.csv",
        "ImageId,PredictionString",
        first,
        "ILSVRC2012_val_00000002,n01440764 3 3 9 9 ",
    )


def imagenet_devkit(root: Path) -> None:
    pictures(root, "val/ILSVRC2012_val_00000001.JPEG", "val/ILSVRC2012_val_00000002.JPEG")
    devkit = root / "ILSVRC2012_devkit_t12/data"
    text(devkit / "ILSVRC2012_validation_ground_truth.txt", "2", "3")
    synsets = struct(
        ILSVRC2012_ID=[1, 2, 3, 1001],
        WNID=[
            "n03126707",
            "n01440764",
            "n02012849",
            "n00001740",
        ],  # the devkit has an order of its own
        words=["crane", "tench, Tinca tinca", "crane", "entity"],
        num_children=[0, 0, 0, 2],
    )
    savemat(devkit / "meta.mat", {"synsets": synsets})
    voc_xml(
        root / "ILSVRC/Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml",
        "n01440764",
        0,
        0,
        39,
        29,
    )


def imagenet_20pc(root: Path) -> None:
    imagenet(root)
    picture(root / "one.jpg", (1, 1))
    data = (root / "one.jpg").read_bytes()
    for k in range(262):
        (root / f"train/{WNIDS[0]}/{WNIDS[0]}_1{k:04d}.JPEG").write_bytes(data)


def imagenet_100(root: Path) -> None:
    pictures(
        root,
        "train/n01558993/a.JPEG",
        "train/n01440764/a.JPEG",
        "val/n13040303/a.JPEG",
        "val/n01440764/b.JPEG",
    )


def imagenet_9(root: Path) -> None:
    for variant in V9:
        pictures(root, f"{variant}/val/00_dog/a.JPEG", f"{variant}/val/02_wheeled vehicle/b.JPEG")


def imagenet_a(root: Path) -> None:
    pictures(root, "n01498041/0.1_a_b_0.5.jpg", "n01531178/0.2_c_d_0.6.jpg")
    text(root / "README.txt", "ImageNet-A", "", "n01498041 stingray", "n01531178 goldfinch")


def imagenet_r(root: Path) -> None:
    pictures(root, "n01443537/art_0.jpg", "n01443537/videogame_12.jpg", "n01484850/sketch_3.jpg")
    text(root / "README.txt", "n01443537 goldfish", "n01484850 great_white_shark")


def imagenet_r_conversion(root: Path) -> None:
    pictures(
        root, "imagenet-r/n01443537/cartoon_1.jpg", "real/n01443537/ILSVRC2012_val_00000262.JPEG"
    )
    lines = ["imagenet_r/imagenet-r/n01443537/cartoon_1.jpg cartoon goldfish"]
    text(
        root / "full_files.csv",
        *lines,
        "imagenet_r/real/n01443537/ILSVRC2012_val_00000262.JPEG real goldfish",
    )


def imagenet_c(root: Path) -> None:
    for severity in (1, 5):
        pictures(
            root,
            f"noise/gaussian_noise/{severity}/n01440764/a.JPEG",
            f"fog/{severity}/n02012849/a.JPEG",
        )
    (root / "LOC_synset_mapping.txt").write_text(MAPPING)


# Small images


def cifar10_python(root: Path) -> None:
    for k, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        batch = {
            "batch_label": name,
            "labels": [k % 2],
            "data": FLAGS[k : k + 1],
            "filenames": ["x.png"],
        }
        python2_pickle(root / "cifar-10-batches-py" / name, batch)
    python2_pickle(
        root / "cifar-10-batches-py/batches.meta", {"label_names": ["airplane", "automobile"]}
    )


def cifar10_binary(root: Path) -> None:
    for k, name in enumerate([f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]):
        (root / name).write_bytes(bytes([k % 2]) + FLAGS[k].tobytes())
    text(root / "batches.meta.txt", "airplane", "automobile", "")


def cifar100_python(root: Path) -> None:
    for name, rows in (("train", slice(0, 4)), ("test", slice(4, 6))):
        data = FLAGS[rows]
        labels = {"fine_labels": [2] * len(data), "coarse_labels": [1] * len(data)}
        python2_pickle(root / name, {"data": data, **labels})
    names = {
        "fine_label_names": ["apple", "aquarium_fish", "baby"],
        "coarse_label_names": ["fish", "people"],
    }
    python2_pickle(root / "meta", names)


def cifar100_binary(root: Path) -> None:
    for name, rows in (("train.bin", slice(0, 4)), ("test.bin", slice(4, 6))):
        (root / name).write_bytes(b"".join(bytes([1, 2]) + row.tobytes() for row in FLAGS[rows]))
    text(root / "fine_label_names.txt", "apple", "aquarium_fish", "baby")
    text(root / "coarse_label_names.txt", "fish", "people")


# Fine-grained


def flowers(root: Path) -> None:
    pictures(root, *(f"jpg/image_{k:05d}.jpg" for k in range(1, 7)))
    savemat(root / "imagelabels.mat", {"labels": np.array([[77, 77, 1, 1, 102, 102]], np.uint8)})
    splits = {"trnid": [[1, 3]], "valid": [[5]], "tstid": [[6, 2, 4]]}
    savemat(
        root / "setid.mat", {key: np.array(numbers, np.uint16) for key, numbers in splits.items()}
    )


def pets(root: Path) -> None:
    rows = {
        "trainval": ("Abyssinian_1 1 1 1", "american_bulldog_2 2 2 1"),
        "test": ("Abyssinian_3 1 1 1",),
    }
    for split, lines in rows.items():
        text(root / f"annotations/{split}.txt", *lines)
        for line in lines:
            image = line.split()[0]
            picture(root / f"images/{image}.jpg")
            trimap = np.full((30, 40), 2, np.uint8)
            trimap[10:20, 10:20] = 1
            trimap[9, 10:20] = 3
            (root / "annotations/trimaps").mkdir(exist_ok=True)
            Image.fromarray(trimap).save(root / f"annotations/trimaps/{image}.png")
    voc_xml(root / "annotations/xmls/Abyssinian_1.xml", "cat", 11, 6, 30, 20)


def cub(root: Path) -> None:
    images = ("001.Albatross/a.jpg", "001.Albatross/b.jpg", "101.Pelican/c.jpg")
    pictures(root, *(f"images/{image}" for image in images))
    text(root / "images.txt", *(f"{k} {image}" for k, image in enumerate(images, 1)))
    text(root / "image_class_labels.txt", "1 1", "2 1", "3 101")
    text(root / "classes.txt", "1 001.Albatross", "101 101.Pelican")
    text(root / "train_test_split.txt", "1 0", "2 1", "3 1")
    text(
        root / "bounding_boxes.txt",
        "1 6.0 7.0 25.0 20.0",
        "2 1.0 2.0 3.0 4.0",
        "3 0.0 0.0 40.0 30.0",
    )


def cub_v2(root: Path) -> None:
    cub(root)
    picture(root / "CUBV2/101.Pelican/123.jpg")
    text(root / "CUBV2/localization.txt", "101.Pelican/123.jpg,4,5,34,25")


def cub_v2_beside(root: Path) -> None:
    cub(root / "CUB_200_2011")
    cub_v2(root)
    (root / "CUBV2/localization.txt").rename(root / "localization.txt")
    (root / "metadata/CUB/val").mkdir(parents=True)
    (root / "localization.txt").rename(root / "metadata/CUB/val/localization.txt")


CAR_NAMES = np.array([f"car {k}" for k in range(1, 101)], object)
CAR_BOXES = {
    "bbox_x1": [1, 5, 3],
    "bbox_y1": [1, 6, 4],
    "bbox_x2": [40, 20, 33],
    "bbox_y2": [30, 16, 24],
}


def cars_flat(root: Path) -> None:
    paths = [f"car_ims/00000{k}.jpg" for k in (1, 2, 3)]
    pictures(root, *paths)
    rows = struct(relative_im_path=paths, **CAR_BOXES, **{"class": [1, 99, 98], "test": [0, 0, 1]})
    savemat(root / "cars_annos.mat", {"annotations": rows, "class_names": CAR_NAMES})


def cars_devkit(root: Path) -> None:
    pictures(root, "cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg")
    rows = struct(
        fname=["00001.jpg", "00002.jpg", "00001.jpg"], **CAR_BOXES, **{"class": [1, 99, 98]}
    )
    (root / "devkit").mkdir()
    savemat(root / "devkit/cars_meta.mat", {"class_names": CAR_NAMES})
    savemat(root / "devkit/cars_train_annos.mat", {"annotations": rows[:2]})
    savemat(root / "cars_test_annos_withlabels.mat", {"annotations": rows[2:]})


# Retrieval


def sop(root: Path) -> None:
    rows = {
        "train": ["1 1 1 bicycle_final/1_0.JPG", "2 1 1 bicycle_final/1_1.JPG"],
        "test": ["3 11 2 sofa_final/2_0.JPG"],
    }
    for split, lines in rows.items():
        text(root / f"Ebay_{split}.txt", "image_id class_id super_class_id path", *lines)
        pictures(root, *(line.split()[3] for line in lines))


def inshop(root: Path) -> None:
    paths = [f"img/WOMEN/Dresses/id_0000000{k}/02_1_front.jpg" for k in (1, 2, 3)]
    pictures(root, *paths)
    lines = [
        f"{path}    id_0000000{item} {split}"
        for path, item, split in zip(paths, (1, 2, 2), SPLITS, strict=True)
    ]
    text(root / "Eval/list_eval_partition.txt", "3", "image_name item_id evaluation_status", *lines)
    header = "image_name clothes_type pose_type x_1 y_1 x_2 y_2"
    text(root / "Anno/list_bbox_inshop.txt", "1", header, f"{paths[1]}    3 1 004 005 034 025")


SPLITS = ("train", "query", "gallery")


# Domains


def domainnet(root: Path) -> None:
    """Two of the six domains."""
    for domain in ("clipart", "sketch"):
        for split, k in (("train", 1), ("test", 2)):
            lines = [f"{domain}/zebra/{domain}_{k}.jpg 0", f"{domain}/ant/{domain}_{k}.jpg 1"]
            text(root / f"{domain}_{split}.txt", *lines)
            pictures(root, *(line.split()[0] for line in lines))


def minidomainnet(root: Path) -> None:
    for domain in ("clipart", "painting", "real", "sketch"):
        for split, k in (("train", 1), ("test", 2)):
            lines = [f"{domain}/zebra/{domain}_{k}.jpg 0", f"{domain}/ant/{domain}_{k}.jpg 1"]
            text(root / f"splits_mini/{domain}_{split}.txt", *lines)
            pictures(root, *(line.split()[0] for line in lines))


def conversion(name: str, domains: tuple[str, ...], label: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for file, k in (("query_files.csv", 1), ("database_files.csv", 2)):
            text(root / file, *(f"{name}/{d}/{label}/{k}.jpg {d} {label}" for d in domains))
            pictures(root, *(f"{d}/{label}/{k}.jpg" for d in domains))

    return make


NICO = ("autumn", "dim", "grass", "outdoor", "rock", "water")


def nico(root: Path) -> None:
    for domain in NICO:
        for split, k in (("train", 1), ("test", 2)):
            lines = [
                f"NICO_DG/{domain}/fishing rod/{domain}_{k}.jpg 1",
                f"NICO_DG/{domain}/bear/{domain}_{k}.jpg 0",
            ]
            text(root / f"NICO_DG_official/{domain}_{split}.txt", *lines)
            pictures(root, *(line.rpartition(" ")[0] for line in lines))


def ltll(root: Path) -> None:
    pictures(
        root, "New/images/Taj Mahal/a b.jpg", "Old/images/TajMahal/c.jpg", "Old/images/Q001/d.JPG"
    )


def ltll_listed(root: Path) -> None:
    pictures(
        root,
        "New/images/TajMahal/a_b.jpg",
        "Old/images/TajMahal/c.jpg",
        "Old/images/TajMahal/not_listed.jpg",
    )
    lines = [
        "ltll/New/images/TajMahal/a_b.jpg New TajMahal",
        "ltll/Old/images/TajMahal/c.jpg Old TajMahal",
    ]
    text(root / "full_files.csv", *lines)


def class_index(root: Path) -> None:
    """ImageNet with Keras's index of classes."""
    imagenet(root)
    index = {
        "0": ["n01440764", "tench"],
        "134": ["n02012849", "crane"],
        "517": ["n03126707", "crane"],
    }
    (root / "imagenet_class_index.json").write_text(json.dumps(index))
