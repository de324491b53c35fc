"""The collage of 002 (sec. 2.2): one image of the class stitched together with three of classes that all share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .dice import Dice
from .drawing import Picture, draw_scene
from .paint import COLOURS, TEXTURES
from .plan import SIZES, Plan, subclasses_in
from .plate import DENSITIES
from .settings import SHARED, Settings


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
