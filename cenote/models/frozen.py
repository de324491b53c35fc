"""A frozen backbone, and the pool and head that are trained on its features."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..options import check_names
from ..pooling import Pool
from ..pooling.own import OwnPool
from .head import Embedding, Head, PoolAndHead, Then, create_pool_for
from .own import (
    OF_LAST_LAYER,
    OWN_OPTIONS,
    NoOwnPool,
    Own,
    copy_own_pool,
    create_own_pool,
    own_tokens,
)
from .pooled import Assembly, PooledModel, assemble, parts_config, pooled_tokens
from .saving import Arguments
from .wsol.registry import create_method


class PooledHead(PoolAndHead):
    """A `PooledModel` without its backbone: features -> logits, or vectors without a head.

    Its modules have the names that they have in a `PooledModel`.
    """

    def __init__(self, pool: Pool | None, tokens: str = "patches") -> None:
        super().__init__()
        self.pool, self.after, self.head, self.tokens = pool, nn.Identity(), None, tokens
        self.embedding = nn.Identity()
        self.wsol = None

    def forward(self, features: Features, then: Then | None = None) -> Tensor:
        return self.classify(features) if then is None else then(features)


class FrozenBackbone:
    """A backbone whose features stay as they were trained, CLS token and last norm included."""

    def __init__(
        self,
        backbone: Backbone,
        stride: int = 1,
        no_dilation: bool = False,
        layers: tuple[int, ...] = (),
        summary: bool = False,
    ) -> None:
        # With which the backbone was created, for the config.
        self.created_with: Arguments = {"stride": stride, "no_dilation": no_dilation}
        if layers:
            self.created_with["feature_layers"] = layers
        if backbone.arguments:
            self.created_with["backbone_options"] = backbone.arguments
        self.own: Own | NoOwnPool  # the encoder's own pool, or why there is none
        try:
            if layers:
                raise NoOwnPool(OF_LAST_LAYER)
            self.own = create_own_pool(backbone)  # before the backbone loses its head
        except NoOwnPool as error:
            self.own = error
        pool = "cls" if backbone.has_cls and not summary else "gap"
        tokens = "summary" if summary else "patches"
        assembly = Assembly(tokens=tokens, feature_layers=layers, keep_cls=True)
        model = assemble(backbone, pool, 0, assembly)
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
        wsol: str | None = None,
        wsol_options: Arguments | None = None,
    ) -> PooledHead:
        """Create a new pool with a classifier, or with an embedding, or alone if `classes` is 0.

        `pool="cls"` uses the CLS token; `tokens="all"` pools it together with the patches.
        """
        named: str | Pool = pool
        if pool == "own":
            named, tokens = self._own_pool(pool_options)
        tokens = pooled_tokens(self.backbone, named, tokens)
        layer: Pool | None = None
        dim, k = self.backbone.dim, 1
        if tokens != "cls":
            if isinstance(named, str):
                named = create_pool_for(self.backbone, named, pool_options)
            layer = named
            dim, k = layer.out_dim, layer.k
        head = PooledHead(layer, tokens)
        if dim == self.backbone.dim and not isinstance(layer, OwnPool):
            head.after = copy.deepcopy(self.after)
        if embedding_dim is not None:
            head.embedding = Embedding(dim * k, embedding_dim, embedding_norm)
        elif classes:
            head.head = Head(dim, classes, k, combine, head_norm)
        if wsol is not None:
            head.wsol = create_method(wsol, head, wsol_options or {})
        return head

    def _own_pool(self, options: Arguments | None) -> tuple[Own, str]:
        """Return a new copy of the encoder's own pool, and the tokens that it takes."""
        if isinstance(self.own, NoOwnPool):
            raise self.own
        check_names("own", options or {}, OWN_OPTIONS)
        return copy_own_pool(self.own, **(options or {})), own_tokens(self.own)

    def create_model(self, head: PooledHead, class_names: list[str] | None = None) -> PooledModel:
        """Join backbone and head to one model, which shares their weights."""
        norm = self.norm
        if norm == "after" and isinstance(head.after, nn.Identity):
            norm = "none"
        model = PooledModel(self.backbone, head.pool, head.head, head.tokens, norm)
        model.after, model.embedding, model.class_names = head.after, head.embedding, class_names
        model.config = parts_config(model)
        model.config |= {"tokens": head.tokens, "keep_cls": True, **self.created_with}
        model.config["norm"] = norm
        if head.head is not None:
            model.config |= head.head.options
        if isinstance(head.embedding, Embedding):
            model.config |= head.embedding.options
        if head.wsol is not None:
            model.wsol = head.wsol
            model.config |= {"wsol": head.wsol.name, "wsol_options": head.wsol.options}
        return model
