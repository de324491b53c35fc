"""The part of a model behind a frozen backbone: pool, last norm and head, fed with features."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..models import Head, PooledModel
from ..models.pooled import assemble, pool_tokens
from ..pooling import Pool, create_pool


class Top(nn.Module):
    """Features -> logits. Its parts have the names they have in a `PooledModel`."""

    def __init__(self, pool: Pool | None, after: nn.Module, head: Head, tokens: str = "patches") -> None:
        super().__init__()
        self.pool, self.after, self.head, self.tokens = pool, after, head, tokens

    def embed(self, features: Features) -> Tensor:
        vectors: Tensor = self.after(pool_tokens(self.pool, self.tokens, features)[0])
        return vectors

    def forward(self, features: Features) -> Tensor:
        logits: Tensor = self.head(self.embed(features))
        return logits


class Frozen:
    """A backbone with its features as they were trained: CLS and last norm stay where they are."""

    def __init__(self, backbone: Backbone, stride: int = 1) -> None:
        self.stride = stride  # with which it was made
        model = assemble(backbone, "cls" if backbone.has_cls else "gap", 0, keep_cls=True)
        self.backbone = model.backbone.requires_grad_(False).eval()
        self.after, self.norm = model.after, model.norm

    def top(
        self,
        pool: str,
        classes: int,
        tokens: str = "patches",
        head_norm: Any = "batch",
        pool_options: dict[str, Any] | None = None,
    ) -> Top:
        """A new pool and head. `pool="cls"` is the CLS token, `tokens="all"` pools it together with the patches."""
        tokens = "cls" if pool == "cls" else tokens
        if tokens != "patches" and not self.backbone.has_cls:
            raise ValueError(f"'{self.backbone.name}' has no CLS token: tokens must be 'patches'")
        layer = None if tokens == "cls" else create_pool(pool, self.backbone.dim, **(pool_options or {}))
        dim, k = (self.backbone.dim, 1) if layer is None else (layer.out_dim, layer.k)
        after = copy.deepcopy(self.after) if dim == self.backbone.dim else nn.Identity()
        return Top(layer, after, Head(dim, classes, k, norm=head_norm), tokens)

    def model(self, top: Top, class_names: list[str] | None = None) -> PooledModel:
        """Backbone and top as one model, which shares their weights."""
        norm = "none" if self.norm == "after" and isinstance(top.after, nn.Identity) else self.norm
        model = PooledModel(self.backbone, top.pool, top.head, top.tokens, norm)
        model.after, model.class_names = top.after, class_names
        model.config = {
            "backbone": self.backbone.name,
            "pool": "cls" if top.pool is None else top.pool.name,
            "pool_options": {} if top.pool is None else top.pool.options,
            "num_classes": top.head.classes,
            "tokens": top.tokens,
            "keep_cls": True,
            "stride": self.stride,
            "norm": norm,
            "combine": top.head.combine,
            "head_norm": None if top.head.norm is None else "batch",
        }
        return model
