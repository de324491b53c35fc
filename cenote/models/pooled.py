"""A backbone, a pool and a head: images -> logits, vectors, maps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..pooling import Pool, create_pool
from . import attend
from .embedding import Embedding
from .head import Head
from .hub import Saved
from .surgery.last_block import replace_last_block
from .surgery.last_norm import place_norm
from .surgery.pyramid import Pyramid
from .surgery.stride import create_finer_backbone

TOKENS = ("patches", "all", "cls")
NORMS = ("auto", "before", "after", "none")


class PooledModel(nn.Module, Saved):
    """`model(images)` logits, `model.embed(images)` vectors, `model.attend(images)` maps.

    `tokens`: what is pooled, the "patches", "all" of [CLS; patches], or nothing: the "cls" token is
    the vector. `norm`: where the encoder's last LayerNorm stands, "before" the pool (the supervised
    ViT of SimPool), "after" it (its DINO ViT and ConvNeXt) or nowhere, "none" (its ResNet).
    """

    def __init__(
        self,
        backbone: Backbone,
        pool: Pool | None,
        head: Head | None,
        tokens: str = "patches",
        norm: str = "before",
    ) -> None:
        super().__init__()
        self.backbone, self.pool, self.head, self.tokens, self.norm = (
            backbone,
            pool,
            head,
            tokens,
            norm,
        )
        self.after: nn.Module = (
            nn.Identity()
        )  # the LayerNorm behind the pool, where it stands there
        self.embedding: nn.Module = (
            nn.Identity()
        )  # the linear layer behind that, where vectors are made to be compared
        self.class_names: list[str] | None = None
        self.config: dict[
            str, Any
        ] = {}  # the arguments of `create_model` that make this model again

    @property
    def vector_dim(self) -> int:
        """Numbers that `embed` gives for an image, all its vectors together."""
        if isinstance(self.embedding, Embedding):
            return self.embedding.linear.out_features
        return self.backbone.dim if self.pool is None else self.pool.out_dim * self.pool.k

    def features(self, images: Tensor) -> Features:
        features: Features = self.backbone(images)
        return features

    def forward(self, images: Tensor) -> Tensor:
        u = self.embed(images)
        return u if self.head is None else self.head(u)

    def embed(self, images: Tensor) -> Tensor:
        """(B, D), or (B, k, D) for a pool of k vectors: what the head sees."""
        return self.embed_features(self.features(images))

    def embed_features(self, features: Features) -> Tensor:
        """The vectors of features computed before, for instance from a cache."""
        return self.refine(self.pool_features(features)[0])

    def refine(self, u: Tensor) -> Tensor:
        """What stands between pool and head: the last norm, the embedding."""
        vectors: Tensor = self.embedding(self.after(u))
        return vectors

    def pool_features(self, features: Features) -> tuple[Tensor, Tensor | None]:
        """Vectors, and the pool's own maps (B, m, H, W) or None."""
        return pool_tokens(self.pool, self.tokens, features)

    def no_weight_decay(self) -> set[str]:
        """What the backbone wants undecayed: position embeddings, tokens. timm's optimizers ask."""
        ask = getattr(self.backbone.model, "no_weight_decay", set)
        return {f"backbone.model.{name}" for name in ask()}

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        """The layer of a parameter, counted from the input, for rates that decay by layer; pool and
        head come last.
        """
        from timm.models import group_parameters

        encoder: Any = self.backbone.model
        if not hasattr(encoder, "group_matcher"):
            raise ValueError(
                f"'{self.backbone.name}' does not say which layer a parameter belongs to: no layer decay"
            )
        layers = group_parameters(encoder, encoder.group_matcher(coarse=coarse), reverse=True)
        last_layer = max(layers.values(), default=0) + 1
        return lambda name: layers.get(name.removeprefix("backbone.model."), last_layer)

    def attend(self, images: Tensor, kind: str = "auto", **options: Any) -> Tensor:
        """Maps (B, m, H, W) of where the vector, or the decision, came from, for images of any
        size.

        `kind`: the "pool"'s own; "cls" attention (block=-1 or None for all, heads="mean" or "all");
        attention "rollout"; class activation map, "cam" (classes=...); "gradcam" (classes=...,
        method=...; needs grad-cam). "auto" is the pool's own where it has one, CLS attention for a
        CLS model, else CAM.
        """
        return attend.attend(self, images, kind, **options)

    def localize(
        self, images: Tensor, share: float = 0.6, kind: str = "auto", **options: Any
    ) -> Tensor:
        """Boxes (B, 4), x0 y0 x1 y1 in pixels of the input, around what holds `share` of the map's
        mass.
        """
        return attend.localize(self, images, share, kind, **options)


def pool_tokens(pool: Pool | None, which: str, features: Features) -> tuple[Tensor, Tensor | None]:
    """Vectors and maps (B, m, H, W) of the "patches", of "all" of [CLS; patches], or the CLS token
    without a pool.
    """
    tokens, grid, cls = features
    if pool is None:
        assert cls is not None
        return cls, None
    if which == "all":
        assert cls is not None
        u, a = pool.vectors_and_maps(torch.cat([cls[:, None], tokens], 1), None)
        a = None if a is None else a[..., 1:]  # the map is over the patches; CLS has no place in it
    else:
        u, a = pool.vectors_and_maps(tokens, grid)
    return u, None if a is None else a.unflatten(-1, grid)


def create_model(
    backbone: str,
    pool: str | Pool = "gap",
    num_classes: int | None = None,
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
    img_size: int | tuple[int, int] | None = None,
    tokens: str = "patches",
    keep_cls: bool = False,
    norm: str = "auto",
    depth: int = 0,
    last_block: str | None = None,
    stride: int = 1,
    fpn: str | None = None,
    fpn_dim: int = 512,
    combine: str = "max",
    head_norm: str | None = None,
    embedding_dim: int | None = None,
    embedding_norm: str | None = None,
    pool_options: dict[str, Any] | None = None,
    **backbone_options: Any,
) -> PooledModel:
    """A timm backbone (or "lite0"), a pool by name and a linear head.

    `num_classes=None` keeps the backbone's own classifier where it fits the pooled vector; 0 means
    no head. `pool="cls"` takes the CLS token, as `tokens="cls"` does. A pool over the patches
    removes the CLS token from the encoder; `keep_cls=True` leaves it there, unused. `depth` drops
    (-b) or adds (+b) blocks; `last_block="sar"`, or a row A-F of SAR's Table 1(b), takes skip
    connections out of the last one. A finer map: `stride=2` or `4` removes the stride of the last
    one or two stages, `fpn="P2"`, "P3" or "P4" pools a level of a feature pyramid. `embedding_dim`
    puts a linear embedding behind the pool (timm's own `embed_dim` is the width of a ViT), and
    `embedding_norm="layer"` a LayerNorm before it.
    """
    base = create_finer_backbone(
        backbone,
        stride,
        pretrained=pretrained,
        weights=weights,
        img_size=img_size,
        **backbone_options,
    )
    model = assemble(
        base,
        pool,
        num_classes,
        tokens=tokens,
        keep_cls=keep_cls,
        norm=norm,
        depth=depth,
        last_block=last_block,
        fpn=fpn,
        fpn_dim=fpn_dim,
        combine=combine,
        head_norm=head_norm,
        embedding_dim=embedding_dim,
        embedding_norm=embedding_norm,
        pool_options=pool_options,
    )
    model.config |= {"img_size": img_size, "stride": stride, **backbone_options}
    return model


def replace_pool(
    timm_model: nn.Module, pool: str | Pool, num_classes: int | None = None, **options: Any
) -> PooledModel:
    """The same for a timm model you already have: `replace_pool(model, "simpool")`."""
    name = (getattr(timm_model, "pretrained_cfg", None) or {}).get(
        "architecture", type(timm_model).__name__
    )
    return assemble(Backbone(timm_model, name), pool, num_classes, **options)


def assemble(
    backbone: Backbone,
    pool: str | Pool,
    num_classes: int | None,
    *,
    tokens: str = "patches",
    keep_cls: bool = False,
    norm: str = "auto",
    depth: int = 0,
    last_block: str | None = None,
    fpn: str | None = None,
    fpn_dim: int = 512,
    combine: str = "max",
    head_norm: str | None = None,
    embedding_dim: int | None = None,
    embedding_norm: str | None = None,
    pool_options: dict[str, Any] | None = None,
) -> PooledModel:
    tokens = "cls" if pool == "cls" else tokens
    if tokens not in TOKENS:
        raise ValueError(f"tokens is one of {', '.join(TOKENS)}, got '{tokens}'")
    if norm not in NORMS:
        raise ValueError(f"norm is one of {', '.join(NORMS)}, got '{norm}'")
    if tokens != "patches" and not backbone.has_cls:
        raise ValueError(f"'{backbone.name}' has no CLS token: tokens must be 'patches'")
    if fpn is not None:
        backbone = Pyramid(backbone, fpn, fpn_dim)
    classifier = backbone.classifier()
    if tokens == "patches" and not keep_cls and backbone.has_cls:
        backbone.remove_cls()
    if depth:
        backbone.set_depth(depth)
    if last_block is not None:
        replace_last_block(backbone, last_block)
    layer: Pool | None = None
    if tokens != "cls":
        layer = (
            create_pool(pool, backbone.dim, **(pool_options or {}))
            if isinstance(pool, str)
            else pool
        )
    dim, k = (backbone.dim, 1) if layer is None else (layer.out_dim, layer.k)
    embedding = None if embedding_dim is None else Embedding(dim * k, embedding_dim, embedding_norm)
    if (
        embedding_dim is not None
    ):  # the backbone's own classifier is for its vector, not for an embedding
        dim, k, classifier = embedding_dim, 1, None
    head = _head(classifier, dim, k, num_classes, combine, head_norm)
    model = PooledModel(backbone, layer, head, tokens, norm)
    model.embedding = embedding or model.embedding
    place_norm(model, norm)
    _drop_classifier(backbone)
    model.config = {
        "backbone": backbone.name,
        "pool": "cls" if layer is None else layer.name,
        "pool_options": {} if layer is None else layer.options,
        "num_classes": 0 if head is None else head.classes,
        "tokens": tokens,
        "keep_cls": keep_cls,
        "norm": model.norm,
        "depth": depth,
        "last_block": last_block,
        "fpn": fpn,
        "fpn_dim": fpn_dim,
        "combine": combine,
        "head_norm": head_norm,
    }
    if embedding is not None:
        model.config |= {"embedding_dim": embedding_dim, "embedding_norm": embedding_norm}
    return model


def _head(
    classifier: nn.Linear | None, dim: int, k: int, num_classes: int | None, combine: Any, norm: Any
) -> Head | None:
    if num_classes == 0 or (
        num_classes is None and (classifier is None or classifier.in_features != dim)
    ):
        return None
    if num_classes is not None:
        return Head(dim, num_classes, k, combine, norm)
    assert classifier is not None
    head = Head(dim, classifier.out_features, k, combine, norm, bias=classifier.bias is not None)
    head.linear.load_state_dict(classifier.state_dict())
    return head


def _drop_classifier(backbone: Backbone) -> None:
    """The backbone ends at its feature map: what it had behind it would only take space and
    gradients.
    """
    reset = getattr(backbone.model, "reset_classifier", None)
    if reset is None:
        return
    try:
        reset(0, "")
    except AssertionError:  # some families pool in one way only, and say so
        reset(0)
