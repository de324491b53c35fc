"""Which prototype takes what of an image (002 Figure 4): pooling weights in the colour of the one that takes most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageColor, ImageDraw

from ..data import Dataset
from .maps import stretch
from .sheet import FADED, INK, MARGIN, PAPER, Entry, contact_sheet, font, stacked
from .tournament_plot import COLOURS

GREYS = ("#555555", "#222222")
VIVID = [ImageColor.getrgb(colour) for colour in COLOURS if colour not in GREYS]
REST = (150, 150, 150)


def prototype_sheet(
    dataset: Dataset,
    places: Sequence[int],
    transports: Sequence[np.ndarray],
    heading: str = "",
    side: int = 200,
) -> Image.Image:
    """Images at `places`, and for each what every prototype receives from every cell (H, W, m).

    The prototypes that take most in all of them together have a colour, the same in every image; the others are grey.
    """
    if not places or len(transports) != len(places):
        raise ValueError(
            f"{len(places)} images, {len(transports)} maps of prototypes: one for each, and at least one"
        )
    total = np.sum([t.sum((0, 1)) for t in transports], 0)  # (m,)
    known = np.argsort(-total, kind="stable")[: len(VIVID)]
    colours = np.tile(np.array(REST, np.uint8), (len(total), 1))
    colours[known] = VIVID[: len(known)]
    entries = []
    for place, transport in zip(places, transports, strict=True):
        photo, shares = dataset.image(place), transport.sum((0, 1)) / transport.sum()
        most = sorted(known.tolist(), key=lambda i: -shares[i])[:2]
        note = ", ".join(f"{i + 1}: {100 * shares[i]:.0f}%" for i in most)
        entries.append(
            Entry([photo, coloured(photo, transport, colours)], dataset[place].label or "", note)
        )
    told = (
        heading
        or "each image, and its pooling weights in the colour of the prototype that takes most, with its share"
    )
    page = contact_sheet(entries, told, columns=3, side=side)
    return stacked([page, _legend(page.width, known.tolist(), len(total) - len(known))])


def _legend(width: int, known: Sequence[int], others: int) -> Image.Image:
    """Which prototype, counted from 1, has which colour."""
    named = [(VIVID[k], f"prototype {i + 1}") for k, i in enumerate(known)]
    named += [(REST, f"{others} others")] if others else []
    room = max(36 + round(font(13).getlength(name)) for _, name in named)
    each = max((width - MARGIN) // room, 1)  # in a row
    strip = Image.new("RGB", (width, 22 * -(-len(named) // each) + MARGIN), PAPER)
    draw = ImageDraw.Draw(strip)
    for k, (colour, name) in enumerate(named):
        left, top = MARGIN + k % each * room, 2 + 22 * (k // each)
        draw.rectangle((left, top, left + 14, top + 14), fill=colour)
        draw.text((left + 20, top - 1), name, INK if colour != REST else FADED, font(13))
    return strip


def coloured(photo: Image.Image, transport: np.ndarray, colours: np.ndarray) -> Image.Image:
    """Cells in the colour (m, 3) of the prototype that takes most of them, the more they give the less transparent."""
    cells = Image.fromarray(colours[transport.argmax(-1)]).resize(
        photo.size, Image.Resampling.NEAREST
    )
    weight = stretch(transport.sum(-1), photo.size)  # (h, w)
    strength = 0.9 * np.clip(weight / max(float(np.quantile(weight, 0.99)), 1e-12), 0, 1)
    grey = Image.blend(photo.convert("L").convert("RGB"), photo.convert("RGB"), 0.2)
    return Image.composite(cells, grey, Image.fromarray(np.rint(255 * strength).astype(np.uint8)))
