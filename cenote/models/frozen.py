"""A frozen backbone, and the pool and head that are trained on its features."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..pooling import Pool
from .head import Embedding, Head, PoolAndHead, create_pool_for
from .pooled import Assembly, PooledModel, assemble, parts_config, pooled_tokens
from .saving import Arguments


class PooledHead(PoolAndHead):
    """A `PooledModel` without its backbone: features -> logits, or vectors without a head.

    Its modules have the names that they have in a `PooledModel`.
    """

    def __init__(self, pool: Pool | None, tokens: str = "patches") -> None:
        super().__init__()
        self.pool, self.after, self.head, self.tokens = pool, nn.Identity(), None, tokens
        self.embedding = nn.Identity()

    def forward(self, features: Features) -> Tensor:
        return self.classify(features)


class FrozenBackbone:
    """A backbone whose features stay as they were trained, CLS token and last norm included."""

    def __init__(self, backbone: Backbone, stride: int = 1, no_dilation: bool = False) -> None:
        # With which the backbone was created, for the config.
        self.finer: Arguments = {"stride": stride, "no_dilation": no_dilation}
        pool = "cls" if backbone.has_cls else "gap"
        model = assemble(backbone, pool, 0, Assembly(keep_cls=True))
        self.backbone = model.backbone.requires_grad_(False).eval()
        self.after, self.norm = model.after, model.norm

    def create_head(
        self,
        pool: str,
        classes: int,
        tokens: str = "patches",
        combine: Any = "max",
        head_norm: Any = "batch",
        pool_options: Arguments | None = None,
        embedding_dim: int | None = None,
        embedding_norm: str | None = None,
    ) -> PooledHead:
        """Create a new pool with a classifier, or with an embedding, or alone if `classes` is 0.

        `pool="cls"` uses the CLS token; `tokens="all"` pools it together with the patches.
        """
        tokens = pooled_tokens(self.backbone, pool, tokens)
        layer, dim, k = None, self.backbone.dim, 1
        if tokens != "cls":
            layer = create_pool_for(self.backbone, pool, pool_options)
            dim, k = layer.out_dim, layer.k
        head = PooledHead(layer, tokens)
        if dim == self.backbone.dim:
            head.after = copy.deepcopy(self.after)
        if embedding_dim is not None:
            head.embedding = Embedding(dim * k, embedding_dim, embedding_norm)
        elif classes:
            head.head = Head(dim, classes, k, combine, head_norm)
        return head

    def create_model(self, head: PooledHead, class_names: list[str] | None = None) -> PooledModel:
        """Join backbone and head to one model, which shares their weights."""
        norm = self.norm
        if norm == "after" and isinstance(head.after, nn.Identity):
            norm = "none"
        model = PooledModel(self.backbone, head.pool, head.head, head.tokens, norm)
        model.after, model.embedding, model.class_names = head.after, head.embedding, class_names
        model.config = parts_config(model)
        model.config |= {"tokens": head.tokens, "keep_cls": True, **self.finer}
        model.config["norm"] = norm
        if head.head is not None:
            model.config |= head.head.options
        if isinstance(head.embedding, Embedding):
            model.config |= head.embedding.options
        return model
