"""A world as files that any tool can read: PNG images and masks, and a list of every truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..columns import natural
from ..files import write_atomically
from ..images import BadImage, open_raw
from ..record import Record
from .drawing import Picture, World, record_of
from .settings import Settings, settings_of
from .sheet import draw_sheet
from .workers import over

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
