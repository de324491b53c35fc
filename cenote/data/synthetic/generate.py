"""Draw a world on all cores, into memory or as files: PNG images and masks, and a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from ...progress import progress_bar
from ..checks import check
from ..dataset import Dataset, pack
from ..files import write_atomically, write_text
from ..images import BadImage, open_raw
from ..processes import available_cores, map_in_processes
from ..record import Record
from .drawing import Pixels, World, make_record
from .settings import WorldSettings

T = TypeVar("T")
VERSION = 1  # of the drawing: changes when the same settings give other pixels
MIN_IMAGES_PER_PROCESS = 200  # fewer are drawn sooner than a process starts
# Colors of masks, for viewers.
PALETTE = (0, 0, 0, 236, 120, 80, 92, 170, 220, 240, 210, 90, 140, 200, 120)


class SyntheticPixels:
    """Image (H, W, 3) and mask (H, W) of each row; the masks number the objects from 1."""

    def __init__(self, layers: list[tuple[Pixels, Pixels]]) -> None:
        self.layers = layers

    def image(self, row: int) -> Image.Image:
        return Image.fromarray(self.layers[row][0])

    def mask(self, row: int) -> Pixels:
        return np.asarray(self.layers[row][1] > 0, np.uint8)


def world(
    source: str | World, jobs: int | None = None, progress: bool = True, **changes: Any
) -> Dataset:
    """Draw a world into memory: `world("tiny", seed=1)`, `world(World(images=10))`."""
    name = "world"
    if isinstance(source, str):
        name = f"world/{source.removeprefix('world/')}"
        source = World.preset(source, **changes)
    else:
        check(not changes, f"settings ({', '.join(changes)}) can only change a preset")
    drawings = list(for_each_image(_draw, source, len(source), jobs, progress))
    dataset = pack((record for _, _, record in drawings), Path(), name)
    dataset.pixels = SyntheticPixels([(pixels, mask) for pixels, mask, _ in drawings])
    return dataset


def _draw(source: World, i: int) -> tuple[Pixels, Pixels, Record]:
    drawn = source.draw(i)
    return drawn.pixels, drawn.mask, drawn.record


def write_world(source: World, out: Path, jobs: int | None = None, progress: bool = True) -> None:
    """Write OUT/images, OUT/masks, annotations.jsonl, classes.txt and world.json.

    It can be stopped and resumed, and images can be added to a finished world.
    """
    out = Path(out)
    _prepare(source, out)
    records = list(for_each_image(_write, (source, out), len(source), jobs, progress))
    classes = sorted({record.label or "" for record in records})
    write_text(out / "classes.txt", "".join(f"{label}\n" for label in classes))
    # The list is written last: if it exists, the world is complete.
    lines = (f"{json.dumps(_annotation(record))}\n" for record in records)
    write_text(out / "annotations.jsonl", "".join(lines))


def read_settings(out: Path) -> WorldSettings:
    """Return the settings of a written world."""
    path = Path(out) / "world.json"
    damaged = f"{path} is damaged: remove the folder, or choose another one"
    try:
        values = json.loads(path.read_text())
        version = values.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(damaged) from error
    check(version == VERSION, f"{path} has version {version}, not {VERSION}: choose another folder")
    try:
        return WorldSettings(**values)
    except TypeError as error:  # an unknown setting, or a value of the wrong type
        raise ValueError(damaged) from error


def _prepare(source: World, out: Path) -> None:
    """Write the settings; the folder must be empty or have the same settings."""
    check(out.is_dir() or not out.exists(), f"{out} is a file: give a folder")
    settings = asdict(source.settings)
    if (out / "world.json").is_file():
        existing = asdict(read_settings(out))
        different = [k for k in settings if k != "images" and settings[k] != existing[k]]
        names, images = ", ".join(different), existing["images"]
        check(not different, f"{out} has a world with another {names}: choose another folder")
        check(
            settings["images"] >= images,
            f"{out} has a world of {images} images, more than {settings['images']}",
        )
    else:
        empty = not out.is_dir() or not any(out.iterdir())
        check(empty, f"{out} is not empty and contains no world: choose another folder")
    write_text(out / "world.json", json.dumps({"version": VERSION, **settings}, indent=1) + "\n")


def _write(target: tuple[World, Path], i: int) -> Record:
    source, out = target
    plan = source.plan(i)
    record = make_record(plan, i, np.zeros((1, 1), np.uint8))
    image, mask = out / record.image, out / record.masks[0]
    if image.is_file() and mask.is_file():
        try:
            return make_record(plan, i, np.asarray(open_raw(mask)))
        except BadImage:
            pass  # damaged: draw it again
    drawn = source.draw(i)
    mask_image = Image.fromarray(drawn.mask)
    mask_image.putpalette(PALETTE)
    for path, content in ((mask, mask_image), (image, drawn.image)):
        with write_atomically(path) as temporary:
            content.save(temporary, compress_level=4)
    return drawn.record


def _annotation(record: Record) -> dict[str, object]:
    return {
        "file": record.image,
        "label": record.label,
        "split": record.split,
        "boxes": [list(box[:4]) for box in record.boxes],
        "mask": record.masks[0],
        "domain": record.domain,
        "attributes": dict(record.attributes),
        "caption": record.caption,
    }


def for_each_image(
    function: Callable[[Any, int], T],
    shared: Any,
    images: int,
    jobs: int | None = None,
    progress: bool = True,
) -> Iterable[T]:
    """Return `function(shared, i)` for every image, in order, with a progress bar."""
    jobs = min(jobs or available_cores(), max(images // MIN_IMAGES_PER_PROCESS, 1))
    results = map_in_processes(function, shared, range(images), 0 if jobs == 1 else jobs)
    bar: Iterable[T] = progress_bar("drawing", images, hidden=not progress, iterable=results)
    return bar
