"""ImageNet-1k, in the layout of image-net.org or Kaggle, and two subsets of it.

A class is named by the first of its names if a file has them (LOC_synset_mapping.txt,
imagenet_class_index.json, the devkit), else by its wnid. The classes are in the order of the wnids,
and every image has its wnid as an attribute.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record
from .imagenet_metadata import box_reader, class_names, validation_wnids, wnids_in
from .parsing import folders, images, layout_error, parse_lines
from .registry import benchmark

TREE = """\
train/n01440764/*.JPEG
val/n01440764/*.JPEG (or val/*.JPEG with LOC_val_solution.csv or ILSVRC2012_devkit_t12/data/)
or ILSVRC/Data/CLS-LOC/train/ and val/, as Kaggle has them
LOC_synset_mapping.txt, LOC_train_solution.csv, LOC_val_solution.csv (optional: names, boxes)"""
SOURCE = "image-net.org, ILSVRC 2012; or Kaggle, imagenet-object-localization-challenge"
IMAGES_20PC = 260  # per class: a fifth of the usual 1,300, as SimPool's authors take them

# The classes of Contrastive Multiview Coding, the usual ImageNet-100.
IMAGENET_100 = """
n01558993 n01692333 n01729322 n01735189 n01749939 n01773797 n01820546 n01855672 n01978455 n01980166
n01983481 n02009229 n02018207 n02085620 n02086240 n02086910 n02087046 n02089867 n02089973 n02090622
n02091831 n02093428 n02099849 n02100583 n02104029 n02105505 n02106550 n02107142 n02108089 n02109047
n02113799 n02113978 n02114855 n02116738 n02119022 n02123045 n02138441 n02172182 n02231487 n02259212
n02326432 n02396427 n02483362 n02488291 n02701002 n02788148 n02804414 n02859443 n02869837 n02877765
n02974003 n03017168 n03032252 n03062245 n03085013 n03259280 n03379051 n03424325 n03492542 n03494278
n03530642 n03584829 n03594734 n03637318 n03642806 n03764736 n03775546 n03777754 n03785016 n03787032
n03794056 n03837869 n03891251 n03903868 n03930630 n03947888 n04026417 n04067472 n04099969 n04111531
n04127249 n04136333 n04229816 n04238763 n04336792 n04418357 n04429376 n04435653 n04485082 n04493381
n04517823 n04589890 n04592741 n07714571 n07715103 n07753275 n07831146 n07836838 n13037406 n13040303
"""


@benchmark(
    "imagenet", "ImageNet-1k: training and validation images, boxes if available", TREE, SOURCE
)
def read_imagenet(root: Path) -> Dataset:
    return _read(root, "imagenet")


@benchmark(
    "imagenet-20pc",
    f"ImageNet-20%: the first {IMAGES_20PC} training images of each class, all of val",
    TREE,
    SOURCE,
)
def read_imagenet_20pc(root: Path) -> Dataset:
    return _read(root, "imagenet-20pc", limit=IMAGES_20PC)


@benchmark(
    "imagenet-100",
    "ImageNet-100: the 100 classes of CMC, or those of imagenet100.txt",
    f"{TREE}\nimagenet100.txt (optional: other classes, one wnid per line)",
    SOURCE,
)
def read_imagenet_100(root: Path) -> Dataset:
    path = root / "imagenet100.txt"
    wnids = parse_lines(path, str, 1) if path.is_file() else IMAGENET_100.split()
    return _read(root, "imagenet-100", only=set(wnids))


def _read(
    root: Path, name: str, limit: int | None = None, only: Collection[str] | None = None
) -> Dataset:
    check_layout(root, "ImageNet-1k", "train/|val/|ILSVRC/Data/CLS-LOC/")
    prefix = "" if (root / "train").is_dir() or (root / "val").is_dir() else "ILSVRC/Data/CLS-LOC/"
    if limit is not None and not (root / prefix / "train").is_dir():
        raise layout_error(root / prefix, "ImageNet-1k with training images", "train/")
    titles = class_names(root).items()
    names = {wnid: title for wnid, title in titles if only is None or wnid in only}
    records = _records(root, prefix, names, limit, only)
    dataset = pack(records, root, name, list(names.values()) or None)
    if not len(dataset):
        expected = "class folders such as train/n01440764/ or val/n01440764/"
        raise layout_error(root / prefix, "ImageNet-1k", expected)
    return dataset


def _records(
    root: Path, prefix: str, names: dict[str, str], limit: int | None, only: Collection[str] | None
) -> Iterator[Record]:
    for split in ("train", "val"):
        folder = f"{prefix}{split}"
        if not (root / folder).is_dir():
            continue
        boxes = box_reader(root, split)
        for path, wnid in _files(root, folder, split, limit if split == "train" else None):
            if only is None or wnid in only:
                label, stem = names.get(wnid, wnid), os.path.splitext(os.path.basename(path))[0]
                yield Record(path, label, split, boxes(stem, wnid), attributes={"wnid": wnid})


def _files(root: Path, folder: str, split: str, limit: int | None) -> Iterator[tuple[str, str]]:
    """Yield paths with their wnids, from class folders or, for val, from the list of labels."""
    wnids = wnids_in(folders(root / folder))
    for wnid in wnids:
        for name in images(root / folder / wnid)[:limit]:
            yield f"{folder}/{wnid}/{name}", wnid
    if wnids or split != "val" or not (names := images(root / folder)):
        return
    labels = validation_wnids(root, folder)
    for name in names:
        stem = os.path.splitext(name)[0]
        check(stem in labels, f"{root / folder / name} is not in the list of validation images")
        yield f"{folder}/{name}", labels[stem]
