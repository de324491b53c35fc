"""The world: image number i, with every truth about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..record import Box, Record
from .background import DENSITIES, Plate
from .classes import DISTRACTORS, SHAPES
from .domains import DOMAINS, DRAWN_FLAT
from .paint import COLOURS, RGB, TEXTURES, VARIANTS, Look, Pose, paint
from .rng import TURNS, Dice
from .scenes import SCENES
from .settings import SHARED, SIZES, Plan, Settings, labels, make_plan, settings_of, subclasses_in

FINER = (
    2  # everything is painted at twice the size and averaged down: soft edges, from whole numbers
)
# Half of an object's longer side, as a share of the image's: alone, and among others.
ALONE = {"small": (0.1, 0.14), "medium": (0.18, 0.25), "large": (0.3, 0.4)}
AMONG = {"small": (0.09, 0.12), "medium": (0.15, 0.19), "large": (0.22, 0.25)}
Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Drawn:
    """One image. `mask` numbers its objects from 1; `background` is the same picture without them."""

    pixels: Picture  # (H, W, 3)
    mask: Picture  # (H, W)
    record: Record
    plate: Picture = field(repr=False)  # what lies behind the objects, before the last step
    finish: tuple[str, tuple[object, ...]] = field(repr=False)  # the domain and the key of its dice

    @property
    def image(self) -> Image.Image:
        return Image.fromarray(self.pixels)

    @cached_property
    def background(self) -> Picture:
        domain, key = self.finish
        return DOMAINS[domain](self.plate, Dice(*key))


class World:
    """A plan of images, each a function of the settings and its number: `World(images=100, size=64).draw(7)`."""

    def __init__(self, images: int = 4000, size: int = 128, seed: int = 0, **settings: Any) -> None:
        self.settings = settings_of(None, images=images, size=size, seed=seed, **settings)

    @classmethod
    def of(cls, settings: Settings) -> World:
        world = cls.__new__(cls)
        world.settings = settings
        return world

    @classmethod
    def preset(cls, name: str, **changes: Any) -> World:
        """`World.preset("hard", images=500)`."""
        return cls.of(settings_of(name, **changes))

    def __len__(self) -> int:
        return self.settings.images

    def __repr__(self) -> str:
        return f"<World: {len(self)} images of {self.settings.size} pixels, {len(self.labels)} classes>"

    @cached_property
    def labels(self) -> list[str]:
        return labels(self.settings)

    def plan(self, i: int) -> Plan:
        """What is in an image; it costs no drawing."""
        if not 0 <= i < len(self):
            raise IndexError(f"no image {i} in a world of {len(self)}")
        return make_plan(self.settings, i)

    def draw(self, i: int, domain: str | None = None, **changes: str) -> Drawn:
        """Image i; in another domain, or with other attributes (`colour="red"`), it keeps all the rest."""
        plan = self.plan(i).changed(changes)
        if domain is not None:
            if domain not in DOMAINS:
                raise ValueError(f"no domain '{domain}': {', '.join(DOMAINS)}")
            plan = replace(plan, domain=domain)
        key = (self.settings.seed, i)
        if self.settings.collage:
            from .drawing import draw_collage

            pixels, mask, plate = draw_collage(self.settings, plan, key)
        else:
            pixels, mask, plate = draw_scene(self.settings, plan, key, self.settings.size)
        finish = (plan.domain, (*key, "film"))
        pixels = DOMAINS[plan.domain](pixels, Dice(*finish[1]))
        return Drawn(pixels, mask, record_of(plan, i, mask), plate, finish)


def record_of(plan: Plan, i: int, mask: Picture) -> Record:
    name = f"{plan.label}/{i:06d}.png"
    return Record(
        f"images/{name}",
        plan.label,
        plan.split,
        boxes_of(mask),
        (f"masks/{name}",),
        domain=plan.domain,
        attributes=plan.attributes,
        caption=plan.caption,
    )


def boxes_of(mask: Picture) -> tuple[Box, ...]:
    """One for each object of which something is visible."""
    found = []
    for number in range(1, int(mask.max()) + 1):
        one = mask == number
        rows, columns = np.flatnonzero(one.any(1)), np.flatnonzero(one.any(0))
        if len(rows):
            found.append(
                Box(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))
            )
    return tuple(found)


def draw_scene(
    settings: Settings, plan: Plan, key: tuple[object, ...], size: int
) -> tuple[Picture, Picture, Picture]:
    """The picture before its last step, the numbered mask, and the picture without the objects."""
    flat, side = plan.domain in DRAWN_FLAT, size * FINER
    plate = Plate(side, Dice(*key, "scene"), plan.density)
    SCENES[plan.scene][1](plate)
    canvas, clutter = plate.image, Dice(*key, "clutter")
    for _ in range(clutter.below(settings.distractors + 1)):
        pose = Pose(
            clutter.random(),
            clutter.between(0.2, 1),
            clutter.between(0.05, 0.13),
            turn=clutter.whole(-40, 40),
        )
        paint(canvas, clutter.pick(DISTRACTORS), "plain", pose, _any_look(clutter), flat)
    bare = canvas.copy()
    numbers = Image.new("L", (side, side))
    dice = Dice(*key, "objects")
    look = Look(
        _tinted(COLOURS[plan.colour], dice),
        COLOURS[dice.pick([c for c in COLOURS if c != plan.colour])],
        plan.texture,
    )
    poses = _poses(plan, dice)
    for number, pose in enumerate(poses, 1):
        place, silhouette = paint(canvas, SHAPES[plan.family], plan.subclass, pose, look, flat)
        numbers.paste(number, place, silhouette)
    front = Dice(*key, "front")
    for pose in poses:
        if front.random() < settings.occlusion:
            # From below: the marks that tell subclasses apart are further up.
            x, y = (
                pose.x + front.between(-0.6, 0.6) * pose.half,
                pose.y + 0.85 * pose.half * pose.stretch[1],
            )
            over, shape, cover = (
                Pose(x, y, 0.4 * pose.half),
                front.pick(DISTRACTORS),
                _any_look(front),
            )
            paint(bare, shape, "plain", over, cover, flat)
            place, silhouette = paint(canvas, shape, "plain", over, cover, flat)
            numbers.paste(0, place, silhouette)
    return (
        np.array(canvas.reduce(FINER)),
        _halved(np.asarray(numbers)),
        np.array(bare.reduce(FINER)),
    )


def _poses(plan: Plan, dice: Dice) -> list[Pose]:
    """One anywhere; several in cells of their own, far ones first."""
    count, poses = int(plan.count), []
    cells = dice.shuffled([(0.27, 0.3), (0.73, 0.3), (0.27, 0.73), (0.73, 0.73)])
    for k in range(count):
        half = dice.between(*(ALONE if count == 1 else AMONG)[plan.size])
        if count == 1:
            reach = max(0.5 - half, 0.08)
            x, y = 0.5 + dice.between(-reach, reach), 0.52 + dice.between(-reach, reach)
        else:
            x, y = (c + dice.between(-0.07, 0.07) for c in cells[k])
        turn = dice.whole(-24, 24) if SHAPES[plan.family].upright else dice.below(TURNS)
        poses.append(Pose(x, y, half, VARIANTS[plan.shape], turn, dice.random() < 0.5))
    return sorted(poses, key=lambda pose: pose.y)


def _any_look(dice: Dice) -> Look:
    colours = list(COLOURS.values())
    return Look(_tinted(dice.pick(colours), dice), dice.pick(colours), dice.pick(TEXTURES))


def _tinted(colour: RGB, dice: Dice) -> RGB:
    r, g, b = (min(max(v + dice.whole(-2, 2) * 6, 0), 255) for v in colour)
    return r, g, b


def _halved(numbers: Picture) -> Picture:
    """A pixel belongs to the object that covers at least half of it."""
    a, b, c, d = numbers[::2, ::2], numbers[::2, 1::2], numbers[1::2, ::2], numbers[1::2, 1::2]
    most = np.maximum(np.maximum(a, b), np.maximum(c, d))
    covered = (a > 0).astype(np.uint8) + (b > 0) + (c > 0) + (d > 0)
    return most * (covered >= 2)


def draw_collage(
    settings: Settings, plan: Plan, key: tuple[object, ...]
) -> tuple[Picture, Picture, Picture]:
    """2 x 2 tiles. Mask and boxes are those of the class; the background keeps the other three tiles."""
    dice, tile = Dice(*key, "collage"), settings.size // 2
    place = dice.below(4)
    size = (2 * tile, 2 * tile)
    picture, mask, plate = (
        np.zeros((*size, 3), np.uint8),
        np.zeros(size, np.uint8),
        np.zeros((*size, 3), np.uint8),
    )
    for k in range(4):
        y, x = k // 2 * tile, k % 2 * tile
        there = slice(y, y + tile), slice(x, x + tile)
        chosen = plan if k == place else nuisance(settings, plan, dice)
        image, numbers, bare = draw_scene(settings, chosen, (*key, k), tile)
        picture[there] = image
        plate[there] = bare if k == place else image
        if k == place:
            mask[there] = numbers
    return picture, mask, plate


def nuisance(settings: Settings, plan: Plan, dice: Dice) -> Plan:
    """A tile of one of the shared classes, of the split's own subclasses."""
    family = dice.pick(settings.classes[-SHARED:])
    return replace(
        plan,
        family=family,
        subclass=dice.pick(subclasses_in(settings, family, plan.split)),
        scene=dice.pick(settings.scenes),
        colour=dice.pick(tuple(COLOURS)),
        texture=dice.pick(TEXTURES),
        size=SIZES[dice.weighted(settings.sizes)],
        density=dice.pick(tuple(DENSITIES)),
    )
