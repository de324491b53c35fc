"""A world as files that any tool can read: PNG images and masks, and a list of every truth."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from ..dataset import Dataset, pack
from ..files import write_atomically
from ..images import BadImage, open_raw
from ..record import Record
from ..table import natural
from .drawing import Picture, World, record_of
from .settings import Settings, settings_of
from .sheet import draw_sheet

VERSION = 1  # of the drawing: it changes when the same settings give other pixels
PALETTE = (
    0,
    0,
    0,
    236,
    120,
    80,
    92,
    170,
    220,
    240,
    210,
    90,
    140,
    200,
    120,
)  # of masks, for the eye


def write_world(
    world: World, out: Path, jobs: int | None = None, progress: bool = True, sheet: bool = True
) -> None:
    """OUT/images, OUT/masks, annotations.jsonl, classes.txt, world.json and sheet.png.

    It can be stopped and started again, and a finished world can be given more images.
    """
    out = Path(out)
    _prepare(world, out)
    lines = [_line(record) for record in over(_write, world, out, jobs=jobs, progress=progress)]
    if sheet:
        with write_atomically(out / "sheet.png") as path:
            draw_sheet(world).save(path)
    found = sorted({line["label"] for line in lines}, key=natural)
    _save_text(out / "classes.txt", "".join(f"{label}\n" for label in found))
    # Last: who finds this list finds the whole world.
    _save_text(out / "annotations.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))


def read_settings(out: Path) -> Settings:
    """The settings of a written world."""
    path = Path(out) / "world.json"
    try:
        given = json.loads(path.read_text())
        version = given.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged: remove it with the folder, or choose another one"
        ) from error
    if version != VERSION:
        raise ValueError(
            f"{path} is of version {version}, this is version {VERSION}: choose another folder"
        )
    return settings_of(
        None, **{key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    )


def _prepare(world: World, out: Path) -> None:
    """Only an empty folder, or one that holds the beginning of this very world."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: give a folder")
    settings = world.settings.as_json()
    if (out / "world.json").is_file():
        old = read_settings(out).as_json()
        other = [key for key in settings if key != "images" and settings[key] != old[key]]
        if other:
            raise ValueError(
                f"{out} holds a world with another {', '.join(other)}: choose another folder"
            )
        if settings["images"] < old["images"]:
            raise ValueError(
                f"{out} holds a world of {old['images']} images, more than {settings['images']}"
            )
    elif out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty and holds no world: choose another folder")
    _save_text(out / "world.json", json.dumps({"version": VERSION, **settings}, indent=1) + "\n")


def _write(world: World, i: int, out: Path) -> Record:
    record = record_of(world.plan(i), i, np.zeros((1, 1), np.uint8))
    image, mask = out / record.image, out / record.masks[0]
    if image.is_file() and mask.is_file():
        try:
            return record_of(world.plan(i), i, np.asarray(open_raw(mask)))
        except BadImage:
            pass  # somebody damaged it: draw it again
    drawn = world.draw(i)
    _save_png(mask, drawn.mask, palette=True)
    _save_png(image, drawn.pixels)
    return drawn.record


def _save_png(path: Path, pixels: Picture, palette: bool = False) -> None:
    image = Image.fromarray(pixels)
    if palette:
        image.putpalette(PALETTE)
    with write_atomically(path) as temporary:
        image.save(temporary, compress_level=4)


def _save_text(path: Path, text: str) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _line(record: Record) -> dict[str, Any]:
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


T = TypeVar("T")
FEW = 200  # images a process must have to do to be worth its start
_work: tuple[Callable[..., Any], World, tuple[Any, ...]]


def over(
    task: Callable[..., T], world: World, *args: Any, jobs: int | None = None, progress: bool = True
) -> Iterator[T]:
    """`task(world, i, *args)` for every image, in order."""
    jobs = min(jobs or _cores(), max(len(world) // FEW, 1))
    bar: dict[str, Any] = {
        "total": len(world),
        "unit": "image",
        "disable": None if progress else True,
        "file": sys.stderr,
    }
    if jobs == 1 or multiprocessing.current_process().daemon:  # a daemon may not have children
        yield from tqdm((task(world, i, *args) for i in range(len(world))), **bar)
        return
    # Where it can, it forks: that needs no `if __name__ == "__main__"` in the caller's script. The children only draw.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forking beside threads, which they do not touch
        pool = context.Pool(jobs, _start, (task, world, args))
    with pool:
        yield from tqdm(pool.imap(_one, range(len(world)), chunksize=16), **bar)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(task: Callable[..., Any], world: World, args: tuple[Any, ...]) -> None:
    global _work
    _work = (task, world, args)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends its children


def _one(i: int) -> Any:
    task, world, args = _work
    return task(world, i, *args)


class Drawings:
    """All images (N, H, W, 3) and masks (N, H, W) of a world; the masks number the objects from 1."""

    def __init__(self, images: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8]) -> None:
        self.images, self.masks = images, masks

    def image(self, row: int) -> Image.Image:
        return Image.fromarray(self.images[row])

    def mask(self, row: int) -> npt.NDArray[np.uint8]:
        return np.asarray(self.masks[row] > 0, np.uint8)


def world(
    what: str | World | Settings, jobs: int | None = None, progress: bool = True, **changes: Any
) -> Dataset:
    """`world("world/small")`, `world("tiny", seed=1)` or `world(World(...))`, drawn into memory."""
    if isinstance(what, str):
        plan, name = World.preset(what, **changes), f"world/{what.removeprefix('world/')}"
    elif changes:
        raise ValueError(
            f"only a preset takes other settings ({', '.join(changes)}): a World has its own"
        )
    else:
        plan, name = what if isinstance(what, World) else World.of(what), "world"
    size = plan.settings.size
    images = np.empty((len(plan), size, size, 3), np.uint8)
    masks = np.empty((len(plan), size, size), np.uint8)
    records = []
    for i, (pixels, mask, record) in enumerate(over(_draw, plan, jobs=jobs, progress=progress)):
        images[i], masks[i] = pixels, mask
        records.append(record)
    dataset = pack(records, Path(), name)
    dataset.pixels = Drawings(images, masks)
    return dataset


def _draw(plan: World, i: int) -> tuple[Picture, Picture, Record]:
    drawn = plan.draw(i)
    return drawn.pixels, drawn.mask, drawn.record
