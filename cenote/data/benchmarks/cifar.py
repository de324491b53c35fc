"""CIFAR-10 and CIFAR-100, as Python pickles or in the binary version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..checks import check, check_layout, errors_in
from ..collages import make_collages
from ..dataset import Dataset, pack
from ..record import Record
from ..safe_pickle import read_pickle
from .registry import benchmark

SOURCE = "cs.toronto.edu/~kriz/cifar.html"
SIDE = 32  # pixels
IMAGE_BYTES = 3 * SIDE * SIDE
Bytes = npt.NDArray[np.uint8]
CIFAR_100_TREE = (
    "train, test, meta\nor train.bin, test.bin, coarse_label_names.txt, fine_label_names.txt"
)
CIFAR_100: dict[str, Any] = {
    "inside": ("cifar-100-python", "cifar-100-binary"),
    "files": {"train": "train", "test": "test"},
    "meta": "meta",
    "names": {f"{kind}_label_names": f"{kind}_label_names.txt" for kind in ("coarse", "fine")},
}


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
        pixels = self.images[row].reshape(3, SIDE, SIDE).transpose(1, 2, 0)
        return Image.fromarray(np.ascontiguousarray(pixels))

    def mask(self, row: int) -> None:
        return None


@benchmark(
    "cifar10",
    "CIFAR-10: 50,000 training and 10,000 test images of 32 x 32 pixels",
    "data_batch_1 ... data_batch_5, test_batch, batches.meta\n"
    "or data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt",
    SOURCE,
    inside=("cifar-10-batches-py", "cifar-10-batches-bin"),
    files={**{f"data_batch_{k}": "train" for k in range(1, 6)}, "test_batch": "test"},
    meta="batches.meta",
    names={"label_names": "batches.meta.txt"},
)
@benchmark(
    "cifar100",
    "CIFAR-100: 50,000 training and 10,000 test images of 32 x 32 pixels, with superclasses",
    CIFAR_100_TREE,
    SOURCE,
    **CIFAR_100,
)
def read_cifar(root: Path, files: dict[str, str], meta: str, names: dict[str, str]) -> Dataset:
    """Read the Python version if its file `meta` exists, else the binary version.

    `files` gives the split of each file; `names` the keys of the class names in `meta`, with their
    files in the binary version.
    """
    if (root / meta).is_file():
        check_layout(root, "CIFAR, Python version", *files)
        with errors_in(root / meta):
            content = read_pickle(root / meta)
            classes = [[str(name) for name in content[key]] for key in names]
        keys = [key.replace("label_names", "labels") for key in names]
        batches = [_python_batch(root / file, split, *keys) for file, split in files.items()]
    else:
        paths = [f"{file}.bin|{file}" for file in files]
        check_layout(root, "CIFAR", *paths, *(f"{file}|{meta}" for file in names.values()))
        classes = [(root / file).read_text("utf-8", "replace").split() for file in names.values()]
        count = len(names)
        batches = [_binary_batch(root / f"{f}.bin", split, count) for f, split in files.items()]
    dataset = pack(_records(root, batches, classes), root, "CIFAR", classes[-1])
    dataset.pixels = CifarPixels(np.concatenate([batch.images for batch in batches]))
    return dataset


@benchmark(
    "cifar100-collage",
    "CIFAR-100, 2 x 2 collages of an image and three of other classes [GSP Sec. 2.2]",
    CIFAR_100_TREE,
    SOURCE,
    **CIFAR_100,
    distilled=False,
)
@benchmark(
    "cifar100-distilled",
    "CIFAR-100, the images of the collages' classes alone [GSP Fig. 3b]",
    CIFAR_100_TREE,
    SOURCE,
    **CIFAR_100,
    distilled=True,
)
def read_collages(root: Path, distilled: bool, **options: Any) -> Dataset:
    return make_collages(read_cifar(root, **options), SIDE, distilled=distilled)


def _records(root: Path, batches: list[CifarBatch], names: Sequence[list[str]]) -> Iterator[Record]:
    for batch in batches:
        for i, numbers in enumerate(batch.labels):
            with errors_in(root / batch.name):
                check(min(numbers) >= 0, f"label {min(numbers)} of image {i}")
                *coarse, fine = (words[k] for words, k in zip(names, numbers, strict=True))
            attributes = {"superclass": coarse[0]} if coarse else {}
            yield Record(f"{batch.name}:{i}", fine, batch.split, attributes=attributes)


def _python_batch(path: Path, split: str, *keys: str) -> CifarBatch:
    with errors_in(path):
        content = read_pickle(path)
        images = content["data"]
        check(images.shape[1:] == (IMAGE_BYTES,), f"an image has {IMAGE_BYTES} bytes")
        check(images.dtype == np.uint8, "the images are not bytes")
        labels = np.array([content[key] for key in keys], np.int64).T
        return CifarBatch(path.name, split, images, labels.reshape(len(images), len(keys)))


def _binary_batch(path: Path, split: str, labels: int) -> CifarBatch:
    with errors_in(path):
        rows = np.fromfile(path, np.uint8).reshape(-1, labels + IMAGE_BYTES)
        check(len(rows), "it is empty")
    return CifarBatch(path.name, split, rows[:, labels:], rows[:, :labels].astype(np.int64))
