"""Where each method looks: a row for each photograph, dark water over what is not looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .blocks import Map, Maps, Photo
from .markup import Html, el
from .pictures import veil_of
from .shots import checked, figure, image, size_of

WIDEST = 9  # tiles in a line
DOWN, ACROSS = ("top", "middle", "bottom"), ("left", "centre", "right")
# Nine colours of matplotlib's inferno, which a filter blends: the same map as in the other pictures.
HEAT = (
    (0.001, 0.0, 0.014), (0.122, 0.047, 0.283), (0.342, 0.062, 0.429), (0.542, 0.135, 0.415), (0.736, 0.216, 0.33),
    (0.894, 0.353, 0.193), (0.978, 0.558, 0.035), (0.965, 0.795, 0.23), (0.988, 0.998, 0.645),
)  # fmt: skip


def draw_maps(block: Maps, name: str) -> Html:
    """Photographs with one or two maps stand side by side."""
    rows = el("div", [_row(photo) for photo in block.photos], class_="rows")
    few = max((len(photo.maps) for photo in block.photos), default=0) <= 2
    return el(
        "div",
        _controls(name),
        _filters(name),
        rows,
        class_="maps few" if few else "maps",
        data_filters=name,
    )


def _row(photo: Photo) -> Html:
    width, height = size_of(photo.picture)
    tiles = [
        figure(image(photo.picture, photo.caption), el("b", photo.caption), "first", photo.caption)
    ]
    tiles += [_tile(one, photo.caption) for one in photo.maps]
    # The photograph is in the page twice, however many maps are laid over it.
    columns = math.ceil(
        len(tiles) / math.ceil(len(tiles) / WIDEST)
    )  # no tile alone in the last line
    style = f"--photo:url({checked(photo.picture)});--shape:{width}/{height};--columns:{columns}"
    return el(
        "div", tiles, class_="row gallery", style=style, role="group", aria_label=photo.caption
    )


def _tile(found: Map, caption: str) -> Html:
    words = [el("b", found.name), el("span", found.note, class_="note") if found.note else None]
    if not found.values:
        return figure(el("span", "no map", class_="empty"), words, "blank")
    alt = f"{found.name} on {caption}: looks most at {brightest(found.values)}"
    veil = el("img", src=veil_of(found.values), alt=alt, class_="veil")
    return figure(veil, words, "seen", f"{found.name} · {caption}")


def brightest(values: Sequence[Sequence[float]]) -> str:
    """In words, for those who do not see it: "the top left"."""
    rows, columns = len(values), len(values[0])
    place = max(range(rows * columns), key=lambda i: values[i // columns][i % columns])
    down = DOWN[(2 * (place // columns) + 1) * 3 // (2 * rows)]
    across = ACROSS[(2 * (place % columns) + 1) * 3 // (2 * columns)]
    return "the " + {"middle centre": "centre", "middle left": "left", "middle right": "right"}.get(
        f"{down} {across}", f"{down} {across}"
    )


def _controls(name: str) -> Html:
    """Hidden until the script is there that moves them."""
    dark = el(
        "input", type="range", id=f"{name}-opacity", min=0, max=100, value=88, data_set="opacity"
    )
    cut = el("input", type="range", id=f"{name}-cut", min=0, max=100, value=0, data_set="cut")
    light = el("input", type="radio", name=f"{name}-look", value="light", checked=True)
    heat = el("input", type="radio", name=f"{name}-look", value="heat")
    return el(
        "div",
        el("label", el("span", "Overlay"), dark, el("output", "88%"), for_=f"{name}-opacity"),
        el("label", el("span", "Threshold"), cut, el("output", "off"), for_=f"{name}-cut"),
        el("fieldset", el("legend", "Show as", class_="unseen"), el("label", light, "light"),
           el("label", heat, "heat")),
        class_="controls", hidden=True,
    )  # fmt: skip


def _filters(name: str) -> Html:
    """A veil holds 1 - value in its alpha. `cut` lights what is above the threshold; `heat` colours values."""
    cut = el("filter", el("feComponentTransfer", el("feFuncA", type="discrete", tableValues="0 1")),
             id=f"{name}-cut-filter", color_interpolation_filters="sRGB")  # fmt: skip
    value = "0 0 0 -1 1 "
    matrix = el("feColorMatrix", type="matrix", values=(value * 4).strip())
    colours = [
        el(
            f"feFunc{channel}",
            type="table",
            tableValues=" ".join(f"{colour[i]:g}" for colour in HEAT),
        )
        for i, channel in enumerate("RGB")
    ]
    strength = el("feFuncA", type="table", tableValues="0.45 0.95")
    heat = el("filter", matrix, el("feComponentTransfer", colours, strength), id=f"{name}-heat-filter",
              color_interpolation_filters="sRGB")  # fmt: skip
    return el("svg", cut, heat, width=0, height=0, aria_hidden="true", class_="filters")
