"""Draws the animated picture of README.md from what the commands wrote.

    cenote demo -o DEMO
    python docs/tour.py DEMO

shows the demo's images, table, maps, boxes and search, and what `cenote attend` does with two photographs, in
docs/tour.webp. The demo's images are not chosen by their outcome: it takes them for its boxes and for its query. The
two photographs are chosen: the object maps of two others, an astronaut and a rocket, were worse. They are of
scikit-image, CC0, by Stéfan van der Walt and Rachel Michetti.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import skimage.data
from PIL import Image, ImageDraw, ImageFont

from cenote.cli import main as cenote
from cenote.data import write_atomically
from cenote.report.maps import draw_box
from cenote.report.sheet import INK, PAPER

TOUR = Path(__file__).parent / "tour.webp"
STEPS = ("folder", "verdict", "maps", "boxes", "search", "photographs")
WIDTH, HEIGHT, MARGIN, GAP, TOP = 800, 440, 20, 10, 92
PALE, TERMINAL, PROMPT = (150, 148, 142), (38, 38, 44), (236, 236, 230)
SECONDS, QUALITY = 2.8, 82
COLUMNS = {"accuracy": 10, "behind": 9, "params": 6, "boxes": 5}  # of the table, with widths
PHOTOGRAPHS = ("chelsea.png", "coffee.png")
Tile = tuple[Image.Image, str]


@cache
def font(size: int, name: str = "DejaVuSans") -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf", size
    )


def frame(step: str, command: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return a frame with the names of all steps, and the command of this one."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(picture)
    x: float = MARGIN
    for name in STEPS:
        letters = font(17, "DejaVuSans-Bold" if name == step else "DejaVuSans")
        draw.text((x, 12), name, INK if name == step else PALE, letters)
        x += draw.textlength(name, letters)
        if name != STEPS[-1]:
            draw.text((x + 9, 12), "→", PALE, font(17))
            x += 36
    draw.rounded_rectangle((MARGIN, 42, WIDTH - MARGIN, 76), 6, TERMINAL)
    shown = textwrap.shorten(f"$ {command}", 76, placeholder=" …")
    draw.text((MARGIN + 12, 49), shown, PROMPT, font(16, "DejaVuSansMono"))
    return picture, draw


def grid(picture: Image.Image, tiles: list[Tile], columns: int, left: int = MARGIN) -> None:
    """Paste pictures with a line of text below each, as large as the frame allows."""
    draw, rows = ImageDraw.Draw(picture), -(-len(tiles) // columns)
    room = (WIDTH - left - MARGIN + GAP) // columns - GAP
    width, height = tiles[0][0].size
    room = min(room, ((HEIGHT - TOP) // rows - 28) * width // height)
    size = (room, round(room * height / width))
    for i, (tile, text) in enumerate(tiles):
        x, y = left + i % columns * (size[0] + GAP), TOP + i // columns * (size[1] + 28)
        picture.paste(tile.resize(size, Image.Resampling.LANCZOS), (x, y))
        draw.text((x, y + size[1] + 3), text, INK, font(14))


def command_of(demo: Path, stage: str) -> str:
    """Return the command that the demo ran, as if in its folder."""
    command: str = json.loads((demo / f"logs/{stage}.json").read_text("utf-8"))["command"]
    return command.replace(f"{demo}/", "")


def folder_frame(demo: Path) -> Image.Image:
    lines = (demo / "world/annotations.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    first = {record["label"]: record for record in reversed(records)}  # of each class
    picture, _ = frame(
        "folder", f"ls world/images  # {len(records):,} images, {len(first)} classes"
    )
    tiles = [
        (Image.open(demo / "world" / first[name]["file"]), f"{name}/") for name in sorted(first)
    ]
    grid(picture, tiles, 6)
    return picture


def verdict_frame(demo: Path) -> Image.Image:
    """Show some columns of the table that the tournament prints, and its sentence."""
    lines = (demo / "tournament/table.txt").read_text(encoding="utf-8").splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("#"))
    rows = lines[header : lines.index("", header)]
    ends = [(lines[header].index(name) + len(name), width) for name, width in COLUMNS.items()]
    group = lines[header].index("group")
    picture, draw = frame("verdict", command_of(demo, "tournament"))
    for i, row in enumerate(rows):
        cells = [row[:group], *(f"{row[end - width : end]:>{width + 3}}" for end, width in ends)]
        draw.text((MARGIN, TOP + 27 * i), "".join(cells), INK, font(18, "DejaVuSansMono"))
    sentence = textwrap.wrap(lines[-1], 88)
    draw.multiline_text((MARGIN, TOP + 27 * len(rows) + 14), "\n".join(sentence), INK, font(17))
    return picture


def boxed_photos(demo: Path) -> list[tuple[Path, dict[str, str]]]:
    """Return the test images that the demo predicts boxes of, and the first box of each."""
    with (demo / "boxes/boxes.csv").open(encoding="utf-8") as file:
        rows = {row["file"]: row for row in reversed(list(csv.DictReader(file)))}
    return [(demo / "boxes" / name, rows[name]) for name in sorted(rows)]


def attended(photos: list[Path], out: Path, *options: str) -> list[dict[str, Any]]:
    """Run `cenote attend`; return what it says of each photograph."""
    shutil.rmtree(out, ignore_errors=True)
    if cenote(["attend", *map(str, photos), "-o", str(out), *options]):
        raise SystemExit("cenote attend failed")
    results: list[dict[str, Any]] = json.loads((out / "attention.json").read_text("utf-8"))[
        "photographs"
    ]
    return results


def maps_frame(demo: Path) -> Image.Image:
    photos, out = [photo for photo, _ in boxed_photos(demo)], demo / "tour/maps"
    names = " ".join(str(photo.resolve().relative_to(demo)) for photo in photos)
    picture, _ = frame("maps", f"cenote attend --model tournament {names}")
    tiles = [
        (
            Image.open(out / photo["pictures"]["overlay"]),
            f"{photo['class_name']} {photo['score']:.0%}",
        )
        for photo in attended(photos, out, "--model", str(demo / "tournament"))
    ]
    grid(picture, tiles, 4)
    return picture


def boxes_frame(demo: Path) -> Image.Image:
    picture, _ = frame("boxes", command_of(demo, "localize"))
    tiles = []
    for path, row in boxed_photos(demo):
        x0, y0, x1, y1 = (2 * round(float(row[corner])) for corner in ("x1", "y1", "x2", "y2"))
        photo = Image.open(path)
        photo = photo.resize((2 * photo.width, 2 * photo.height), Image.Resampling.LANCZOS)
        tiles.append((draw_box(photo, (x0, y0, x1, y1)), row["class_name"]))
    grid(picture, tiles, 4)
    return picture


def search_frame(demo: Path) -> Image.Image:
    results = json.loads((demo / "search/results.json").read_text("utf-8"))[:10]
    (query,) = map(Path, results[0]["why"]["images"])
    picture, draw = frame("search", command_of(demo, "search"))
    left = MARGIN + 180
    picture.paste(Image.open(query).resize((150, 150), Image.Resampling.LANCZOS), (MARGIN, TOP))
    draw.text((MARGIN, TOP + 154), "this cat,\nbut as a sketch", INK, font(17))
    tiles = [(Image.open(hit["path"]), f"{hit['class']}, {hit['domain']}") for hit in results]
    grid(picture, tiles, 5, left)
    return picture


def photographs_frame(demo: Path) -> Image.Image:
    picture, _ = frame("photographs", f"cenote attend {' '.join(PHOTOGRAPHS)} --size 256")
    out = demo / "tour/photographs"
    photos = [Path(skimage.data.__file__).parent / name for name in PHOTOGRAPHS]
    tiles = []
    for photo in attended(photos, out, "--size", "256"):
        texts = (f"{photo['class_name']} {photo['score']:.0%}", "object map", "above its threshold")
        names = (photo["pictures"][kind] for kind in ("box", "overlay", "mask"))
        tiles += [(Image.open(out / name), text) for name, text in zip(names, texts, strict=True)]
    grid(picture, tiles, 3)
    return picture


def main(demo: Path) -> None:
    demo = demo.resolve()
    frames = [
        folder_frame(demo),
        verdict_frame(demo),
        maps_frame(demo),
        boxes_frame(demo),
        search_frame(demo),
        photographs_frame(demo),
    ]
    for step, picture in zip(STEPS, frames, strict=True):
        picture.save(demo / f"tour/{step}.png")  # to look at
    with write_atomically(TOUR) as temporary:
        frames[0].save(
            temporary,
            "WEBP",
            save_all=True,
            append_images=frames[1:],
            duration=round(1000 * SECONDS),
            loop=0,
            quality=QUALITY,
            method=6,
        )
    print(f"{TOUR.name}: {len(frames)} frames, {TOUR.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
