"""A frozen backbone, and the pool and head that are trained on its features."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..pooling import Pool, create_pool
from .head import Embedding, Head, PoolAndHead
from .pooled import Assembly, PooledModel, assemble


class PooledHead(PoolAndHead):
    """A `PooledModel` without its backbone: features -> logits, or vectors if there is no head.

    Its modules have the names that they have in a `PooledModel`.
    """

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

    def forward(self, features: Features) -> Tensor:
        return self.classify(features)


class FrozenBackbone:
    """A backbone whose features stay as they were trained, CLS token and last norm included."""

    def __init__(self, backbone: Backbone, stride: int = 1) -> None:
        self.stride = stride  # with which the backbone was created, for the config
        pool = "cls" if backbone.has_cls else "gap"
        model = assemble(backbone, pool, 0, Assembly(keep_cls=True))
        self.backbone = model.backbone.requires_grad_(False).eval()
        self.after, self.norm = model.after, model.norm

    def create_head(
        self,
        pool: str,
        classes: int,
        tokens: str = "patches",
        head_norm: Any = "batch",
        pool_options: dict[str, Any] | None = None,
        embedding_dim: int | None = None,
        embedding_norm: str | None = None,
    ) -> PooledHead:
        """Create a new pool with a classifier, or with an embedding, or alone if `classes` is 0.

        `pool="cls"` uses the CLS token; `tokens="all"` pools it together with the patches.
        """
        if pool == "cls":
            tokens = "cls"
        if tokens != "patches" and not self.backbone.has_cls:
            raise ValueError(f"'{self.backbone.name}' has no CLS token: tokens must be 'patches'")
        layer, dim, k = None, self.backbone.dim, 1
        if tokens != "cls":
            layer = create_pool(pool, self.backbone.dim, **(pool_options or {}))
            dim, k = layer.out_dim, layer.k
        after = copy.deepcopy(self.after) if dim == self.backbone.dim else nn.Identity()
        if embedding_dim is not None:
            embedding = Embedding(dim * k, embedding_dim, embedding_norm)
            return PooledHead(layer, after, None, tokens, embedding)
        head = Head(dim, classes, k, norm=head_norm) if classes else None
        return PooledHead(layer, after, head, tokens)

    def create_model(self, head: PooledHead, class_names: list[str] | None = None) -> PooledModel:
        """Join backbone and head to one model, which shares their weights."""
        norm = self.norm
        if norm == "after" and isinstance(head.after, nn.Identity):
            norm = "none"
        model = PooledModel(self.backbone, head.pool, head.head, head.tokens, norm)
        model.after, model.embedding, model.class_names = head.after, head.embedding, class_names
        model.config = {
            "backbone": self.backbone.name,
            "pool": "cls",
            "pool_options": {},
            "num_classes": 0,
            "tokens": head.tokens,
            "keep_cls": True,
            "stride": self.stride,
            "norm": norm,
        }
        if head.pool is not None:
            model.config |= {"pool": head.pool.name, "pool_options": head.pool.options}
        if head.head is not None:
            model.config |= {
                "num_classes": head.head.classes,
                "combine": head.head.combine,
                "head_norm": None if head.head.norm is None else "batch",
            }
        if isinstance(head.embedding, Embedding):
            has_norm = not isinstance(head.embedding.norm, nn.Identity)
            model.config |= {
                "embedding_dim": head.embedding.linear.out_features,
                "embedding_norm": "layer" if has_norm else None,
            }
        return model
