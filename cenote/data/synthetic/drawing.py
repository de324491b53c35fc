"""Draw image number i of a world, with all its annotations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..checks import check
from ..record import Box, Record
from .domains import DOMAINS, FLAT_DOMAINS
from .paint import COLOURS, RGB, STRETCHES, TEXTURES, Appearance, Pose, paint
from .rng import DIRECTIONS, PortableRng
from .scenes import DENSITIES, SCENES, SceneCanvas
from .settings import (
    SHARED_CLASSES,
    SIZES,
    ImagePlan,
    WorldSettings,
    labels,
    make_plan,
    preset_settings,
    subclasses_in,
)
from .shapes import DISTRACTORS, SHAPES

SUPERSAMPLING = 2  # painted at twice the size and averaged: soft edges from integer arithmetic
# Half of an object's longer side, as a fraction of the image's: a single object, or one of several.
SINGLE = {"small": (0.1, 0.14), "medium": (0.18, 0.25), "large": (0.3, 0.4)}
SEVERAL = {"small": (0.09, 0.12), "medium": (0.15, 0.19), "large": (0.22, 0.25)}
CELLS = [(0.27, 0.3), (0.73, 0.3), (0.27, 0.73), (0.73, 0.73)]  # centres for several objects
Pixels = npt.NDArray[np.uint8]
Key = tuple[object, ...]
Layers = tuple[Pixels, Pixels, Pixels]  # image, mask that numbers the objects, background


@dataclass(frozen=True)
class SyntheticImage:
    """One image. `mask` numbers its objects from 1; `background` is the image without them."""

    pixels: Pixels  # (H, W, 3)
    mask: Pixels  # (H, W)
    record: Record
    plain_background: Pixels = field(repr=False)  # before the domain is applied
    domain_key: Key = field(repr=False)

    @property
    def image(self) -> Image.Image:
        return Image.fromarray(self.pixels)

    @cached_property
    def background(self) -> Pixels:
        domain = DOMAINS[self.record.domain or ""]
        return domain(self.plain_background, PortableRng(*self.domain_key))


class World:
    """Images that are functions of the settings and their number: `World(images=100).draw(7)`."""

    def __init__(self, **settings: Any) -> None:
        self.settings = WorldSettings(**settings)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> World:
        """Return a preset with some settings changed: `World.preset("hard", images=500)`."""
        return cls(**{**preset_settings(name), **changes})

    def __len__(self) -> int:
        return self.settings.images

    def __repr__(self) -> str:
        size, classes = self.settings.size, len(self.labels)
        return f"<World: {len(self)} images of {size} pixels, {classes} classes>"

    @cached_property
    def labels(self) -> list[str]:
        return labels(self.settings)

    def plan(self, i: int) -> ImagePlan:
        """Return the contents of an image, without drawing it."""
        if not 0 <= i < len(self):
            raise IndexError(f"no image {i} in a world of {len(self)}")
        return make_plan(self.settings, i)

    def draw(self, i: int, domain: str | None = None, **changes: str) -> SyntheticImage:
        """Draw image i, or the same image in another domain or with other attributes.

        `draw(7, domain="sketch")`, `draw(7, colour="red")`.
        """
        plan = self.plan(i).changed(changes)
        if domain is not None:
            check(domain in DOMAINS, f"no domain '{domain}': {', '.join(DOMAINS)}")
            plan = replace(plan, domain=domain)
        key = (self.settings.seed, i)
        if self.settings.collage:
            pixels, mask, background = draw_collage(self.settings, plan, key)
        else:
            pixels, mask, background = draw_scene(self.settings, plan, key, self.settings.size)
        domain_key = (*key, "film")
        pixels = DOMAINS[plan.domain](pixels, PortableRng(*domain_key))
        record = make_record(plan, i, mask)
        return SyntheticImage(pixels, mask, record, background, domain_key)


def make_record(plan: ImagePlan, i: int, mask: Pixels) -> Record:
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


def boxes_of(mask: Pixels) -> tuple[Box, ...]:
    """Return the boxes of the visible objects of a mask."""
    boxes = []
    for number in range(1, int(mask.max()) + 1):
        inside = mask == number
        rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        if len(rows):
            left, top = float(columns[0]), float(rows[0])
            boxes.append(Box(left, top, float(columns[-1] + 1), float(rows[-1] + 1)))
    return tuple(boxes)


def draw_scene(settings: WorldSettings, plan: ImagePlan, key: Key, size: int) -> Layers:
    """Draw image, mask and background, before the domain is applied."""
    flat, side = plan.domain in FLAT_DOMAINS, size * SUPERSAMPLING
    scene = SceneCanvas(side, PortableRng(*key, "scene"), plan.density)
    SCENES[plan.scene][1](scene)
    image, rng = scene.image, PortableRng(*key, "clutter")
    for _ in range(rng.below(settings.distractors + 1)):
        x, y, half = rng.random(), rng.uniform(0.2, 1), rng.uniform(0.05, 0.13)
        pose = Pose(x, y, half, turn=rng.integer(-40, 40))
        paint(image, rng.choice(DISTRACTORS), "plain", pose, _random_appearance(rng), flat)
    background, mask = image.copy(), Image.new("L", (side, side))
    rng = PortableRng(*key, "objects")
    colour = _tint(COLOURS[plan.colour], rng)
    accent = COLOURS[rng.choice([name for name in COLOURS if name != plan.colour])]
    appearance = Appearance(colour, accent, plan.texture)
    poses = _poses(plan, rng)
    for number, pose in enumerate(poses, 1):
        shape = SHAPES[plan.family]
        corner, silhouette = paint(image, shape, plan.subclass, pose, appearance, flat)
        mask.paste(number, corner, silhouette)
    rng = PortableRng(*key, "front")
    for pose in poses:
        if rng.random() < settings.occlusion:
            # From below: the marks of subclasses are further up.
            x = pose.x + rng.uniform(-0.6, 0.6) * pose.half
            y = pose.y + 0.85 * pose.half * pose.stretch[1]
            shape, cover = rng.choice(DISTRACTORS), _random_appearance(rng)
            front = Pose(x, y, 0.4 * pose.half)
            paint(background, shape, "plain", front, cover, flat)
            corner, silhouette = paint(image, shape, "plain", front, cover, flat)
            mask.paste(0, corner, silhouette)
    pixels, behind = (np.array(layer.reduce(SUPERSAMPLING)) for layer in (image, background))
    return pixels, _halve(np.asarray(mask)), behind


def _poses(plan: ImagePlan, rng: PortableRng) -> list[Pose]:
    """Return a pose anywhere, or several in separate cells, far ones first."""
    count, poses = int(plan.count), []
    cells = rng.shuffled(CELLS)
    for k in range(count):
        if count == 1:
            half = rng.uniform(*SINGLE[plan.size])
            reach = max(0.5 - half, 0.08)
            x, y = 0.5 + rng.uniform(-reach, reach), 0.52 + rng.uniform(-reach, reach)
        else:
            half = rng.uniform(*SEVERAL[plan.size])
            x, y = (c + rng.uniform(-0.07, 0.07) for c in cells[k])
        upright = SHAPES[plan.family].upright
        turn = rng.integer(-24, 24) if upright else rng.below(DIRECTIONS)
        poses.append(Pose(x, y, half, STRETCHES[plan.shape], turn, rng.random() < 0.5))
    return sorted(poses, key=lambda pose: pose.y)


def _random_appearance(rng: PortableRng) -> Appearance:
    colours = list(COLOURS.values())
    colour = _tint(rng.choice(colours), rng)
    return Appearance(colour, rng.choice(colours), rng.choice(TEXTURES))


def _tint(colour: RGB, rng: PortableRng) -> RGB:
    red, green, blue = (min(max(v + rng.integer(-2, 2) * 6, 0), 255) for v in colour)
    return red, green, blue


def _halve(mask: Pixels) -> Pixels:
    """Halve the size of a mask; a pixel belongs to an object that covers at least half of it."""
    a, b, c, d = mask[::2, ::2], mask[::2, 1::2], mask[1::2, ::2], mask[1::2, 1::2]
    number = np.maximum(np.maximum(a, b), np.maximum(c, d))
    covered = (a > 0).astype(np.uint8) + (b > 0) + (c > 0) + (d > 0)
    return number * (covered >= 2)


def draw_collage(settings: WorldSettings, plan: ImagePlan, key: Key) -> Layers:
    """Draw 2 x 2 tiles: one of the class, three of the classes that all images share.

    Mask and boxes are those of the class; the background keeps the other three tiles.
    """
    rng, tile = PortableRng(*key, "collage"), settings.size // 2
    position = rng.below(4)
    pixels = np.zeros((2 * tile, 2 * tile, 3), np.uint8)
    mask, background = np.zeros((2 * tile, 2 * tile), np.uint8), pixels.copy()
    for k in range(4):
        y, x = k // 2 * tile, k % 2 * tile
        window = slice(y, y + tile), slice(x, x + tile)
        tile_plan = plan if k == position else plan_shared_tile(settings, plan, rng)
        tile_pixels, tile_mask, behind = draw_scene(settings, tile_plan, (*key, k), tile)
        pixels[window] = background[window] = tile_pixels
        if k == position:
            background[window], mask[window] = behind, tile_mask
    return pixels, mask, background


def plan_shared_tile(settings: WorldSettings, plan: ImagePlan, rng: PortableRng) -> ImagePlan:
    """Plan a tile of one of the shared classes, with subclasses of the plan's split."""
    family = rng.choice(settings.classes[-SHARED_CLASSES:])
    return replace(
        plan,
        family=family,
        subclass=rng.choice(subclasses_in(settings, family, plan.split)),
        scene=rng.choice(settings.scenes),
        colour=rng.choice(tuple(COLOURS)),
        texture=rng.choice(TEXTURES),
        size=SIZES[rng.weighted_index(settings.sizes)],
        density=rng.choice(tuple(DENSITIES)),
    )
