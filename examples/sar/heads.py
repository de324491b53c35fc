"""Attention of every head, several models side by side: is it coherent or scattered?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image

from cenote.data import BadImage, Dataset
from cenote.losses import spatial_entropy
from cenote.models import PooledModel
from cenote.models.attention_maps import AttentionLogits
from cenote.report import SheetEntry, contact_sheet, overlay


@torch.no_grad()
def maps_by_head(
    model: PooledModel, photo: Image.Image, size: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the map of each head (heads, H, W) and its spatial entropy (heads,).

    The heads are those of the CLS attention of the last block, or the maps of the pool. The
    photograph is resized to a square of `size` pixels.
    """
    model, preprocessing = model.eval(), model.backbone.preprocessing
    side = size or preprocessing.size
    pixels = preprocessing.whole((side, side))(photo)[None].to(next(model.parameters()).device)
    with AttentionLogits(model) as scores:  # raises for a pool without a map
        model.embed(pixels)
    if model.pool is None:
        maps = model.attend(pixels, kind="cls", heads="all")[0]
    else:
        maps = model.attend(pixels, kind="pool")[0]
    return maps.float().cpu().numpy(), spatial_entropy(scores.last(), "none")[0].cpu().numpy()


def draw_heads(
    models: Mapping[str, PooledModel],
    dataset: Dataset,
    positions: Sequence[int],
    heading: str = "",
    side: int = 112,
    columns: int = 0,
    size: int | None = None,
) -> Image.Image:
    """Draw, for each image and model, the photograph and the map of each head over it.

    Each map is scaled from its minimum to its maximum, because the entropy measures its shape.
    The note is the mean spatial entropy. `columns`: entries in a row; by default one per model.
    """
    entries = []
    for position in positions:
        try:
            photo = dataset.image(position)
        except BadImage:  # draw the others
            continue
        scale = side / max(photo.size)
        size_on_page = [max(1, round(length * scale)) for length in photo.size]
        large = photo.resize(size_on_page, Image.Resampling.LANCZOS)
        for name, model in models.items():
            maps, entropies = maps_by_head(model, photo, size)
            overlays = [overlay(large, a - a.min()) for a in maps]
            entries.append(SheetEntry([large, *overlays], name, f"H {entropies.mean():.2f}"))
    if not entries:
        raise ValueError(
            f"no image of {dataset.name} can be drawn: give models and positions of readable images"
        )
    return contact_sheet(entries, heading, columns or len(models), side)
