"""Files of a tournament: its tables, accuracy against parameters [SimPool Fig. 3], the maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw

from ..data import BadImage, Dataset, write_atomically
from . import palette
from .labels import PixelBox, distance_to_box, place_label
from .maps import overlay
from .sheet import FADED, GAP, INK, MARGIN, PAPER, font, shorten
from .tournament import CandidateMaps, CandidateResult, TournamentReport, tournament_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TILE, MAX_COLUMNS = 132, 12  # of the pictures: pixels, and candidates side by side
NAME_HEIGHT, TITLE_HEIGHT = 40, 40
MAP_KINDS = {"pool": "own map", "cam": "CAM", "cls": "CLS attention"}


@dataclass(frozen=True)
class LabelledPoint:
    """A candidate in the plot; without x it is a horizontal line."""

    x: float | None
    y: float
    name: str
    colour: str
    star: bool


def write_tournament(
    report: TournamentReport, folder: Path, photos: Dataset, maps: Mapping[str, CandidateMaps]
) -> list[str]:
    """Write table.txt, table.md, plot.png, plot.svg and pictures.jpg; return the written names."""
    tables = {
        "table.txt": tournament_table(report),
        "table.md": tournament_table(report, "markdown"),
    }
    for name, text in tables.items():
        with write_atomically(folder / name) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    names = list(tables)
    if report.ranked:
        figure = draw_plot(report)
        for name in ("plot.png", "plot.svg"):
            with write_atomically(folder / name) as temporary:
                figure.savefig(temporary, dpi=150)
            names.append(name)
    pictures = draw_pictures(report, photos, maps)
    if pictures is not None:
        with write_atomically(folder / "pictures.jpg") as temporary:
            pictures.save(temporary, quality=90, subsampling=0)
        names.append("pictures.jpg")
    return names


def draw_plot(report: TournamentReport) -> Figure:
    """Plot every candidate with its standard deviation; stars are the winners of their groups."""
    from matplotlib.figure import Figure

    by_gamma = report.kind == "gamma"
    figure = Figure(figsize=(11, 7), facecolor=palette.PAPER, layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(palette.PAPER)
    groups = [group for group in report.groups if any(r.group == group for r in report.ranked)]
    points = [
        _draw_candidate(axes, result, groups.index(group), by_gamma)
        for group in groups
        for result in report.ranked
        if result.group == group
    ]
    for i, group in enumerate(groups):
        marker, colour = (
            palette.MARKERS[i % len(palette.MARKERS)],
            palette.COLOURS[i % len(palette.COLOURS)],
        )
        axes.plot([], [], marker, color=colour, label=group, markersize=8)
    _draw_axes(axes, points, by_gamma)
    axes.set_ylabel(f"accuracy on {report.images} {report.judged} images (%)", color=palette.INK)
    best = max(point.y for point in points)
    axes.axhspan(best - report.noise, best, color="#000000", alpha=0.05, zorder=0, linewidth=0)
    axes.set_title(report.title, loc="left", color=palette.INK, fontsize=13)
    legend = "grey band: tied with the first"
    if not by_gamma:
        legend += " · stars: winners of their groups"
    axes.set_title(legend, loc="right", color=palette.FADED, fontsize=9)
    if len(groups) > 1 and not by_gamma:
        columns = min(len(groups), 5)
        figure.legend(loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
    _draw_labels(figure, axes, points)
    return figure


def draw_pictures(
    report: TournamentReport, photos: Dataset, maps: Mapping[str, CandidateMaps]
) -> Image.Image | None:
    """Draw the maps of all candidates on the same photographs, in bands of twelve candidates.

    None if there is no map or no photograph.
    """
    thumbnails = {i: image for i in range(len(photos)) if (image := _thumbnail(photos, i))}
    if not thumbnails or not any(result.name in maps for result in report.ranked):
        return None
    results = report.ranked
    bands = [results[i : i + MAX_COLUMNS] for i in range(0, len(results), MAX_COLUMNS)]
    step = TILE + GAP
    width = 2 * MARGIN + step * (1 + len(bands[0])) - GAP
    height = NAME_HEIGHT + step * len(thumbnails)
    size = (width, MARGIN + TITLE_HEIGHT + len(bands) * (height + MARGIN))
    page = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(page)
    title = f"{report.data} · {report.backbone}, frozen · maps for the true class, the best first"
    draw.text((MARGIN, MARGIN - 6), shorten(title, width - 2 * MARGIN, 18, draw), INK, font(18))
    for number, band in enumerate(bands):
        top = MARGIN + TITLE_HEIGHT + number * (height + MARGIN)
        for row, thumbnail in enumerate(thumbnails.values()):
            page.paste(thumbnail, (MARGIN, top + NAME_HEIGHT + row * step))
        for column, result in enumerate(band, 1):
            left = MARGIN + column * step
            kind, values = maps.get(result.name, ("", None))
            note = f"{result.mean:.1f}% · {MAP_KINDS.get(kind, 'no map')}"
            draw.text((left, top), shorten(result.name, TILE, 14, draw), INK, font(14))
            draw.text((left, top + 19), shorten(note, TILE, 12, draw), FADED, font(12))
            for row, (position, thumbnail) in enumerate(thumbnails.items()):
                tile = _empty_tile()
                if values is not None:
                    tile = overlay(thumbnail, _positive(values[position]))
                page.paste(tile, (left, top + NAME_HEIGHT + row * step))
    return page


def _draw_candidate(
    axes: Axes, result: CandidateResult, group: int, by_gamma: bool
) -> LabelledPoint:
    colour, star = (
        palette.COLOURS[group % len(palette.COLOURS)],
        result.group_winner and not by_gamma,
    )
    x = result.gamma if by_gamma else float(result.trained)
    if x is None:
        axes.axhline(result.mean, color=colour, linewidth=1.2, linestyle="--", alpha=0.8, zorder=1)
        return LabelledPoint(None, result.mean, result.name, colour, False)
    deviation = result.deviation or None
    axes.errorbar(x, result.mean, deviation, color=colour, elinewidth=0.9, alpha=0.45, zorder=2)
    marker, size = ("*", 17) if star else (palette.MARKERS[group % len(palette.MARKERS)], 8)
    axes.plot(
        x,
        result.mean,
        marker,
        color=colour,
        markersize=size,
        markeredgecolor=palette.PAPER,
        markeredgewidth=0.8,
        zorder=4 if star else 3,
    )
    return LabelledPoint(x, result.mean, result.name, colour, star)


def _draw_axes(axes: Axes, points: Sequence[LabelledPoint], by_gamma: bool) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    if by_gamma:
        line = sorted((point.x, point.y) for point in points if point.x is not None)
        axes.plot(
            *zip(*line, strict=True), color=palette.COLOURS[0], linewidth=1, alpha=0.5, zorder=1
        )
        axes.set_xlabel("exponent γ", color=palette.INK)
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("trained parameters (pool and head)", color=palette.INK)
    axes.margins(0.09, 0.08)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_labels(figure: Figure, axes: Axes, points: Sequence[LabelledPoint]) -> None:
    """Write names beside their points without overlap, winners first; distant ones with a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer: Any = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw_without_rendering()  # fixes the layout that is measured below
    frame = axes.get_window_extent(renderer)
    area: PixelBox = (frame.x0, frame.y0, frame.x1, frame.y1)
    to_pixels, scale = axes.transData.transform, figure.dpi / 72
    labels: list[PixelBox] = []
    dots = []
    for point in points:
        if point.x is not None:
            x, y = to_pixels((point.x, point.y))
            dots.append((x, y, (9 if point.star else 5) * scale))
    for point in sorted(points, key=lambda point: (not point.star, -point.y)):
        weight, size, distance = ("bold", 10, 19) if point.star else ("normal", 8.5, 12)
        style: dict[str, Any] = {"fontsize": size, "color": point.colour, "weight": weight}
        text = axes.text(0, 0, point.name, transform=None, zorder=6, **style)
        box = text.get_window_extent(renderer)
        text.remove()
        x, y = to_pixels((axes.get_xlim()[0] if point.x is None else point.x, point.y))
        if point.x is None:  # at the right end of its line
            x = area[2] - box.width
        anchor: tuple[float, float] = (float(x), float(y))
        place = place_label(anchor, (box.width, box.height), labels, dots, area, scale)
        labels.append(place)
        line = None
        if point.x is not None and distance_to_box(anchor, place) > distance * scale:
            line = {"arrowstyle": "-", "color": point.colour, "alpha": 0.5, "linewidth": 0.7}
            line |= {"shrinkA": 0, "shrinkB": 4}
        # In points from the anchor: independent of the resolution of the file.
        offset = ((place[0] - anchor[0]) / scale, (place[1] - anchor[1]) / scale)
        axes.annotate(
            point.name,
            tuple(axes.transData.inverted().transform(anchor)),
            offset,
            textcoords="offset points",
            zorder=6,
            arrowprops=line,
            **style,
        ).set_in_layout(False)


def _thumbnail(photos: Dataset, i: int) -> Image.Image | None:
    """Return the image as the backbone saw it, uncropped and squeezed to a square."""
    try:
        return photos.image(i).resize((TILE, TILE), Image.Resampling.LANCZOS)
    except BadImage:
        return None


def _positive(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Clip a CAM at 0, since negative values are against the class; else subtract the minimum."""
    values = np.nan_to_num(values)
    if values.min() < 0 < values.max():
        positive: np.ndarray[Any, Any] = np.clip(values, 0, None)
        return positive
    shifted: np.ndarray[Any, Any] = values - values.min()
    return shifted


def _empty_tile() -> Image.Image:
    tile = Image.new("RGB", (TILE, TILE), (238, 236, 231))
    ImageDraw.Draw(tile).text((TILE / 2, TILE / 2), "no map", FADED, font(12), anchor="mm")
    return tile
