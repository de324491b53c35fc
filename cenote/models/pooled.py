"""A backbone, a pool and a head: images -> logits, vectors, maps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..metrics import largest_box, mass_mask
from ..options import check_choice, check_names, suggest
from ..pooling import Pool
from ..pooling.own import OwnPool
from .attention_maps import cls_attention, rollout
from .cam import cam, grad_cam, minmax, why_no_cam
from .head import Embedding, Head, Then, create_pool_for
from .layers import Layers
from .own import OF_LAST_LAYER, OWN_OPTIONS, create_own_pool, own_tokens
from .saving import Arguments, SavedModel
from .surgery import (
    Pyramid,
    create_finer_backbone,
    place_norm,
    replace_last_block,
    use_dino_positions,
)
from .wsol.registry import create_method

KINDS = ("auto", "pool", "cls", "rollout", "cam", "gradcam")


class PooledModel(SavedModel):
    """`model(images)` logits, `model.embed(images)` vectors, `model.attend(images)` maps.

    `tokens`: what is pooled, the "patches", "all" of [CLS; patches], the "summary" tokens of
    several layers (see `Layers`), or nothing: the "cls" token is the vector. `norm`: where the
    encoder's last LayerNorm stands, "before" the pool (the supervised ViT of SimPool), "after" it
    (its DINO ViT and ConvNeXt) or nowhere, "none" (its ResNet).
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
        # The order of the modules is that of the parameters in saved states of optimizers.
        self.backbone, self.pool, self.head = backbone, pool, head
        self.after, self.embedding = nn.Identity(), nn.Identity()
        self.tokens, self.norm, self.wsol = tokens, norm, None
        self.class_names, self.config = None, {}

    @classmethod
    def create(cls, **arguments: Any) -> Self:
        model = create_model(**arguments)
        assert isinstance(model, cls)
        return model

    @property
    def vector_dim(self) -> int:
        """Numbers that `embed` gives for an image, all its vectors together."""
        if isinstance(self.embedding, Embedding):
            return self.embedding.linear.out_features
        return self.backbone.dim if self.pool is None else self.pool.out_dim * self.pool.k

    def features(self, images: Tensor) -> Features:
        features: Features = self.backbone(images)
        return features

    def forward(self, images: Tensor, then: Then | None = None) -> Tensor:
        """Return logits (B, classes), or what `then` makes of the features: a loss, in training."""
        features = self.features(images)
        return self.classify(features) if then is None else then(features)

    def embed(self, images: Tensor) -> Tensor:
        """(B, D), or (B, k, D) for a pool of k vectors: what the head sees."""
        return self.embed_features(self.features(images))

    def no_weight_decay(self) -> set[str]:
        """What the backbone wants undecayed: position embeddings, tokens. timm's optimizers ask."""
        names: set[str] = getattr(self.backbone.model, "no_weight_decay", set)()
        return {f"backbone.model.{name}" for name in names}

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        """The layer of a parameter, for learning rates that decay by layer; the pool comes last."""
        from timm.models import group_parameters

        encoder: Any = self.backbone.model
        if not hasattr(encoder, "group_matcher"):
            raise ValueError(f"'{self.backbone.name}' has no layers to decay a learning rate by")
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
        check_choice("kind", kind, KINDS)
        if self.tokens == "summary":
            raise ValueError(
                "this model pools CLS tokens and means of whole layers, which have no positions "
                "and so no map: results.json of the run has the attention to each layer, and "
                "tokens='patches' (--tokens patches) has maps"
            )
        possible = self.map_kinds()
        if kind == "auto":
            kind = next(iter(possible), "pool")
        if kind in ("pool", "cls") and kind not in possible:
            remedy = "num_classes=... gives it a class activation map"
            if possible:
                remedy = f"use --map {' or '.join(possible)}"
            raise ValueError(f"{self._why_not(kind)}: {remedy}")
        if kind == "cls":
            return cls_attention(self.backbone, images, **options)
        if kind == "rollout":
            return rollout(self.backbone, images, **options)
        if kind == "gradcam":
            return grad_cam(self, self.backbone, images, **options)
        if kind == "cam":
            return cam(self, self.features(images), **options)
        return self._pool_maps(images, **options)

    def _pool_maps(self, images: Tensor) -> Tensor:
        maps = self.pool_features(self.features(images))[1]
        assert maps is not None
        return maps

    def map_kinds(self) -> list[str]:
        """The kinds of maps of this model, the most telling first, without "rollout"."""
        kinds: list[str] = []
        if self.tokens == "summary":
            return kinds
        if self.pool is None:
            kinds.append("cls")
        elif not self.pool.no_attention:
            kinds.append("pool")
        if not why_no_cam(self):
            # Of several classes of an image each needs a map.
            kinds.insert(0 if self.multi_label else len(kinds), "cam")
        if self.pool is not None and self.backbone.has_cls:
            kinds.append("cls")
        if self.head is not None:
            kinds.append("gradcam")
        first = self.map_kind
        if (
            first is None and self.wsol is not None and self.wsol.needs_cam
        ):  # methods change class activation maps
            first = "cam"
        return sorted(kinds, key=lambda kind: kind != first)

    def map_side(self, kind: str) -> int:
        """The side of images for a kind of map: `map_size` for the first of `map_kinds`."""
        first = kind in ("auto", *self.map_kinds()[:1])
        return (self.map_size if first else None) or self.backbone.preprocessing.size

    def _why_not(self, kind: str) -> str:
        if kind == "cls":
            name = self.backbone.name
            return f"'{name}' has no CLS token, or the pool replaced it (keep_cls=True keeps it)"
        if self.pool is None:
            return "this model takes the CLS token, it has no pool with a map"
        return f"'{self.pool.name}' has no attention map of its own ({self.pool.no_attention})"

    def localize(
        self, images: Tensor, share: float = 0.6, kind: str = "auto", **options: Any
    ) -> Tensor:
        """Boxes (B, 4), x0 y0 x1 y1 in pixels of the input: around the largest component of the
        mask that keeps `share` of the map's mass. Several maps are averaged; of a CAM only what
        speaks for the class counts.
        """
        with torch.no_grad():
            maps = self.attend(images, kind, **options).float().mean(1)  # (B, H, W)
        positive = maps.clamp_min(0)
        # A class that nothing speaks for still has its best place.
        positive = torch.where(positive.sum((-2, -1), keepdim=True) > 0, positive, minmax(maps))
        (h, w), (rows, columns) = images.shape[-2:], maps.shape[-2:]
        cells = [largest_box(mask) or (0, 0, columns, rows) for mask in mass_mask(positive, share)]
        pixels = torch.tensor([w / columns, h / rows, w / columns, h / rows])
        return (torch.tensor(cells) * pixels).to(images.device)


@dataclass(frozen=True)
class Assembly:
    """How a model is put together from a backbone and a pool: options of `create_model`."""

    tokens: str = "patches"  # "patches", "all" of [CLS; patches], "summary", or the "cls" token
    feature_layers: tuple[int, ...] = ()  # of `Layers`; the last one if empty
    keep_cls: bool = False
    norm: str = "auto"  # "before" the pool, "after" it, "none", or where the encoder has it
    depth: int = 0
    last_block: str | None = None
    dino_positions: bool = False
    fpn: str | None = None
    fpn_dim: int = 512
    combine: Any = "max"  # of the head, see there
    head_norm: Any = None
    embedding_dim: int | None = None
    embedding_norm: str | None = None
    pool_options: Arguments | None = None
    wsol: str | None = None
    wsol_options: Arguments | None = None

    def __post_init__(self) -> None:
        check_choice("tokens", self.tokens, ("patches", "all", "cls", "summary"))
        check_choice("norm", self.norm, ("auto", "before", "after", "none"))
        if self.feature_layers and self.fpn is not None:
            raise ValueError(
                "a feature pyramid joins all stages: leave out fpn or feature_layers (--layers)"
            )
        if self.feature_layers and self.norm == "after":
            raise ValueError(
                "the last norm is for one layer: with several, norm='before' or 'none'"
            )
        if self.tokens == "summary" and not self.feature_layers:
            raise ValueError(
                "summary tokens are those of chosen layers: give feature_layers (--layers)"
            )


def create_model(
    backbone: str,
    pool: str | Pool = "gap",
    num_classes: int | None = None,
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
    img_size: int | tuple[int, int] | None = None,
    tokens: str = "patches",
    feature_layers: Sequence[int] = (),
    keep_cls: bool = False,
    norm: str = "auto",
    depth: int = 0,
    last_block: str | None = None,
    dino_positions: bool = False,
    stride: int = 1,
    no_dilation: bool = False,
    fpn: str | None = None,
    fpn_dim: int = 512,
    combine: str = "max",
    head_norm: str | None = None,
    embedding_dim: int | None = None,
    embedding_norm: str | None = None,
    pool_options: Arguments | None = None,
    wsol: str | None = None,
    wsol_options: Arguments | None = None,
    backbone_options: Arguments | None = None,
    **timm_options: Any,
) -> PooledModel:
    """A timm backbone (or "lite0"), a pool by name and a linear head.

    `num_classes=None` keeps the backbone's own classifier where it fits the pooled vector; 0 means
    no head. Other options are timm's.

    - `pool="own"` is the pooling that the encoder was trained with, with its weights
      (pool_options={"frozen": True} keeps them); it may come to "cls" or "gap".
    - `tokens`, `norm`: see `PooledModel`; `pool="cls"` is `tokens="cls"`. A pool over the patches
      removes the CLS token from the encoder; `keep_cls=True` leaves it there, unused.
    - `feature_layers`: blocks or stages, from 1, whose features are pooled together, see `Layers`.
    - `depth` drops (-b) or adds (+b) blocks; `last_block="sar"`, or a row A-F of SAR's Table 1(b),
      takes skip connections out of the last one.
    - `dino_positions` resamples position embeddings as the DINO program does, and not as timm does.
    - A finer map: `stride=2` or `4` removes the stride of the last one or two stages, which are
      dilated instead, unless `no_dilation`; `fpn="P2"`, "P3" or "P4" pools a level of a feature
      pyramid of `fpn_dim` channels.
    - `combine`, `head_norm`: `combine` and `norm` of `Head`.
    - `embedding_dim` puts a linear embedding behind the pool (timm's own `embed_dim` is the width
      of a ViT), and `embedding_norm="layer"` a LayerNorm before it.
    - `pool_options`: a dictionary for `create_pool`. SimPool has gamma 2 on convolutional networks
      and 1.25 on transformers, unless it is given; {"gamma": None} is the released code's form.
    - `wsol`: a method of weakly supervised localization, such as "acol", with `wsol_options`.
    - `backbone_options`: options of timm's that may have the name of one of these, such as depth.
    """
    assembly = Assembly(
        tokens=tokens,
        feature_layers=tuple(feature_layers),
        keep_cls=keep_cls,
        norm=norm,
        depth=depth,
        last_block=last_block,
        dino_positions=dino_positions,
        fpn=fpn,
        fpn_dim=fpn_dim,
        combine=combine,
        head_norm=head_norm,
        embedding_dim=embedding_dim,
        embedding_norm=embedding_norm,
        pool_options=pool_options,
        wsol=wsol,
        wsol_options=wsol_options,
    )
    options = {"pretrained": pretrained, "weights": weights, "img_size": img_size, **timm_options}
    options |= backbone_options or {}
    try:
        base = create_finer_backbone(backbone, stride, no_dilation, **options)
    except ValueError as error:
        for name in timm_options:
            if f"argument '{name}'" in str(error):
                hint = suggest(name, inspect.signature(create_model).parameters)
                raise ValueError(f"{error}{hint}") from error
        raise
    model = assemble(base, pool, num_classes, assembly)
    model.config |= {"img_size": img_size, "stride": stride, "no_dilation": no_dilation}
    model.config |= timm_options
    if arguments := base.arguments | (backbone_options or {}):
        model.config["backbone_options"] = arguments
    return model


def replace_pool(
    timm_model: nn.Module, pool: str | Pool, num_classes: int | None = None, **options: Any
) -> PooledModel:
    """The same for a timm model you already have: `replace_pool(model, "simpool")`."""
    settings = getattr(timm_model, "pretrained_cfg", None) or {}
    name = settings.get("architecture", type(timm_model).__name__)
    return assemble(Backbone(timm_model, name), pool, num_classes, Assembly(**options))


def assemble(
    backbone: Backbone,
    pool: str | Pool,
    num_classes: int | None = None,
    options: Assembly | None = None,
) -> PooledModel:
    options = options or Assembly()
    if pool == "own":
        if options.fpn is not None:
            raise ValueError("the own pooling of an encoder is not for a pyramid: use another pool")
        if options.feature_layers:
            raise ValueError(OF_LAST_LAYER)
        check_names("own", options.pool_options or {}, OWN_OPTIONS)
        pool = create_own_pool(backbone, **(options.pool_options or {}))
        options = replace(options, keep_cls=True, tokens="patches", pool_options=None)
    if isinstance(pool, OwnPool):
        options = replace(options, keep_cls=True, tokens=own_tokens(pool))
    tokens = pooled_tokens(backbone, pool, options.tokens)
    if options.fpn is not None:
        backbone = Pyramid(backbone, options.fpn, options.fpn_dim)
    if tokens == "patches" and not options.keep_cls and backbone.has_cls:
        backbone.remove_cls()
    if options.depth:
        backbone.set_depth(options.depth)
    if options.last_block is not None:
        replace_last_block(backbone, options.last_block)
    if options.dino_positions:
        use_dino_positions(backbone)
    if options.feature_layers:
        backbone = Layers(backbone, options.feature_layers, tokens == "summary")
    classifier = backbone.classifier()
    layer: Pool | None = None
    dim, k = backbone.dim, 1
    if tokens != "cls":
        if isinstance(pool, str):
            pool = create_pool_for(backbone, pool, options.pool_options)
        layer = pool
        dim, k = layer.out_dim, layer.k
    norm = options.norm
    if isinstance(layer, OwnPool):  # a norm behind the pooling is in the pool
        norm = "before" if backbone.final_norm() else "none"
        check_choice("norm with the pool 'own'", options.norm, ("auto", norm))
    norm, after = place_norm(backbone, norm, dim)
    embedding: nn.Module = nn.Identity()
    if options.embedding_dim is not None:  # the backbone's own classifier is not for an embedding
        embedding = Embedding(dim * k, options.embedding_dim, options.embedding_norm)
        dim, k, classifier = options.embedding_dim, 1, None
    head = _head(classifier, dim, k, num_classes, options)
    model = PooledModel(backbone, layer, head, tokens, norm)
    model.after, model.embedding = after, embedding
    if options.wsol is not None:
        model.wsol = create_method(options.wsol, model, options.wsol_options or {})
    _drop_classifier(backbone)
    model.config = parts_config(model)
    settings = asdict(options) | {"tokens": tokens, "norm": norm}
    unset = {"pool_options"} if options.feature_layers else {"pool_options", "feature_layers"}
    if options.embedding_dim is None:
        unset |= {"embedding_dim", "embedding_norm"}
    if options.wsol is None:
        unset |= {"wsol", "wsol_options"}
    model.config |= {name: value for name, value in settings.items() if name not in unset}
    return model


def pooled_tokens(backbone: Backbone, pool: str | Pool, tokens: str) -> str:
    """What is pooled: `tokens`, or "cls" for the pool of this name."""
    if pool == "cls":
        tokens = "cls"
    if tokens in ("all", "cls") and not backbone.has_cls and not isinstance(pool, OwnPool):
        raise ValueError(f"'{backbone.name}' has no CLS token: tokens must be 'patches'")
    return tokens


def parts_config(model: PooledModel) -> Arguments:
    """The arguments of `create_model` that name a model's parts."""
    config = {
        "backbone": model.backbone.name,
        "pool": "cls",
        "pool_options": {},
        "num_classes": 0,
    }
    if model.pool is not None:
        config |= {"pool": model.pool.name, "pool_options": model.pool.options}
    if model.head is not None:
        config |= {"num_classes": model.head.classes}
    return config


def _head(
    classifier: nn.Linear | None, dim: int, k: int, num_classes: int | None, options: Assembly
) -> Head | None:
    if num_classes:
        return Head(dim, num_classes, k, options.combine, options.head_norm)
    if num_classes == 0 or classifier is None or classifier.in_features != dim:
        return None
    classes, bias = classifier.out_features, classifier.bias is not None
    head = Head(dim, classes, k, options.combine, options.head_norm, bias)
    head.linear.load_state_dict(classifier.state_dict())
    return head


def _drop_classifier(backbone: Backbone) -> None:
    """Remove what the backbone had behind its feature map, which would take space."""
    reset = getattr(backbone.model, "reset_classifier", None)
    if reset is None:
        return
    try:
        reset(0, "")
    except AssertionError:  # some families pool in one way only, and say so
        reset(0)


def load(folder: str | Path) -> PooledModel:
    """The model that `save_model` wrote, in evaluation mode."""
    return PooledModel.read(Path(folder))
