"""The part of a model behind a frozen backbone: pool, last norm, embedding and head, fed with features."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..pooling import Pool, create_pool
from . import Head, PooledModel
from .embedding import Embedding
from .pooled import assemble, pool_tokens


class PooledHead(nn.Module):
    """Features -> logits, or vectors where there is no head. Its parts have the names they have in a `PooledModel`."""

    def __init__(
        self,
        pool: Pool | None,
        after: nn.Module,
        head: Head | None,
        tokens: str = "patches",
        embedding: Embedding | None = None,
    ) -> None:
        super().__init__()
        self.pool, self.after, self.head, self.tokens = pool, after, head, tokens
        self.embedding = embedding or nn.Identity()

    def embed_features(self, features: Features) -> Tensor:
        return self.refine(pool_tokens(self.pool, self.tokens, features)[0])

    def refine(self, u: Tensor) -> Tensor:
        vectors: Tensor = self.embedding(self.after(u))
        return vectors

    def forward(self, features: Features) -> Tensor:
        u = self.embed_features(features)
        return u if self.head is None else self.head(u)


class FrozenBackbone:
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
        embedding_dim: int | None = None,
        embedding_norm: str | None = None,
    ) -> PooledHead:
        """A new pool and head; an embedding, or no classes, without a head.

        `pool="cls"` is the CLS token, `tokens="all"` pools it together with the patches.
        """
        tokens = "cls" if pool == "cls" else tokens
        if tokens != "patches" and not self.backbone.has_cls:
            raise ValueError(f"'{self.backbone.name}' has no CLS token: tokens must be 'patches'")
        layer = (
            None
            if tokens == "cls"
            else create_pool(pool, self.backbone.dim, **(pool_options or {}))
        )
        dim, k = (self.backbone.dim, 1) if layer is None else (layer.out_dim, layer.k)
        after = copy.deepcopy(self.after) if dim == self.backbone.dim else nn.Identity()
        if embedding_dim is not None:
            return PooledHead(
                layer, after, None, tokens, Embedding(dim * k, embedding_dim, embedding_norm)
            )
        if not classes:
            return PooledHead(layer, after, None, tokens)
        return PooledHead(layer, after, Head(dim, classes, k, norm=head_norm), tokens)

    def model(self, top: PooledHead, class_names: list[str] | None = None) -> PooledModel:
        """Backbone and top as one model, which shares their weights."""
        norm = "none" if self.norm == "after" and isinstance(top.after, nn.Identity) else self.norm
        model = PooledModel(self.backbone, top.pool, top.head, top.tokens, norm)
        model.after, model.embedding, model.class_names = top.after, top.embedding, class_names
        model.config = {
            "backbone": self.backbone.name,
            "pool": "cls" if top.pool is None else top.pool.name,
            "pool_options": {} if top.pool is None else top.pool.options,
            "num_classes": 0 if top.head is None else top.head.classes,
            "tokens": top.tokens,
            "keep_cls": True,
            "stride": self.stride,
            "norm": norm,
        }
        if top.head is not None:
            model.config |= {
                "combine": top.head.combine,
                "head_norm": None if top.head.norm is None else "batch",
            }
        if isinstance(top.embedding, Embedding):
            before = None if isinstance(top.embedding.norm, nn.Identity) else "layer"
            model.config |= {
                "embedding_dim": top.embedding.linear.out_features,
                "embedding_norm": before,
            }
        return model
