"""What objects are discovered from: the keys of the last attention, or the feature map where there is none."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor, nn

from ..pooling.simpool import SimPool
from .attention_maps import before_rotation, refuse_differential
from .watch import backbone_of, watched

Source = Literal["pool", "block", "map"]
SOURCES = ("auto", "pool", "block", "map")


class Keys(NamedTuple):
    values: Tensor  # (B, N, D), not normalised; CLS and registers are not among them
    grid: tuple[int, int]
    source: Source


def last_keys(model: nn.Module, images: Tensor, source: str = "auto") -> Keys:
    """Of a model or a backbone: SimPool's own keys (S 14), else the last block's, else the feature map.

    `source` asks for one of them: "pool", "block" or "map". A block's keys are its heads side by side, before they
    are rotated, so that likeness does not fade with distance.
    """
    if source not in SOURCES:
        raise ValueError(f"keys come from one of {', '.join(SOURCES)}, got '{source}'")
    pool = getattr(model, "pool", None)
    backbone = backbone_of(model)
    if source == "pool" or (source == "auto" and isinstance(pool, SimPool)):
        if not isinstance(pool, SimPool):
            raise ValueError(
                f"this model has no SimPool whose keys could be read: source is one of {SOURCES[2:]}"
            )
        tokens, grid, _ = backbone(images)
        return Keys(pool.keys(tokens), grid, "pool")
    if source == "map":
        tokens, grid, _ = backbone(images)
        return Keys(tokens, grid, "map")
    refuse_differential(backbone)
    with before_rotation(backbone) as plain:
        (tokens, grid, _), seen = watched(backbone, images, lambda call: call.k, keep=1)
    count = grid[0] * grid[1]
    if not seen or seen[-1].shape[-2] != count + backbone.prefix or len(seen[-1]) != len(images):
        if source == "block":
            raise ValueError(
                f"no attention over all patches was seen in '{backbone.name}': its keys are its map"
            )
        return Keys(tokens, grid, "map")  # convolutions, windows
    k, before = seen[-1], plain.get("k_norm")  # (B, h, prefix + N, d)
    k = before if before is not None and before.shape == k.shape else k
    return Keys(k[..., -count:, :].transpose(1, 2).flatten(2), grid, "block")
