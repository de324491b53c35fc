"""A contact sheet of a world: its classes, subclasses, domains, attributes and truths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .classes import SHAPES
from .domains import DOMAINS
from .drawing import Drawn, World
from .scenes import SCENES

CELL, GAP, WIDE, TEXT = (
    128,
    6,
    10,
    16,
)  # pixels of a thumbnail and around it, thumbnails in a row, a line of text
MOST = 50  # classes shown
PAPER, INK, FAINT = (250, 248, 243), (52, 50, 58), (120, 116, 124)
TINTS = np.array(
    [(40, 40, 48), (236, 120, 80), (92, 170, 220), (240, 210, 90), (140, 200, 120)], np.uint8
)

Cells = list[tuple[Image.Image, str]]
Section = tuple[str, int, Cells]  # its name, how many thumbnails a row has, and they


def draw_sheet(world: World) -> Image.Image:
    shown = world.labels[:MOST]
    first = _first_of(world, shown)
    photos = [first[label] for label in shown if label in first]
    sections: list[Section] = [
        (
            f"{len(world.labels)} classes",
            WIDE,
            [(world.draw(i).image, world.plan(i).label) for i in photos],
        )
    ]
    if not world.settings.collage:
        sections.append(("subclasses differ in one small part", WIDE, _subclasses(world, photos)))
        sections.append((f"{len(world.settings.scenes)} scenes", WIDE, _scenes(world, photos)))
        sections.append(("one image with one attribute changed", WIDE, _changes(world, photos)))
    sections.append(
        ("the same scene in six domains", min(WIDE, len(photos)), _domains(world, photos))
    )
    sections.append(
        (
            "every truth: image and boxes, mask, background",
            min(WIDE, len(photos)),
            _truths(world, photos),
        )
    )
    return _laid_out(
        f"{len(world)} images of {world.settings.size} pixels, seed {world.settings.seed}", sections
    )


def _first_of(world: World, shown: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for i in range(min(len(world), 4 * len(world.labels))):
        found.setdefault(world.plan(i).label, i)
    return {label: i for label, i in found.items() if label in shown}


def _subclasses(world: World, photos: list[int]) -> Cells:
    """Two families a row, large and plain, so that the mark can be seen."""
    families = list(dict.fromkeys(world.plan(i).family for i in photos))[:4]
    chosen = [next(i for i in photos if world.plan(i).family == family) for family in families]
    easy = {"size": "large", "count": "1", "texture": "plain", "density": "sparse"}
    return [
        (world.draw(i, subclass=subclass, **easy).image, f"{world.plan(i).family}/{subclass}")
        for i in chosen
        for subclass in SHAPES[world.plan(i).family].subclasses
    ]


def _scenes(world: World, photos: list[int]) -> Cells:
    chosen = [(photos[k % len(photos)], scene) for k, scene in enumerate(world.settings.scenes)]
    return [(world.draw(i, scene=scene).image, SCENES[scene][0]) for i, scene in chosen]


def _changes(world: World, photos: list[int]) -> Cells:
    i = photos[0]
    elsewhere = next(scene for scene in SCENES if scene != world.plan(i).scene)
    start = {
        "size": "medium",
        "count": "1",
        "texture": "plain",
        "colour": "red",
        "shape": "regular",
        "density": "medium",
    }
    changes = [
        *(
            {"colour": "blue"},
            {"size": "large"},
            {"count": "3"},
            {"texture": "striped"},
            {"texture": "checked"},
        ),
        *({"shape": "slim"}, {"shape": "wide"}, {"density": "dense"}, {"scene": elsewhere}),
    ]
    cells = [(world.draw(i, **start).image, "red, medium, one, plain")]
    return cells + [
        (world.draw(i, **{**start, **c}).image, " ".join(f"{k}: {v}" for k, v in c.items()))
        for c in changes
    ]


def _domains(world: World, photos: list[int]) -> Cells:
    return [
        (world.draw(i, domain=domain).image, domain) for domain in DOMAINS for i in photos[:WIDE]
    ]


def _truths(world: World, photos: list[int]) -> Cells:
    drawn = [world.draw(i) for i in photos[:WIDE]]
    masks = [Image.fromarray(TINTS[np.minimum(d.mask, len(TINTS) - 1)]) for d in drawn]
    return [
        *((_boxed(d), d.record.caption or "") for d in drawn),
        *(
            (mask, f"{len(d.record.boxes)} of {d.record.label}")
            for mask, d in zip(masks, drawn, strict=True)
        ),
        *((Image.fromarray(d.background), "without the objects") for d in drawn),
    ]


def _boxed(drawn: Drawn) -> Image.Image:
    image = drawn.image
    draw = ImageDraw.Draw(image)
    for box in drawn.record.boxes:
        draw.rectangle((box.x1, box.y1, box.x2 - 1, box.y2 - 1), outline=(255, 236, 90))
    return image


def _laid_out(title: str, sections: list[Section]) -> Image.Image:
    step = CELL + GAP
    rows = sum(-(-len(cells) // columns) for _, columns, cells in sections)
    height = GAP + 2 * TEXT + sum(2 * TEXT for _ in sections) + rows * (step + TEXT) + GAP
    sheet = Image.new("RGB", (WIDE * step + GAP, height), PAPER)
    draw, small, large = (
        ImageDraw.Draw(sheet),
        ImageFont.load_default(10),
        ImageFont.load_default(14),
    )
    draw.text((GAP, GAP), title, INK, large)
    y = GAP + 2 * TEXT
    for name, columns, cells in sections:
        draw.text((GAP, y), name, INK, large)
        y += TEXT + GAP
        for k, (image, text) in enumerate(cells):
            x = GAP + k % columns * step
            whole = CELL // image.width * image.width if image.width <= CELL else CELL
            fit = image.resize(
                (whole, whole),
                Image.Resampling.NEAREST if whole >= image.width else Image.Resampling.BOX,
            )
            sheet.paste(fit, (x + (CELL - whole) // 2, y))
            draw.text((x, y + CELL + 1), _cut(text, small), FAINT, small)
            y += (step + TEXT) * (k % columns == columns - 1 or k == len(cells) - 1)
        y += TEXT - GAP
    return sheet


def _cut(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    if font.getlength(text) <= CELL:
        return text
    while font.getlength(text + "...") > CELL:
        text = text[:-1]
    return text + "..."
