"""The attention of any ViT, recomputed from the queries and keys that fused attention is given.

Fused attention stays on. Only the rows that are asked for are computed again (watch.py), so a map
costs about as much as one more token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..backbones import Backbone
from ..backbones.families import LATE_BLOCKS
from ..pooling.simpool import SimPool
from .attention_hooks import AttentionCall, backbone_of, run_with_hook

Source = Literal["pool", "block", "map"]
SOURCES = ("auto", "pool", "block", "map")


def cls_attention(
    model: nn.Module,
    images: Tensor,
    block: int | None = -1,
    heads: Literal["mean", "all"] = "mean",
    normalise: bool = False,
) -> Tensor:
    """Where the CLS token looks: (B, m, H, W), the softmax over all tokens, shown for the patches.

    One block, or all of them in a row (`block=None`); the mean over heads, or each head. The rest
    of the mass lies on CLS itself and on registers; `normalise=True` gives the patches the whole.
    """
    if heads not in ("mean", "all"):
        raise ValueError(f"heads is 'mean' or 'all', got '{heads}'")
    scores, grid = cls_scores(model, images, block)
    a = [s.softmax(-1)[..., -grid[0] * grid[1] :] for s in scores]
    maps = torch.cat([x.mean(1, keepdim=True) if heads == "mean" else x for x in a], 1).unflatten(
        -1, grid
    )
    return maps / maps.sum((-2, -1), keepdim=True) if normalise else maps


def cls_scores(
    model: nn.Module, images: Tensor, block: int | None = -1
) -> tuple[list[Tensor], tuple[int, int]]:
    """S = <q_CLS, k> / sqrt d before the softmax, over all tokens (B, h, prefix + H W), block by
    block; the grid.
    """
    backbone = backbone_of(model)
    refuse_differential(backbone)
    if not backbone.has_cls:
        raise ValueError(
            f"'{backbone.name}' has no CLS token (or it was removed: keep_cls=True keeps it)"
        )
    features, all_scores = run_with_hook(
        backbone, images, lambda call: call.scores(slice(0, 1))[..., 0, :]
    )
    tokens = features.grid[0] * features.grid[1] + backbone.prefix
    # Late class attention (CaiT, XCiT) has blocks before it that mix channels, or part of the
    # tokens.
    rows = [s for s in all_scores if s.shape[-1] == tokens and len(s) == len(images)]
    if not rows:
        raise ValueError(_unseen(backbone))
    if block is None:
        return rows, features.grid
    if not -len(rows) <= block < len(rows):
        raise ValueError(
            f"'{backbone.name}' has {len(rows)} blocks in which CLS attends, there is no block {block}"
        )
    return [rows[block]], features.grid


def rollout(model: nn.Module, images: Tensor) -> Tensor:
    """Attention rollout (Abnar & Zuidema, 2020): (B, 1, H, W).

    The mean over heads plus the identity (the skip connection), rows summing to one, multiplied
    through all blocks. The row of CLS is shown, or the mean row of the patches where there is no
    CLS.
    """
    backbone = backbone_of(model)
    refuse_differential(backbone)
    if backbone.family in LATE_BLOCKS:
        raise ValueError(
            f"rollout follows attention between all tokens through all blocks; '{backbone.name}' has it only in its "
            "last, class-attention blocks"
        )
    features, calls = run_with_hook(
        backbone, images, lambda call: call._replace(v=call.v.new_empty(0))
    )
    patches = features.grid[0] * features.grid[1]
    tokens = patches + backbone.prefix
    if not calls or any(c.q.shape[-2] != tokens or c.k.shape[-2] != tokens for c in calls):
        raise ValueError(f"rollout needs the same tokens in all blocks: {_unseen(backbone)}")
    row = calls[0].q.new_zeros(len(images), 1, tokens)
    if backbone.has_cls:
        row[..., 0] = 1
    else:
        row[..., backbone.prefix :] = 1 / patches
    blocks: Any = getattr(backbone.model, "blocks", [None])
    skip = getattr(blocks[-1], "msa_skip", True)  # SAR's last block has no skip connection
    for call in reversed(
        calls
    ):  # only one row of the product is wanted: vectors times matrices, from the left
        row = (row + _step(row, call)) / 2 if skip else _step(row, call)
        skip = True
    return row[..., backbone.prefix :].unflatten(-1, features.grid)


def _step(row: Tensor, call: AttentionCall) -> Tensor:
    """(B, 1, N) times the mean attention of the heads, one head at a time: N x N is large."""
    heads = call.q.shape[1]
    total = torch.zeros_like(row)
    for h in range(heads):
        mask = None if call.mask is None else call.mask.expand(*call.q.shape[:3], -1)[:, h]
        head_call = AttentionCall(call.q[:, h], call.k[:, h], call.v, mask, call.scale)
        total = total + row @ head_call.scores().softmax(-1)
    return total / heads


class QKV(NamedTuple):
    """Of the patches, heads side by side (B, N, D). Class attention has no queries of patches: q is
    None.
    """

    q: Tensor | None
    k: Tensor
    v: Tensor
    grid: tuple[int, int]


def last_qkv(model: nn.Module, images: Tensor, rotated: bool = True) -> QKV:
    """Queries, keys and values of the last block, without CLS and registers: what object discovery
    reads.

    They are as attention compares them: normalised and rotated where the model does so.
    `rotated=False` takes them before the rotation, so that likeness does not fade with distance.
    """
    backbone = backbone_of(model)
    refuse_differential(backbone)
    with before_rotation(backbone) as plain:
        features, calls = run_with_hook(backbone, images, lambda call: call, keep=1)
    patches = features.grid[0] * features.grid[1]
    call = calls[-1] if calls else None
    if call is None or call.k.shape[-2] != patches + backbone.prefix or len(call.k) != len(images):
        raise ValueError(_unseen(backbone))
    q, k = call.q, call.k
    if not rotated:
        q, k = plain.get("q_norm", q), plain.get("k_norm", k)

    def of_patches(x: Tensor) -> Tensor:
        return x[..., -patches:, :].transpose(1, 2).flatten(2)  # (B, h, N, d) -> (B, N, h d)

    queries = of_patches(q) if q.shape[-2] == k.shape[-2] else None
    return QKV(queries, of_patches(k), of_patches(call.v), features.grid)


class PatchKeys(NamedTuple):
    values: Tensor  # (B, N, D), not normalised; CLS and registers are not among them
    grid: tuple[int, int]
    source: Source


def last_keys(model: nn.Module, images: Tensor, source: str = "auto") -> PatchKeys:
    """Of a model or a backbone: SimPool's own keys [SimPool Eq. 14], else the last block's, else
    the feature map.

    `source` asks for one of them: "pool", "block" or "map". A block's keys are its heads side by
    side, before they are rotated, so that likeness does not fade with distance.
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
        return PatchKeys(pool.keys(tokens), grid, "pool")
    if source == "map":
        tokens, grid, _ = backbone(images)
        return PatchKeys(tokens, grid, "map")
    refuse_differential(backbone)
    with before_rotation(backbone) as plain:
        (tokens, grid, _), keys = run_with_hook(backbone, images, lambda call: call.k, keep=1)
    count = grid[0] * grid[1]
    if not keys or keys[-1].shape[-2] != count + backbone.prefix or len(keys[-1]) != len(images):
        if source == "block":
            raise ValueError(
                f"no attention over all patches was seen in '{backbone.name}': its keys are its map"
            )
        return PatchKeys(tokens, grid, "map")  # convolutions, windows
    k, before = keys[-1], plain.get("k_norm")  # (B, h, prefix + N, d)
    k = before if before is not None and before.shape == k.shape else k
    return PatchKeys(k[..., -count:, :].transpose(1, 2).flatten(2), grid, "block")


@contextmanager
def before_rotation(backbone: Backbone) -> Iterator[dict[str, Tensor]]:
    """The last outputs of the layers through which q and k go just before they are rotated."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, out: Tensor) -> None:
            outputs[name] = out

        return hook

    ends = ("q_norm", "k_norm")
    named = [(n.rpartition(".")[2], m) for n, m in backbone.named_modules()]
    handles = [m.register_forward_hook(keep(n)) for n, m in named if n in ends]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def refuse_differential(backbone: Backbone) -> None:
    if any(type(m).__name__.startswith("Diff") for m in backbone.modules()):
        raise ValueError(
            f"the attention of '{backbone.name}' is a difference of two: it is no single map"
        )


def _unseen(backbone: Backbone) -> str:
    return (
        f"no attention over all patches was seen in '{backbone.name}': it has none, attends within windows, "
        "or computes it by its own means (a class activation map, kind='cam', needs none)"
    )
