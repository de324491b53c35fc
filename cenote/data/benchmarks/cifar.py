"""CIFAR-10 and CIFAR-100, as Python pickles or in the binary version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..checks import check, check_layout
from ..dataset import Dataset, pack
from ..record import Record
from ..safe_pickle import read_pickle
from .registry import benchmark

SOURCE = "cs.toronto.edu/~kriz/cifar.html"
IMAGE_BYTES = 3 * 32 * 32
CIFAR10_FILES = {**{f"data_batch_{k}": "train" for k in range(1, 6)}, "test_batch": "test"}
Bytes = npt.NDArray[np.uint8]


class CifarBatch(NamedTuple):
    """The images of one file, three planes each, and their labels: fine, or coarse and fine."""

    name: str
    split: str
    images: Bytes
    labels: npt.NDArray[np.int64]


class CifarPixels:
    """Images from planes of red, green and blue in memory."""

    def __init__(self, images: Bytes) -> None:
        self.images = images

    def image(self, row: int) -> Image.Image:
        pixels = self.images[row].reshape(3, 32, 32).transpose(1, 2, 0)
        return Image.fromarray(np.ascontiguousarray(pixels))

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
    root = _inner(root, "cifar-10-batches-py", "cifar-10-batches-bin")
    files = CIFAR10_FILES.items()
    if (root / "batches.meta").is_file():
        check_layout(root, "CIFAR-10, Python version", *CIFAR10_FILES, "batches.meta")
        classes = _python_names(root / "batches.meta", "label_names")
        batches = [_python_batch(root / file, split, "labels") for file, split in files]
    else:
        paths = [f"{file}.bin|{file}" for file in CIFAR10_FILES]
        check_layout(root, "CIFAR-10", *paths, "batches.meta.txt|batches.meta")
        classes = [_words(root / "batches.meta.txt")]
        batches = [_binary_batch(root / f"{file}.bin", split, 1) for file, split in files]
    return _read(root, "cifar10", batches, classes)


@benchmark(
    "cifar100",
    "CIFAR-100: 50,000 training and 10,000 test images of 32 x 32 pixels, with superclasses",
    "train, test, meta\nor train.bin, test.bin, coarse_label_names.txt, fine_label_names.txt",
    SOURCE,
)
def read_cifar100(root: Path) -> Dataset:
    root = _inner(root, "cifar-100-python", "cifar-100-binary")
    splits, kinds = ("train", "test"), ("coarse", "fine")
    if (root / "meta").is_file():
        check_layout(root, "CIFAR-100, Python version", *splits, "meta")
        names = _python_names(root / "meta", *(f"{kind}_label_names" for kind in kinds))
        keys = [f"{kind}_labels" for kind in kinds]
        batches = [_python_batch(root / split, split, *keys) for split in splits]
    else:
        files = [f"{kind}_label_names.txt" for kind in kinds]
        paths = [*(f"{split}.bin|{split}" for split in splits), *(f"{file}|meta" for file in files)]
        check_layout(root, "CIFAR-100", *paths)
        names = [_words(root / file) for file in files]
        batches = [_binary_batch(root / f"{split}.bin", split, 2) for split in splits]
    return _read(root, "cifar100", batches, names)


def _read(root: Path, name: str, batches: list[CifarBatch], names: Sequence[list[str]]) -> Dataset:
    dataset = pack(_records(root, batches, names), root, name, names[-1])
    dataset.pixels = CifarPixels(np.concatenate([batch.images for batch in batches]))
    return dataset


def _records(root: Path, batches: list[CifarBatch], names: Sequence[list[str]]) -> Iterator[Record]:
    counts = np.array([len(words) for words in names])
    for batch in batches:
        unknown = ((batch.labels < 0) | (batch.labels >= counts)).any(1)
        i = int(unknown.argmax())
        check(
            not unknown.any(),
            f"{root / batch.name}, image {i}: label {batch.labels[i].tolist()}, "
            f"but there are {' and '.join(map(str, counts))} names",
        )
        for i, numbers in enumerate(batch.labels):
            *coarse, fine = (words[k] for words, k in zip(names, numbers, strict=True))
            attributes = {"superclass": coarse[0]} if coarse else {}
            yield Record(f"{batch.name}:{i}", fine, batch.split, attributes=attributes)


def _inner(root: Path, *names: str) -> Path:
    """Return the archive's folder, if it is in the root."""
    return next((root / name for name in names if (root / name).is_dir()), root)


def _python_batch(path: Path, split: str, *keys: str) -> CifarBatch:
    content = _read_table(path, "data", *keys)
    images, labels = content["data"], [content[key] for key in keys]
    shape: tuple[int, ...] = getattr(images, "shape", ())
    check(
        shape[1:] == (IMAGE_BYTES,) and images.dtype == np.uint8,
        f"{path}: expected a row of {IMAGE_BYTES} bytes per image",
    )
    check(
        all(isinstance(values, list) and len(values) == shape[0] for values in labels),
        f"{path}: expected {shape[0]} labels, one per image",
    )
    return CifarBatch(path.name, split, images, np.array(labels, np.int64).T)


def _python_names(path: Path, *keys: str) -> list[list[str]]:
    content = _read_table(path, *keys)
    return [[str(name) for name in content[key]] for key in keys]


def _read_table(path: Path, *keys: str) -> dict[str, Any]:
    content = read_pickle(path)
    if isinstance(content, dict) and all(key in content for key in keys):
        return content
    raise ValueError(f"{path}: expected a table with {', '.join(keys)}")


def _binary_batch(path: Path, split: str, labels: int) -> CifarBatch:
    content, row = np.fromfile(path, np.uint8), IMAGE_BYTES + labels
    check(
        content.size and content.size % row == 0,
        f"{path}: {content.size} bytes are not a multiple of {row} per image",
    )
    rows = content.reshape(-1, row)
    return CifarBatch(path.name, split, rows[:, labels:], rows[:, :labels].astype(np.int64))


def _words(path: Path) -> list[str]:
    return path.read_text("utf-8", "replace").split()
