"""Every image opened once, in many processes: whether it can be read, and what is odd about it."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from .dataset import Dataset, images_are_files
from .digests import digests
from .images import BadImage

FEW = 64  # images that are opened sooner than processes are started
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
ALIKE = {"MPO": "JPEG", "DIB": "BMP"}  # other names of one format


class Look(NamedTuple):
    """What one image turned out to be. `reason` says why it cannot be read, and then nothing else is known."""

    position: int
    reason: str | None = None
    size: tuple[int, int] = (0, 0)  # upright
    weight: int | str = 0  # bytes of the file, or the pixels' hash where there is no file
    format: str | None = None
    odd: tuple[str, ...] = ()  # what was unusual, and was dealt with
    mask: str | None = None  # what is wrong with it
    has_mask: bool = False
    boxes: tuple[str, ...] = ()  # what is wrong with each that is wrong


def inspect(
    dataset: Dataset, positions: Sequence[int], workers: int | None = None
) -> Iterator[Look]:
    """One look at each of these images, in order."""
    workers = _cores() if workers is None else workers
    if workers < 1 or len(positions) <= FEW:
        yield from (_look(position, dataset) for position in positions)
        return
    pool = ProcessPoolExecutor(workers, initializer=_share, initargs=(dataset,))
    try:
        yield from pool.map(
            _look, positions, chunksize=max(1, min(64, len(positions) // (4 * workers)))
        )
    except BrokenProcessPool as error:
        raise OSError(
            "a process that opened images died, of too little memory perhaps: try fewer workers"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def same_content(dataset: Dataset, looks: Iterable[Look]) -> list[list[int]]:
    """Groups of images with the same bytes: only files of the same length are read again."""
    by_weight = _groups((look.weight, look.position) for look in looks if look.reason is None)
    if not images_are_files(dataset.pixels):
        return sorted(by_weight)
    suspects = sorted(position for group in by_weight for position in group)
    found = zip(digests(dataset.select(suspects)), suspects, strict=True)
    return sorted(_groups((digest, position) for digest, position in found if digest))


def _groups(items: Iterable[tuple[Any, int]]) -> list[list[int]]:
    """Positions that share a key with another."""
    found: dict[Any, list[int]] = {}
    for key, position in items:
        found.setdefault(key, []).append(position)
    return [group for group in found.values() if len(group) > 1]


_shared: list[Dataset] = []  # in a worker: the dataset, handed over once


def _share(dataset: Dataset) -> None:
    _shared[:] = [dataset]


def _look(position: int, dataset: Dataset | None = None) -> Look:
    dataset = _shared[0] if dataset is None else dataset
    try:
        image = dataset.image(position)
    except BadImage as error:
        return Look(position, error.reason)
    mask_fault, has_mask = _mask_fault(dataset, position, image.size)
    boxes = tuple(_box_faults(dataset, position, image.size))
    if not images_are_files(dataset.pixels):
        weight = hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()
        return Look(position, None, image.size, weight, None, (), mask_fault, has_mask, boxes)
    path = dataset.path(position)
    file_format, odd = _header(path)
    weight_of_file = path.stat().st_size
    return Look(
        position, None, image.size, weight_of_file, file_format, odd, mask_fault, has_mask, boxes
    )


def _header(path: Path) -> tuple[str | None, tuple[str, ...]]:
    """The format by content, and what read_image had to deal with."""
    odd: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path) as image:
            form = ALIKE.get(image.format or "", image.format)
            named = Image.registered_extensions().get(path.suffix.lower())
            if named is not None and ALIKE.get(named, named) != form:
                odd.append(f"{form} named {path.suffix}")
            odd += ["CMYK"] * (image.mode == "CMYK") + ["16 bits or more"] * (image.mode in DEEP)
            odd += ["palette"] * (image.mode in ("P", "PA")) + ["greyscale"] * (
                image.mode in ("1", "L", "LA")
            )
            odd += ["transparent"] * (
                image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
            )
            odd += ["animated"] * (
                getattr(image, "n_frames", 1) > 1 and form != "JPEG"
            )  # phones add a small preview
            try:
                odd += ["turned by EXIF"] * (image.getexif().get(0x0112, 1) in range(2, 9))
            except Exception:  # malformed EXIF: the picture was read without it
                odd.append("malformed EXIF")
    return form, tuple(odd)


def _mask_fault(dataset: Dataset, position: int, size: tuple[int, int]) -> tuple[str | None, bool]:
    try:
        mask = dataset.mask(position)
    except BadImage as error:
        return str(error), True
    if mask is None:
        return None, False
    if mask.shape != size[::-1]:
        return (
            f"the mask is {mask.shape[1]} x {mask.shape[0]} pixels, the image {size[0]} x {size[1]}",
            True,
        )
    return None, True


def _box_faults(dataset: Dataset, position: int, size: tuple[int, int]) -> Iterator[str]:
    """A pixel beyond the border is rounding, more is not."""
    for x1, y1, x2, y2, *_ in dataset[position].boxes:
        told = f"box {x1:g}, {y1:g}, {x2:g}, {y2:g}"
        if not (x1 < x2 and y1 < y2):
            yield f"{told} is empty"
        elif x1 < -1 or y1 < -1 or x2 > size[0] + 1 or y2 > size[1] + 1:
            yield f"{told} reaches out of the image of {size[0]} x {size[1]} pixels"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
