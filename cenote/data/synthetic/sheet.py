"""Contact sheet of a world: classes, subclasses, domains, attributes and annotations."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .classes import SHAPES
from .domains import DOMAINS
from .drawing import SyntheticImage, World
from .scenes import SCENES

CELL, GAP, LINE = 128, 6, 16  # pixels of a thumbnail, around it, and of a line of text
COLUMNS = 10
MAX_CLASSES = 50
PAPER, INK, FAINT = (250, 248, 243), (52, 50, 58), (120, 116, 124)
MASK_COLORS = np.array(
    [(40, 40, 48), (236, 120, 80), (92, 170, 220), (240, 210, 90), (140, 200, 120)], np.uint8
)
# Attributes for the section of subclasses, and for the section of changes.
CLEAR = {"size": "large", "count": "1", "texture": "plain", "density": "sparse"}
START = {
    **{"size": "medium", "count": "1", "texture": "plain"},
    **{"colour": "red", "shape": "regular", "density": "medium"},
}

Cells = list[tuple[Image.Image, str]]
Section = tuple[str, int, Cells]  # title, thumbnails per row, thumbnails


def draw_sheet(world: World) -> Image.Image:
    """Draw the contact sheet."""
    settings, photos = world.settings, _first_images(world)
    columns = min(COLUMNS, len(photos))
    classes = [(world.draw(i).image, world.plan(i).label) for i in photos]
    sections: list[Section] = [(f"{len(world.labels)} classes", COLUMNS, classes)]
    if not settings.collage:
        sections += [
            ("subclasses differ in one small part", COLUMNS, _subclasses(world, photos)),
            (f"{len(settings.scenes)} scenes", COLUMNS, _scenes(world, photos)),
            ("one image with one attribute changed", COLUMNS, _changes(world, photos[0])),
        ]
    sections += [
        ("the same scene in six domains", columns, _domains(world, photos)),
        ("annotations: image and boxes, mask, background", columns, _annotations(world, photos)),
    ]
    title = f"{len(world)} images of {settings.size} pixels, seed {settings.seed}"
    return _lay_out(title, sections)


def _first_images(world: World) -> list[int]:
    """Return the first image of each of the first classes."""
    first: dict[str, int] = {}
    for i in range(min(len(world), 4 * len(world.labels))):
        first.setdefault(world.plan(i).label, i)
    return [first[label] for label in world.labels[:MAX_CLASSES] if label in first]


def _subclasses(world: World, photos: list[int]) -> Cells:
    """Draw four classes, large and plain, so that the marks are visible."""
    first: dict[str, int] = {}
    for i in photos:
        first.setdefault(world.plan(i).family, i)
    return [
        (world.draw(i, subclass=subclass, **CLEAR).image, f"{family}/{subclass}")
        for family, i in list(first.items())[:4]
        for subclass in SHAPES[family].subclasses
    ]


def _scenes(world: World, photos: list[int]) -> Cells:
    return [
        (world.draw(photos[k % len(photos)], scene=scene).image, SCENES[scene][0])
        for k, scene in enumerate(world.settings.scenes)
    ]


def _changes(world: World, i: int) -> Cells:
    other_scene = next(scene for scene in SCENES if scene != world.plan(i).scene)
    cells = [(world.draw(i, **START).image, "red, medium, one, plain")]
    for key, value in (
        *(("colour", "blue"), ("size", "large"), ("count", "3")),
        *(("texture", "striped"), ("texture", "checked"), ("shape", "slim")),
        *(("shape", "wide"), ("density", "dense"), ("scene", other_scene)),
    ):
        cells.append((world.draw(i, **{**START, key: value}).image, f"{key}: {value}"))
    return cells


def _domains(world: World, photos: list[int]) -> Cells:
    shown = [(domain, i) for domain in DOMAINS for i in photos[:COLUMNS]]
    return [(world.draw(i, domain=domain).image, domain) for domain, i in shown]


def _annotations(world: World, photos: list[int]) -> Cells:
    drawn = [world.draw(i) for i in photos[:COLUMNS]]
    masks = [Image.fromarray(MASK_COLORS[np.minimum(d.mask, len(MASK_COLORS) - 1)]) for d in drawn]
    counts = [f"{len(d.record.boxes)} of {d.record.label}" for d in drawn]
    return [
        *((_with_boxes(d), d.record.caption or "") for d in drawn),
        *zip(masks, counts, strict=True),
        *((Image.fromarray(d.background), "without the objects") for d in drawn),
    ]


def _with_boxes(drawn: SyntheticImage) -> Image.Image:
    image = drawn.image
    draw = ImageDraw.Draw(image)
    for box in drawn.record.boxes:
        draw.rectangle((box.x1, box.y1, box.x2 - 1, box.y2 - 1), outline=(255, 236, 90))
    return image


def _lay_out(title: str, sections: list[Section]) -> Image.Image:
    step = CELL + GAP
    rows = sum(-(-len(cells) // columns) for _, columns, cells in sections)
    height = 2 * GAP + 2 * LINE * (1 + len(sections)) + rows * (step + LINE)
    sheet = Image.new("RGB", (COLUMNS * step + GAP, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    small, large = ImageFont.load_default(10), ImageFont.load_default(14)
    draw.text((GAP, GAP), title, INK, large)
    y = GAP + 2 * LINE
    for name, columns, cells in sections:
        draw.text((GAP, y), name, INK, large)
        y += LINE + GAP
        for k, (image, text) in enumerate(cells):
            x = GAP + k % columns * step
            thumbnail = _fit(image)
            sheet.paste(thumbnail, (x + (CELL - thumbnail.width) // 2, y))
            draw.text((x, y + CELL + 1), _shorten(text, small), FAINT, small)
            if k % columns == columns - 1 or k == len(cells) - 1:
                y += step + LINE
        y += LINE - GAP
    return sheet


def _fit(image: Image.Image) -> Image.Image:
    """Enlarge by an integer factor, or shrink, to the size of a cell."""
    if image.width > CELL:
        return image.resize((CELL, CELL), Image.Resampling.BOX)
    side = CELL // image.width * image.width
    return image.resize((side, side), Image.Resampling.NEAREST)


def _shorten(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    if font.getlength(text) <= CELL:
        return text
    while font.getlength(text + "...") > CELL:
        text = text[:-1]
    return text + "..."
