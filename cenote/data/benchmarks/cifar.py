"""CIFAR-10 and CIFAR-100, as Python pickles or in the binary version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..dataset import Dataset, pack
from ..layout import check_layout
from ..record import Record
from ..safe_pickle import read_pickle
from .registry import benchmark

SOURCE = "cs.toronto.edu/~kriz/cifar.html"
PIXELS = 3 * 32 * 32
TRAINING = [f"data_batch_{k}" for k in range(1, 6)]
Bytes = npt.NDArray[np.uint8]


class Batch(NamedTuple):
    """The images of one file, three planes each, and their labels: fine, or coarse and fine."""

    name: str
    split: str
    images: Bytes
    labels: npt.NDArray[np.int64]


class Planes:
    """Images from planes of red, green and blue that lie in memory."""

    def __init__(self, images: Bytes) -> None:
        self.images = images

    def image(self, row: int) -> Image.Image:
        return Image.fromarray(
            np.ascontiguousarray(self.images[row].reshape(3, 32, 32).transpose(1, 2, 0))
        )

    def mask(self, row: int) -> None:
        return None


@benchmark(
    "cifar10",
    "CIFAR-10: 50,000 training and 10,000 test images of 32 x 32 pixels",
    "data_batch_1 ... data_batch_5, test_batch, batches.meta\n"
    "or data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt",
    SOURCE,
)
def read_cifar10(root: Path) -> Dataset:
    root = _inside(root, "cifar-10-batches-py", "cifar-10-batches-bin")
    files = [(file, "train") for file in TRAINING] + [("test_batch", "test")]
    if (root / "batches.meta").is_file():
        check_layout(root, "CIFAR-10, Python version", *(file for file, _ in files), "batches.meta")
        (classes,) = _python_names(root / "batches.meta", "label_names")
        return _read(
            root,
            "cifar10",
            [_python_batch(root / f, split, "labels") for f, split in files],
            [classes],
        )
    check_layout(
        root,
        "CIFAR-10",
        *(f"{file}.bin|{file}" for file, _ in files),
        "batches.meta.txt|batches.meta",
    )
    classes = _lines(root / "batches.meta.txt")
    return _read(
        root,
        "cifar10",
        [_binary_batch(root / f"{f}.bin", split, 1) for f, split in files],
        [classes],
    )


@benchmark(
    "cifar100",
    "CIFAR-100: 50,000 training and 10,000 test images of 32 x 32 pixels, with superclasses",
    "train, test, meta\nor train.bin, test.bin, coarse_label_names.txt, fine_label_names.txt",
    SOURCE,
)
def read_cifar100(root: Path) -> Dataset:
    root = _inside(root, "cifar-100-python", "cifar-100-binary")
    splits = ("train", "test")
    if (root / "meta").is_file():
        check_layout(root, "CIFAR-100, Python version", *splits, "meta")
        names = _python_names(root / "meta", "coarse_label_names", "fine_label_names")
        batches = [
            _python_batch(root / split, split, "coarse_labels", "fine_labels") for split in splits
        ]
        return _read(root, "cifar100", batches, names)
    coarse, fine = "coarse_label_names.txt", "fine_label_names.txt"
    check_layout(
        root, "CIFAR-100", "train.bin|train", "test.bin|test", f"{coarse}|meta", f"{fine}|meta"
    )
    batches = [_binary_batch(root / f"{split}.bin", split, 2) for split in splits]
    return _read(root, "cifar100", batches, [_lines(root / coarse), _lines(root / fine)])


def _read(root: Path, name: str, batches: list[Batch], names: Sequence[list[str]]) -> Dataset:
    dataset = pack(_records(root, batches, names), root, name, names[-1])
    dataset.pixels = Planes(np.concatenate([batch.images for batch in batches]))
    return dataset


def _records(root: Path, batches: list[Batch], names: Sequence[list[str]]) -> Iterator[Record]:
    for batch in batches:
        for place, labels in enumerate(batch.labels):
            if not all(0 <= label < len(known) for label, known in zip(labels, names, strict=True)):
                counts = " and ".join(str(len(known)) for known in names)
                raise ValueError(
                    f"{root / batch.name}, image {place}: label {labels.tolist()}, there are {counts} names"
                )
            found = [known[label] for label, known in zip(labels, names, strict=True)]
            attributes = {"superclass": found[0]} if len(found) > 1 else {}
            yield Record(f"{batch.name}:{place}", found[-1], batch.split, attributes=attributes)


def _inside(root: Path, *folders: str) -> Path:
    """The archives make a folder of their own; either may be given."""
    return next((root / folder for folder in folders if (root / folder).is_dir()), root)


def _python_batch(path: Path, split: str, *keys: str) -> Batch:
    content = _table(path, "data", *keys)
    images, labels = content["data"], [content[key] for key in keys]
    if not (
        isinstance(images, np.ndarray)
        and images.dtype == np.uint8
        and images.shape == (len(images), PIXELS)
    ):
        raise ValueError(f"{path}: expected rows of {PIXELS} bytes, one an image")
    if any(not isinstance(found, list) or len(found) != len(images) for found in labels):
        raise ValueError(f"{path}: expected {len(images)} labels, as many as images")
    return Batch(path.name, split, images, np.array(labels, np.int64).T)


def _python_names(path: Path, *keys: str) -> list[list[str]]:
    content = _table(path, *keys)
    return [[str(name) for name in content[key]] for key in keys]


def _table(path: Path, *keys: str) -> dict[str, Any]:
    content = read_pickle(path)
    if not isinstance(content, dict) or not all(key in content for key in keys):
        raise ValueError(f"{path}: expected a table with {', '.join(keys)}")
    return content


def _binary_batch(path: Path, split: str, labels: int) -> Batch:
    content = np.fromfile(path, np.uint8)
    if not content.size or content.size % (PIXELS + labels):
        raise ValueError(
            f"{path}: {content.size} bytes are no whole number of images of {PIXELS + labels}"
        )
    rows = content.reshape(-1, PIXELS + labels)
    return Batch(path.name, split, rows[:, labels:], rows[:, :labels].astype(np.int64))


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", "replace").split()
