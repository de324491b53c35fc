"""Open the model that a command's options name."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..backbones import create_backbone
from ..device import default_device
from ..models import PooledModel, load
from ..models.image_text import Vocabulary, create_image_text
from ..models.own import default_pool
from ..models.pooled import Assembly, assemble
from ..models.text_map import TextMap

log = logging.getLogger(__name__)
KNOWN = 0.5  # familiarity of a text that an image-text model knows


def open_model(
    backbone: str = "lite0",
    weights: Path | None = None,
    pool: str | None = None,
    folder: Path | None = None,
) -> tuple[PooledModel, bool]:
    """Open a saved model, or a pretrained backbone with a pool, and say whether it is trained.

    The pool of a backbone is `default_pool` unless another one is named. With an untrained pool the
    predicted classes are meaningless. Large JPEGs are decoded at a fraction of their size.
    """
    model, trained = _open_model(backbone, weights, pool, folder)
    preprocessing = replace(model.backbone.preprocessing, scaled_decoding=True)
    model.backbone.preprocessing = preprocessing
    return model.eval().to(default_device()), trained


def _open_model(
    backbone: str, weights: Path | None, pool: str | None, folder: Path | None
) -> tuple[PooledModel, bool]:
    if folder is not None:
        if pool is not None or weights is not None:
            raise ValueError("a saved model has its own weights and pool: give --model alone")
        return load(folder), True
    base = create_backbone(backbone, pretrained=True, weights=weights)
    own = default_pool(base)
    if pool in (None, "own"):
        model = assemble(base, own, options=Assembly(keep_cls=True))
    else:
        assert pool is not None
        model = assemble(base, pool)
    trained = model.pool is None or model.pool is own or not list(model.pool.parameters())
    if not trained:
        log.info(
            "note: the weights of '%s' are untrained (random): its map says little and no class is"
            " predicted. Train it and give --model FOLDER, or omit --pool.",
            pool,
        )
    elif pool not in (None, "own", own) and model.head is not None:
        log.info(
            "note: the classifier of '%s' was trained with '%s', not with '%s': classes are a guess.",
            backbone,
            own if isinstance(own, str) else own.name,
            pool,
        )
    return model, trained


def open_text_map(model: str, text: str) -> TextMap:
    """Open an image-text model for maps of a text; warn of a text that it does not know."""
    if not text.strip():
        raise ValueError("--text needs at least one word, such as 'a dog', got an empty text")
    image_text = create_image_text(model)
    if isinstance(image_text, Vocabulary) and image_text.familiarity(text) < KNOWN:
        log.warning("'%s' does not know '%s': its maps are a guess", image_text.name, text)
    text_map = TextMap(image_text, text)
    preprocessing = replace(text_map.backbone.preprocessing, scaled_decoding=True)
    text_map.backbone.preprocessing = preprocessing
    return text_map.eval().to(default_device())


def class_names(model: PooledModel) -> list[str] | None:
    """Return the model's class names, ImageNet's first names for a classifier of its size, else
    numbers.

    None for a model without a head.
    """
    if model.head is None:
        return None
    count = model.head.classes
    if model.class_names is not None and len(model.class_names) == count:
        return list(model.class_names)
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    subset = "imagenet-1k" if count == 1000 else infer_imagenet_subset(model.backbone.model)
    info: Any = None if subset is None else ImageNetInfo(subset)
    if info is None or info.num_classes() != count:
        return [f"class {i}" for i in range(count)]
    return [info.index_to_description(i).split(",")[0] for i in range(count)]
