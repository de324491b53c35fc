"""Draw a map, a mask or a box on a photograph."""

from __future__ import annotations

import functools

import numpy as np
from PIL import Image, ImageDraw

from ..metrics.masks import Box
from ..predict.resize import stretch

BOX_COLOUR = (255, 196, 0)  # amber on a dark rim: visible on grass, fur, sky and snow


def overlay(
    photo: Image.Image, a: np.ndarray, opacity: float = 0.8, colours: str = "inferno"
) -> Image.Image:
    """Draw a map over a photograph: the larger the value, the brighter and the more opaque."""
    if a.shape != photo.size[::-1]:
        a = stretch(a, photo.size)
    # The top hundredth is saturated: a single spike, as some transformers have, would leave
    # everything else dark.
    peak = max(float(np.quantile(a, 0.99)), float(a.max()) / 3)
    value = np.clip(a / peak, 0, 1) if peak > 0 else np.zeros_like(a)  # (h, w)
    colour = _palette(colours)[np.rint(value * 255).astype(np.uint8)]  # (h, w, 3)
    # Half of the photograph's saturation is removed, so that the colours of the map stand out.
    photo = Image.blend(photo.convert("L").convert("RGB"), photo, 0.5)
    alpha = np.rint(255 * opacity * (0.6 + 0.4 * value)).astype(np.uint8)
    return Image.composite(Image.fromarray(colour), photo, Image.fromarray(alpha))


def highlight(photo: Image.Image, mask: np.ndarray, dim: float = 0.3) -> Image.Image:
    """Make everything outside the mask (h, w) grey and dark."""
    mask = np.asarray(mask, dtype=bool)
    if mask.shape != photo.size[::-1]:
        raise ValueError(
            f"the mask is {mask.shape[1]} x {mask.shape[0]} pixels, the photograph "
            f"{photo.width} x {photo.height}"
        )
    outside = Image.eval(photo.convert("L"), lambda v: int(v * dim)).convert("RGB")
    return Image.composite(photo, outside, Image.fromarray(mask))


def draw_box(photo: Image.Image, box: Box | None) -> Image.Image:
    """Draw the box (x0, y0, x1, y1) in pixels, maxima exclusive; None draws nothing."""
    picture = photo.copy()
    if box is not None:
        x0, y0, x1, y1 = box
        right, bottom = max(x0, x1 - 1), max(y0, y1 - 1)
        line = max(2, round(min(photo.size) / 75))
        draw = ImageDraw.Draw(picture)
        draw.rectangle((x0, y0, right, bottom), outline=(0, 0, 0), width=line + 2)
        if min(right - x0, bottom - y0) > 2:  # large enough for a rim
            x0, y0, right, bottom = x0 + 1, y0 + 1, right - 1, bottom - 1
        draw.rectangle((x0, y0, right, bottom), outline=BOX_COLOUR, width=line)
    return picture


@functools.cache
def _palette(name: str) -> np.ndarray:
    """Return a colour map of matplotlib as 256 colours."""
    import matplotlib

    if name not in matplotlib.colormaps:
        raise ValueError(
            f"matplotlib has no colour map '{name}' (inferno, viridis, magma, cividis, turbo, ...)"
        )
    colours = matplotlib.colormaps[name](np.linspace(0, 1, 256))[:, :3]
    return np.asarray(np.rint(colours * 255), dtype=np.uint8)
