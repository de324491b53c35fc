"""Pictures of GSP's prototypes [GSP Fig. 4]: which of them classes use, and where in the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, ImageDraw

from ..data import Dataset
from ..data.images import stretch
from . import plots
from .sheet import FADED, INK, MARGIN, PAPER, SheetEntry, contact_sheet, font, stacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = [ImageColor.getrgb(plots.COLOURS[k]) for k in (0, 1, 2, 3, 4, 5, 7)]  # of prototypes
GREY = (150, 150, 150)  # of the other prototypes
MAX_CLASSES = 12  # rows of a figure
HEADING = "each image, and its pooling weights in the colour of the prototype that takes most"


def draw_histograms(
    histograms: npt.ArrayLike, labels: npt.ArrayLike, class_names: Sequence[str]
) -> Figure:
    """Plot the mean histogram of each class, a row each: `histograms` (N, m) of `labels` (N,)."""
    from matplotlib.figure import Figure

    z, y = np.asarray(histograms), np.asarray(labels)
    m, classes = z.shape[1], np.unique(y)
    shown = classes[:MAX_CLASSES]
    size = (6, 0.62 * len(shown) + 1.1)
    figure = Figure(figsize=size, facecolor=plots.PAPER, layout="constrained")
    rows: Any = figure.subplots(len(shown), squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, label in zip(rows, shown, strict=True):
        axes.set_facecolor(plots.PAPER)
        axes.bar(range(m), z[y == label].mean(0), width=0.85, color=plots.COLOURS[0])
        axes.axhline(1 / m, color=plots.FADED, linewidth=0.7, linestyle=":")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_yticks([])
        axes.set_ylabel(class_names[label], rotation=0, ha="right", va="center", fontsize=9)
    note = f"{m} prototypes; dots: an equal share"
    if len(classes) > len(shown):
        note += f"; {len(classes) - len(shown)} more classes are not shown"
    rows[-1].set_xlabel(note, color=plots.FADED, fontsize=9)
    return figure


def prototype_sheet(
    dataset: Dataset, transports: dict[int, npt.NDArray[Any]], side: int = 200
) -> Image.Image:
    """Draw images beside what prototypes take of them.

    `transports`: by position in the data set, what each prototype takes of each cell (H, W, m).
    The prototypes that take most of all images have a colour; the others are grey.
    """
    total = np.sum([t.sum((0, 1)) for t in transports.values()], 0)  # (m,)
    prototypes = np.argsort(-total, kind="stable")[: len(COLOURS)].tolist()
    colours = np.full((len(total), 3), GREY, np.uint8)
    colours[prototypes] = COLOURS[: len(prototypes)]
    entries = []
    for position, transport in transports.items():
        photo, shares = dataset.image(position), transport.sum((0, 1)) / transport.sum()
        largest = sorted(prototypes, key=lambda i: -shares[i])[:2]
        note = ", ".join(f"{i + 1}: {100 * shares[i]:.0f}%" for i in largest)
        pictures = [photo, color_by_prototype(photo, transport, colours)]
        entries.append(SheetEntry(pictures, dataset[position].label or "", note))
    page = contact_sheet(entries, HEADING, columns=3, side=side)
    return stacked([page, _legend(page.width, prototypes, len(total) - len(prototypes))])


def _legend(width: int, prototypes: Sequence[int], others: int) -> Image.Image:
    """Draw which prototype, counted from 1, has which colour."""
    labels = [(COLOURS[k], f"prototype {i + 1}") for k, i in enumerate(prototypes)]
    if others:
        labels.append((GREY, f"{others} others"))
    column = max(36 + round(font(13).getlength(name)) for _, name in labels)
    columns = max((width - MARGIN) // column, 1)
    legend = Image.new("RGB", (width, 22 * -(-len(labels) // columns) + MARGIN), PAPER)
    draw = ImageDraw.Draw(legend)
    for k, (colour, name) in enumerate(labels):
        left, top = MARGIN + k % columns * column, 2 + 22 * (k // columns)
        draw.rectangle((left, top, left + 14, top + 14), fill=colour)
        draw.text((left + 20, top - 1), name, FADED if colour == GREY else INK, font(13))
    return legend


def color_by_prototype(
    photo: Image.Image, transport: npt.NDArray[Any], colours: npt.NDArray[np.uint8]
) -> Image.Image:
    """Colour each cell by the prototype that takes most of it; opacity is what the cell gives."""
    cells = Image.fromarray(colours[transport.argmax(-1)])
    cells = cells.resize(photo.size, Image.Resampling.NEAREST)
    weight = stretch(transport.sum(-1), photo.size)  # (h, w)
    opacity = 0.9 * np.clip(weight / max(float(np.quantile(weight, 0.99)), 1e-12), 0, 1)
    grey = Image.blend(photo.convert("L").convert("RGB"), photo.convert("RGB"), 0.2)
    return Image.composite(cells, grey, Image.fromarray(np.rint(255 * opacity).astype(np.uint8)))
