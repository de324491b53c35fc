"""What each head of a model looks at, several models side by side: does attention hold together, or is it scattered?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from ..data import BadImage, Dataset
from ..losses import spatial_entropy
from ..models import PooledModel
from ..models.scores import Scores
from .maps import overlay
from .sheet import Entry, contact_sheet


@torch.no_grad()
def look_by_head(
    model: PooledModel, photo: Image.Image, size: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The whole photograph, squeezed to `size`: each head's map (heads, H, W), and its spatial entropy (heads,).

    The heads of the last block's CLS attention, or the maps of the pool.
    """
    model, own = model.eval(), model.backbone.preprocessing
    side = own.size if size is None else size
    pixels = own.whole((side, side))(photo)[None].to(next(model.parameters()).device)
    with Scores(model) as seen:  # a pool without a map is refused here
        model.embed(pixels)
    every: dict[str, Any] = (
        {"kind": "cls", "heads": "all"} if model.pool is None else {"kind": "pool"}
    )
    maps = model.attend(pixels, **every)[0]
    return maps.float().cpu().numpy(), spatial_entropy(seen.last(), "none")[0].cpu().numpy()


def heads_page(
    models: Mapping[str, PooledModel],
    dataset: Dataset,
    positions: Sequence[int],
    heading: str = "",
    side: int = 112,
    columns: int = 0,
    size: int | None = None,
) -> Image.Image:
    """For each image and model, by its name: the photograph, and the map of each head over it.

    Each map is shown from its lowest place to its highest: its shape is what the entropy is of, however flat it is.
    The note is the mean spatial entropy of these maps. `columns`: entries in a row, as many as models if not given.
    """
    entries = []
    for position in positions:
        try:
            photo = dataset.image(position)
        except BadImage:  # the others are shown
            continue
        large = photo.resize(_within(photo.size, side), Image.Resampling.LANCZOS)
        for name, model in models.items():
            maps, entropies = look_by_head(model, photo, size)
            heads = [overlay(large, a - a.min()) for a in maps]
            entries.append(Entry([large, *heads], name, f"H {entropies.mean():.2f}"))
    if not entries:
        raise ValueError(
            f"no image of {dataset.name} to show heads on: give models, and positions of readable images"
        )
    return contact_sheet(entries, heading, columns or len(models), side)


def _within(size: tuple[int, int], side: int) -> tuple[int, int]:
    scale = side / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
