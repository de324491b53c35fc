"""The attention of any ViT, recomputed from the queries and keys that fused attention is given.

Fused attention stays on, and the backbone runs as it always does: a hook sees what its layers hand
to `scaled_dot_product_attention`. Queries and keys come after rotation and normalisation, with
position biases and registers, whatever the family adds. Only the rows that are asked for are
computed again, so a map costs about as much as one more token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..options import check_choice
from ..pooling.attention_hook import AttentionCall, AttentionHook
from ..pooling.simpool import SimPool
from .saving import SavedModel

T = TypeVar("T")
Source = Literal["pool", "block", "map"]
SOURCES = ("auto", "pool", "block", "map")


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """Fused attention in every layer that can, for this run: it is the place where we look."""
    off = [m for m in model.modules() if getattr(m, "fused_attn", None) is False]
    for module in off:
        module.fused_attn = True  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in off:
            module.fused_attn = False  # type: ignore[assignment]


def run_with_hook(
    backbone: Backbone, images: Tensor, look: Callable[[AttentionCall], T], keep: int | None = None
) -> tuple[Features, list[T]]:
    """Run the backbone once: its features, and what was seen."""
    refuse_differential(backbone)
    with fused(backbone), AttentionHook(look, keep) as hook:
        features: Features = backbone(images)
    return features, list(hook.seen)


def backbone_of(model: nn.Module) -> Backbone:
    """Of a model of `create_model`, or the backbone itself."""
    backbone = getattr(model, "backbone", model)
    assert isinstance(backbone, Backbone)
    return backbone


def refuse_differential(backbone: Backbone) -> None:
    if any(type(m).__name__.startswith("Diff") for m in backbone.modules()):
        raise ValueError(f"the attention of '{backbone.name}' is a difference of two maps, not one")


def cls_attention(
    model: nn.Module,
    images: Tensor,
    block: int | None = -1,
    heads: Literal["mean", "all"] = "mean",
    normalise: bool = False,
) -> Tensor:
    """Where the CLS token looks: (B, m, H, W), the softmax over all tokens, shown for the patches.

    One block, or all of them in a row (`block=None`); the mean over heads, or each head. The rest
    of the mass is on CLS itself and on registers; `normalise=True` gives the patches the whole.
    """
    check_choice("heads", heads, ("mean", "all"))
    scores, grid = cls_scores(model, images, block)
    maps = [s.softmax(-1)[..., -grid[0] * grid[1] :].unflatten(-1, grid) for s in scores]
    if heads == "mean":
        maps = [a.mean(1, keepdim=True) for a in maps]
    a = torch.cat(maps, 1)
    if normalise:
        a = a / a.sum((-2, -1), keepdim=True)
    return a


def cls_scores(
    model: nn.Module, images: Tensor, block: int | None = -1
) -> tuple[list[Tensor], tuple[int, int]]:
    """S = <q_CLS, k> / sqrt d before the softmax, (B, h, prefix + H W), by block; the grid."""
    backbone = backbone_of(model)
    if not backbone.has_cls:
        raise ValueError(
            f"'{backbone.name}' has no CLS token (or it was removed: keep_cls=True keeps it)"
        )
    features, all_scores = run_with_hook(backbone, images, AttentionCall.cls_scores)
    grid = backbone.attention_grid(features.grid)
    tokens = grid[0] * grid[1] + backbone.prefix
    # Late class attention (CaiT, XCiT) has blocks before it that mix channels, or part of the
    # tokens.
    rows = [s for s in all_scores if s.shape[-1] == tokens and len(s) == len(images)]
    if not rows:
        raise ValueError(_unseen(backbone))
    if block is not None:
        if not -len(rows) <= block < len(rows):
            raise ValueError(f"'{backbone.name}' has {len(rows)} blocks, got block {block}")
        rows = [rows[block]]
    return rows, grid


def rollout(model: nn.Module, images: Tensor) -> Tensor:
    """Attention rollout (Abnar & Zuidema, 2020): (B, 1, H, W).

    The mean over heads plus the identity (the skip connection), rows summing to one, multiplied
    through all blocks. The row of CLS is shown, or the mean row of the patches where there is no
    CLS.
    """
    backbone = backbone_of(model)
    features, calls = run_with_hook(
        backbone, images, lambda call: call._replace(v=call.v.new_empty(0))
    )
    patches = features.grid[0] * features.grid[1]
    tokens = patches + backbone.prefix
    shape = len(images), tokens  # windows are several rows of an image
    if not calls or any({(len(x), x.shape[-2]) for x in (c.q, c.k)} != {shape} for c in calls):
        raise ValueError(
            f"rollout needs attention between the same tokens in all blocks: {_unseen(backbone)}"
        )
    row = calls[0].q.new_zeros(len(images), 1, tokens)
    if backbone.has_cls:
        row[..., 0] = 1
    else:
        row[..., backbone.prefix :] = 1 / patches
    blocks: Any = getattr(backbone.model, "blocks", [None])
    skip = getattr(blocks[-1], "msa_skip", True)  # SAR's last block has no skip connection
    for call in reversed(calls):  # one row of the product: vectors times matrices, from the left
        step = _step(row, call)
        if skip:
            step = (row + step) / 2
        row, skip = step, True
    return row[..., backbone.prefix :].unflatten(-1, features.grid)


def _step(row: Tensor, call: AttentionCall) -> Tensor:
    """(B, 1, N) times the mean attention of the heads, one head at a time: N x N is large."""
    heads = call.q.shape[1]
    total = torch.zeros_like(row)
    for h in range(heads):
        head_call = call._replace(q=call.q[:, h], k=call.k[:, h])
        if call.mask is not None:
            head_call = head_call._replace(mask=call.mask.expand(*call.q.shape[:3], -1)[:, h])
        total = total + row @ head_call.scores().softmax(-1)
    return total / heads


class QKV(NamedTuple):
    """Of the patches, heads side by side (B, N, D). Class attention has no queries of patches."""

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
    qkv = _last_qkv(model, images, rotated)[1]
    if qkv is None:
        raise ValueError(_unseen(backbone_of(model)))
    return qkv


def _last_qkv(model: nn.Module, images: Tensor, rotated: bool) -> tuple[Features, QKV | None]:
    """The features, and q, k and v of the last block if it attends over all patches."""
    backbone = backbone_of(model)
    with before_rotation(backbone) as plain:
        features, calls = run_with_hook(backbone, images, lambda call: call, keep=1)
    patches = features.grid[0] * features.grid[1]
    expected = (len(images), patches + backbone.prefix)
    if not calls or (len(calls[-1].k), calls[-1].k.shape[-2]) != expected:
        return features, None
    q, k, v, *_ = calls[-1]
    if not rotated:
        q, k = (_same_shape(plain.get(n), x) for n, x in (("q_norm", q), ("k_norm", k)))

    def of_patches(x: Tensor) -> Tensor:
        return x[..., -patches:, :].transpose(1, 2).flatten(2)  # (B, h, N, d) -> (B, N, h d)

    queries = of_patches(q) if q.shape[-2] == k.shape[-2] else None
    return features, QKV(queries, of_patches(k), of_patches(v), features.grid)


def _same_shape(plain: Tensor | None, x: Tensor) -> Tensor:
    if plain is None or plain.shape != x.shape:
        return x
    return plain


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
    check_choice("the source of keys", source, SOURCES)
    pool = getattr(model, "pool", None)
    if isinstance(pool, SimPool) and source in ("auto", "pool"):
        features = backbone_of(model)(images)
        return PatchKeys(pool.keys(pool.local(features.tokens)), features.grid, "pool")
    if source == "pool":
        raise ValueError(f"this model has no SimPool: keys come from one of {SOURCES[2:]}")
    if source == "map":
        features = backbone_of(model)(images)
        return PatchKeys(features.tokens, features.grid, "map")
    if source == "block":
        qkv = last_qkv(model, images, rotated=False)
        return PatchKeys(qkv.k, qkv.grid, "block")
    features, last = _last_qkv(model, images, rotated=False)
    if last is not None:
        return PatchKeys(last.k, last.grid, "block")
    return PatchKeys(features.tokens, features.grid, "map")  # convolutions, windows


@contextmanager
def before_rotation(backbone: Backbone) -> Iterator[dict[str, Tensor]]:
    """The last outputs of the layers through which q and k go just before they are rotated."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, out: Tensor) -> None:
            outputs[name] = out

        return hook

    named = [(n.rpartition(".")[2], m) for n, m in backbone.named_modules()]
    handles = [m.register_forward_hook(keep(n)) for n, m in named if n in ("q_norm", "k_norm")]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


class AttentionLogits:
    """Attention before its softmax, read while a model trains: what SAR's loss is a function of.

    `with AttentionLogits(model) as seen: model(images)`, then `seen.last()` is (B, heads, H, W),
    with its gradient. If the model runs several times, the passes over images of the last size
    are concatenated: MoCo's two views count, and of DINO's crops the large ones, which run last.

    For a CLS model <q_CLS, k> / sqrt d of the last block [SAR Eq. 4]. Else the logarithm of the
    pool's own map: that differs from what its softmax was given by a constant, which the mean of
    [SAR Eq. 5] takes off again.
    """

    def __init__(self, model: SavedModel) -> None:
        if model.pool is not None and model.pool.no_attention:
            raise ValueError(
                f"'{model.pool.name}' has no attention of its own ({model.pool.no_attention}): take"
                " a pool with a map (simpool), or the CLS token"
            )
        self.model = model
        self.hook: AttentionHook[Tensor] | None = None
        self.size: torch.Size | None = None  # of the images
        self.passes: list[tuple[Features, Tensor | None]] = []  # with the attention of CLS
        if model.pool is None:
            refuse_differential(model.backbone)

    def __enter__(self) -> AttentionLogits:
        self.stack = ExitStack()
        handle = self.model.backbone.register_forward_hook(self._keep)
        self.stack.callback(handle.remove)
        if self.model.pool is None:
            self.stack.enter_context(fused(self.model.backbone))
            self.hook = self.stack.enter_context(AttentionHook(AttentionCall.cls_scores, keep=1))
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def _keep(self, module: nn.Module, inputs: Any, features: Features) -> None:
        size = inputs[0].shape[2:]
        if size != self.size:
            self.size, self.passes = size, []
        rows = None
        if self.hook is not None:  # now: a teacher may run next
            rows = next(reversed(self.hook.seen), None)
        self.passes.append((features, rows))

    def last(self) -> Tensor:
        assert self.passes, "the model has not run"
        return torch.cat([self._logits(*arguments) for arguments in self.passes])

    def _logits(self, features: Features, rows: Tensor | None) -> Tensor:
        if self.hook is None:
            a = self.model.pool_features(features)[1]
            assert a is not None
            return a.float().clamp_min(torch.finfo(torch.float32).tiny).log()  # (B, queries, H, W)
        backbone = self.model.backbone
        grid = backbone.attention_grid(features.grid)
        patches, images = grid[0] * grid[1], len(features.tokens)
        if rows is None or (len(rows), rows.shape[-1]) != (images, patches + backbone.prefix):
            raise ValueError(
                f"the last attention of '{backbone.name}' is not one of CLS over all patches: a "
                "pool can take its place"
            )
        return rows[..., -patches:].unflatten(-1, grid)


def _unseen(backbone: Backbone) -> str:
    return (
        f"no attention over all patches was seen in '{backbone.name}': it has none, attends within "
        "windows, or computes it by its own means (a class activation map, kind='cam', needs none)"
    )
