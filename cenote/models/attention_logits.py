"""Attention before its softmax, read while a model trains: what SAR's loss is a function of."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones import Features
from .attention_maps import AttentionCall, AttentionHook, fused, refuse_differential
from .pooled import PooledModel


class AttentionLogits:
    """`with AttentionLogits(model) as seen: model(images)`, then `seen.last()` is (B, heads, H, W),
    with its gradient.

    For a CLS model <q_CLS, k> / sqrt d of the last block [SAR Eq. 4]. Else the logarithm of the
    pool's own map: that differs from what its softmax was given by a constant, which the mean of
    [SAR Eq. 5] takes off again.
    """

    def __init__(self, model: PooledModel) -> None:
        if model.pool is not None and model.pool.no_attention:
            raise ValueError(
                f"'{model.pool.name}' has no attention of its own ({model.pool.no_attention}): take"
                " a pool with a map (simpool), or the CLS token"
            )
        self.model = model
        self.features: Features | None = None
        self.hook: AttentionHook[Tensor] | None = None
        self.rows: Tensor | None = None
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
        self.features = features
        if self.hook is not None:  # now: a teacher may run next
            self.rows = self.hook.seen[-1] if self.hook.seen else None

    def last(self) -> Tensor:
        assert self.features is not None, "the model has not run"
        if self.hook is None:
            a = self.model.pool_features(self.features)[1]
            assert a is not None
            return a.float().clamp_min(torch.finfo(torch.float32).tiny).log()  # (B, queries, H, W)
        tokens, grid, _ = self.features
        patches, backbone, rows = grid[0] * grid[1], self.model.backbone, self.rows
        if rows is None or (len(rows), rows.shape[-1]) != (len(tokens), patches + backbone.prefix):
            raise ValueError(
                f"the last attention of '{backbone.name}' is not one of CLS over all patches: a "
                "pool can take its place"
            )
        return rows[..., -patches:].unflatten(-1, grid)
