"""Figures of metric learning: positivity, the effect of mu, prototypes, attention on collages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageColor, ImageDraw

from cenote.data import Dataset
from cenote.report import SheetEntry, contact_sheet, draw_box, overlay, stretch
from cenote.report.sheet import FADED, INK, MARGIN, PAPER, font, stacked

PixelBox = tuple[int, int, int, int]
COLOURS = ("#4477aa", "#ee6677", "#228833", "#b8860b", "#aa3377", "#5fb3d9", "#e07b39")
PROTOTYPE_COLOURS = [ImageColor.getrgb(colour) for colour in COLOURS]
OTHER_PROTOTYPES = (150, 150, 150)
BACKGROUND, TEXT, LIGHT_TEXT = "#faf9f6", "#1c1c1e", "#787672"
MIN_Y_SPAN = 2.0  # percentage points: smaller differences must not look like a cliff
MAX_CLASSES = 12  # rows of a figure


def draw_positivity(
    factors: npt.ArrayLike, empirical: npt.ArrayLike, theoretical: npt.ArrayLike, title: str = ""
) -> Figure:
    """Plot the probability that a mixed embedding is positive against lambda [Dissertation Fig. 2.2].

    Empirical: the share of derivatives of the loss that are not positive.
    Theoretical: [Dissertation Eq. 2.23].
    """
    x, measured, predicted = (np.asarray(v, float) for v in (factors, empirical, theoretical))
    if not (x.ndim == 1 and x.shape == measured.shape == predicted.shape):
        raise ValueError(
            f"positivity needs three arrays of one length, got {x.shape}, {measured.shape} "
            f"and {predicted.shape}"
        )
    figure, axes = _create_axes(title or "When a mixed embedding counts as positive")
    axes.axhline(0.5, color=LIGHT_TEXT, linewidth=0.8, linestyle=":")
    axes.axvline(0.5, color=LIGHT_TEXT, linewidth=0.8, linestyle=":")
    measurement = "empirical: sign of the derivative"
    axes.plot(x, measured, "o-", color=COLOURS[0], markersize=5, linewidth=2, label=measurement)
    axes.plot(x, predicted, "--", color=COLOURS[1], linewidth=2, label="theoretical (2.23)")
    axes.set_xlabel("interpolation factor λ", color=TEXT)
    axes.set_ylabel("P(positive)", color=TEXT)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.legend(loc="best", facecolor=BACKGROUND, edgecolor="none")
    return figure


def draw_mu(
    scores: Mapping[float, npt.ArrayLike],
    gap: npt.ArrayLike | None = None,
    metric: str = "MAP@R",
    title: str = "",
) -> Figure:
    """Plot a score in percent against GSP's mu [GSP Fig. 6]; bands are one deviation over seeds."""
    if not scores:
        raise ValueError("effect of mu: no scores to draw")
    mus = sorted(scores)
    means, deviations = np.array([_mean_and_deviation(scores[mu]) for mu in mus]).T
    low, high = means - deviations, means + deviations
    figure, axes = _create_axes(title or "Effect of μ: the share of features that GSP takes")
    axes.fill_between(mus, low, high, color=COLOURS[0], alpha=0.18, linewidth=0)
    axes.plot(mus, means, "o-", color=COLOURS[0], linewidth=2, markersize=6, label="GSP")
    if gap is not None:
        mean, deviation = _mean_and_deviation(gap)
        axes.axhspan(mean - deviation, mean + deviation, color=COLOURS[1], alpha=0.15, linewidth=0)
        axes.axhline(mean, color=COLOURS[1], linewidth=1.6, linestyle="--", label="GAP (μ = 1)")
    axes.set_xlabel("μ", color=TEXT)
    axes.set_ylabel(f"{metric} on unseen classes (%)", color=TEXT)
    axes.legend(loc="best", facecolor=BACKGROUND, edgecolor="none")
    bottom, top = axes.get_ylim()
    if top - bottom < MIN_Y_SPAN:
        axes.set_ylim((bottom + top - MIN_Y_SPAN) / 2, (bottom + top + MIN_Y_SPAN) / 2)
    return figure


def _mean_and_deviation(values: npt.ArrayLike) -> tuple[float, float]:
    """Return mean and standard deviation over seeds; the deviation of one seed is 0."""
    seeds = np.atleast_1d(np.asarray(values, float))
    deviation = float(seeds.std(ddof=1)) if len(seeds) > 1 else 0.0
    return float(seeds.mean()), deviation


def _create_axes(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 5), facecolor=BACKGROUND, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(BACKGROUND)
    axes.set_title(title, loc="left", color=TEXT, fontsize=13)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def class_histograms(
    histograms: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels (C,) of the classes and their mean histograms (C, m)."""
    z, y = np.asarray(histograms, float), np.asarray(labels)
    if z.ndim != 2 or y.shape != z.shape[:1] or not len(y):
        raise ValueError(f"histograms are (N, m) and labels (N,), got {z.shape} and {y.shape}")
    classes = np.unique(y)
    return classes, np.stack([z[y == label].mean(0) for label in classes])


def draw_histograms(
    panels: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    class_names: Sequence[str],
    max_classes: int = MAX_CLASSES,
) -> Figure:
    """Plot which prototypes each class uses [GSP Fig. 4].

    Each panel (histograms, labels) is a column, each class a row; all bars have one scale.
    """
    histograms = {title: class_histograms(*panel) for title, panel in panels.items()}
    if not histograms:
        raise ValueError("prototype histograms: nothing to draw")
    common = sorted(set.intersection(*(set(labels.tolist()) for labels, _ in histograms.values())))
    if not common:
        raise ValueError("prototype histograms: the panels have no class in common")
    labels = common[:max_classes]
    size = (5 * len(histograms) + 1, 0.62 * len(labels) + 1.1)
    figure = Figure(figsize=size, facecolor=BACKGROUND, layout="constrained")
    grid = figure.subplots(len(labels), len(histograms), squeeze=False, sharex="col", sharey=True)
    for column, (title, (classes, shares)) in enumerate(histograms.items()):
        m = shares.shape[1]
        for row, label in enumerate(labels):
            axes, heights = grid[row, column], shares[list(classes).index(label)]
            axes.set_facecolor(BACKGROUND)
            axes.bar(range(m), heights, width=0.85, color=COLOURS[column % len(COLOURS)])
            axes.axhline(1 / m, color=LIGHT_TEXT, linewidth=0.7, linestyle=":")
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.set_yticks([])
            axes.tick_params(length=0, colors=LIGHT_TEXT, labelsize=8)
            if column == 0:
                style = {"rotation": 0, "ha": "right", "va": "center", "fontsize": 9}
                axes.set_ylabel(class_names[label], color=TEXT, **style)
        grid[0, column].set_title(title, loc="left", color=TEXT, fontsize=12)
        note = f"{m} prototypes · dots: an equal share"
        grid[-1, column].set_xlabel(note, color=LIGHT_TEXT, fontsize=9)
    if len(common) > max_classes:
        note = f"and {len(common) - max_classes} more classes"
        figure.supxlabel(note, color=LIGHT_TEXT, fontsize=9)
    return figure


def prototype_sheet(
    dataset: Dataset,
    positions: Sequence[int],
    transports: Sequence[np.ndarray],
    heading: str = "",
    side: int = 200,
) -> Image.Image:
    """Draw which prototype takes what of each image [GSP Fig. 4].

    `transports`: for each position, what every prototype receives from every cell (H, W, m).
    The prototypes that take most over all images have a colour; the others are grey.
    """
    if not positions or len(transports) != len(positions):
        raise ValueError(
            f"{len(positions)} images but {len(transports)} transport maps: give one for each "
            "image, and at least one"
        )
    total = np.sum([t.sum((0, 1)) for t in transports], 0)  # (m,)
    prototypes = np.argsort(-total, kind="stable")[: len(PROTOTYPE_COLOURS)]
    colours = np.tile(np.array(OTHER_PROTOTYPES, np.uint8), (len(total), 1))
    colours[prototypes] = PROTOTYPE_COLOURS[: len(prototypes)]
    entries = []
    for position, transport in zip(positions, transports, strict=True):
        photo, shares = dataset.image(position), transport.sum((0, 1)) / transport.sum()
        largest = sorted(prototypes.tolist(), key=lambda i: -shares[i])[:2]
        note = ", ".join(f"{i + 1}: {100 * shares[i]:.0f}%" for i in largest)
        pictures = [photo, color_by_prototype(photo, transport, colours)]
        entries.append(SheetEntry(pictures, dataset[position].label or "", note))
    heading = heading or (
        "each image, and its pooling weights in the colour of the prototype that takes most, "
        "with its share"
    )
    page = contact_sheet(entries, heading, columns=3, side=side)
    return stacked([page, _legend(page.width, prototypes.tolist(), len(total) - len(prototypes))])


def _legend(width: int, prototypes: Sequence[int], others: int) -> Image.Image:
    """Draw which prototype, counted from 1, has which colour."""
    labels = [(PROTOTYPE_COLOURS[k], f"prototype {i + 1}") for k, i in enumerate(prototypes)]
    if others:
        labels.append((OTHER_PROTOTYPES, f"{others} others"))
    column = max(36 + round(font(13).getlength(name)) for _, name in labels)
    columns = max((width - MARGIN) // column, 1)
    legend = Image.new("RGB", (width, 22 * -(-len(labels) // columns) + MARGIN), PAPER)
    draw = ImageDraw.Draw(legend)
    for k, (colour, name) in enumerate(labels):
        left, top = MARGIN + k % columns * column, 2 + 22 * (k // columns)
        draw.rectangle((left, top, left + 14, top + 14), fill=colour)
        ink = FADED if colour == OTHER_PROTOTYPES else INK
        draw.text((left + 20, top - 1), name, ink, font(13))
    return legend


def color_by_prototype(
    photo: Image.Image, transport: np.ndarray, colours: np.ndarray
) -> Image.Image:
    """Colour each cell by the prototype that takes most of it; opacity is what the cell gives."""
    cells = Image.fromarray(colours[transport.argmax(-1)])
    cells = cells.resize(photo.size, Image.Resampling.NEAREST)
    weight = stretch(transport.sum(-1), photo.size)  # (h, w)
    opacity = 0.9 * np.clip(weight / max(float(np.quantile(weight, 0.99)), 1e-12), 0, 1)
    grey = Image.blend(photo.convert("L").convert("RGB"), photo.convert("RGB"), 0.2)
    return Image.composite(cells, grey, Image.fromarray(np.rint(255 * opacity).astype(np.uint8)))


def collage_sheet(
    dataset: Dataset,
    positions: Sequence[int],
    maps: Mapping[str, Sequence[np.ndarray]],
    heading: str = "",
    side: int = 200,
) -> Image.Image:
    """Draw where pools look in collages [GSP Fig. 3b]: the tile of the class is framed.

    `maps`: for each pool by name the maps (H, W) of the collages at `positions`, in order. The
    note is the share of each map on the tile of the class; a uniform map has a quarter there.
    """
    for name, pool_maps in maps.items():
        if len(pool_maps) != len(positions):
            raise ValueError(f"{len(positions)} collages, but {len(pool_maps)} maps of {name}")
    entries = []
    for k, position in enumerate(positions):
        record, photo = dataset[position], dataset.image(position)
        tile = _class_tile(dataset, position, photo.size)
        pictures, shares = [draw_box(photo, tile)], []
        for name, pool_maps in maps.items():
            pictures.append(draw_box(overlay(photo, pool_maps[k]), tile))
            shares.append(f"{name} {100 * share_in_box(pool_maps[k], tile, photo.size):.0f}%")
        note = "on its tile: " + ", ".join(shares)
        entries.append(SheetEntry(pictures, f"{record.label} · {record.split}", note))
    heading = heading or f"collage, then {', '.join(maps)}"
    return contact_sheet(entries, heading, columns=2, side=side)


def share_on_tile(dataset: Dataset, position: int, a: np.ndarray) -> float:
    """Return the share of a map (H, W) on the tile of the class of a collage."""
    size = dataset.image(position).size
    return share_in_box(a, _class_tile(dataset, position, size), size)


def _class_tile(dataset: Dataset, position: int, size: tuple[int, int]) -> PixelBox:
    """Return the one of 2 x 2 tiles that contains the centre of the first box."""
    boxes = dataset[position].boxes
    if not boxes:
        path = dataset.path(position)
        raise ValueError(f"{path} has no box in the tile of its class: is it a collage?")
    x, y = (boxes[0].x1 + boxes[0].x2) / 2, (boxes[0].y1 + boxes[0].y2) / 2
    width, height = size[0] // 2, size[1] // 2
    left, top = width * int(x >= width), height * int(y >= height)
    return left, top, left + width, top + height


def share_in_box(a: np.ndarray, box: PixelBox, size: tuple[int, int]) -> float:
    """Return the share of a map (H, W) inside a pixel box of a picture of `size`."""
    x0, y0, x1, y1 = box
    rows = _coverage(a.shape[0], y0 / size[1], y1 / size[1])
    columns = _coverage(a.shape[1], x0 / size[0], x1 / size[0])
    return float(rows @ a @ columns / max(float(a.sum()), 1e-12))


def _coverage(cells: int, low: float, high: float) -> np.ndarray:
    """Return which share of each of `cells` equal cells of [0, 1] is inside [low, high]."""
    edges = np.clip(np.linspace(0, 1, cells + 1), low, high)
    return np.diff(edges) * cells
