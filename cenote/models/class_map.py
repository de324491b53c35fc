"""The one map that speaks for a class: the pool's own, of the vector that decided where there are
several; else CAM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..backbones import Features
from .attend import attend, possible
from .cam import cam_of_features
from .embedding import Embedding

if TYPE_CHECKING:
    from .pooled import PooledModel


def map_of_features(
    model: PooledModel, features: Features, classes: Tensor, kind: str = "auto"
) -> Tensor:
    """(B, H, W), one class for each image (B,). `kind` is "pool", "cam", or "auto": the first that
    there is.
    """
    assert model.pool is not None, (
        "without a pool nothing is told from features: their maps are the backbone's"
    )
    if kind == "cam" or (kind == "auto" and model.pool.no_attention):
        return cam_of_features(model, features, classes)[:, 0]
    u, a = model.pool_features(features)
    if a is None:
        raise ValueError(
            f"'{model.pool.name}' has no attention map of its own: {model.pool.no_attention}"
        )
    if not _vector_by_vector(model) or a.shape[1] != model.pool.k:
        return a.mean(1)
    head = model.head
    assert head is not None
    v = model.after(u)  # (B, k, D)
    logits = head.linear(v if head.norm is None else head.norm.settled(v))  # (B, k, classes)
    winner = logits.gather(2, classes[:, None, None].expand(-1, model.pool.k, 1)).argmax(1)[
        :, 0
    ]  # (B,)
    return a[torch.arange(len(a), device=a.device), winner]


class ForwardPass:
    """What a model made of some images, which run through its backbone once where the kind of map
    allows it.
    """

    def __init__(
        self, model: PooledModel, images: Tensor, kind: str, features: Features | None = None
    ) -> None:
        self.model, self.images, self.kind = model, images, kind
        self.features = model.features(images) if features is None else features
        self.logits: Tensor | None = None  # (B, classes)
        if model.head is not None:
            self.logits = model.head(model.embed_features(self.features))

    def maps(self, classes: Tensor) -> Tensor:
        """(B, H, W) for one class each; several maps of one image are averaged."""
        if self.kind in ("pool", "cam") and self.model.pool is not None:
            return map_of_features(self.model, self.features, classes, self.kind)
        options = {"classes": classes} if self.kind in ("cam", "gradcam") else {}
        return attend(self.model, self.images, self.kind, **options).mean(1)


def resolve_map_kind(model: PooledModel, kind: str, size: int) -> str:
    """What "auto" comes to. An empty picture is looked at: a model without such a map is refused
    before any work.

    So is a picture that is smaller than one place of the map: convolutions take it, and see nothing
    in it.
    """
    min_size = _smallest(model)
    if size < min_size:
        raise ValueError(
            f"size is at least {min_size} pixels, one place of the map of this model, got {size}"
        )
    kind = next(iter(possible(model)), kind) if kind == "auto" else kind
    empty = torch.zeros(1, 3, size, size, device=next(model.parameters()).device)
    with torch.no_grad():
        ForwardPass(model, empty, kind).maps(torch.zeros(1, dtype=torch.long, device=empty.device))
    return kind


def _smallest(model: PooledModel) -> int:
    try:
        return round(max(model.backbone.stride()))
    except ValueError:  # it does not say
        return 1


def depends_on_class(model: PooledModel, kind: str) -> bool:
    """Whether two classes of one image may have different maps."""
    return kind in ("cam", "gradcam") or (kind == "pool" and _vector_by_vector(model))


def _vector_by_vector(model: PooledModel) -> bool:
    """Whether each of several vectors is judged by itself, and the best one speaks for the
    class.
    """
    separate_vectors = (
        model.pool is not None and model.pool.k > 1 and not isinstance(model.embedding, Embedding)
    )
    return separate_vectors and model.head is not None and model.head.project is None
