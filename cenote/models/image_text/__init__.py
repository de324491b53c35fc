"""Images and texts as vectors of one space: an image-text model by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...options import check_names, suggest
from .interface import (
    ClassSpace,
    ImageNetwork,
    ImageText,
    Invertible,
    LocalNetwork,
    PositionEncoder,
    Vocabulary,
)

__all__ = [
    "ClassSpace",
    "ImageNetwork",
    "ImageText",
    "Invertible",
    "LocalNetwork",
    "PositionEncoder",
    "Vocabulary",
    "create_image_text",
]


def create_image_text(name: str, **options: Any) -> ImageText:
    """`"text-space"` needs no download; `"open_clip/ViT-L-14/openai"`,
    `"open_clip/ViT-L-14/RemoteCLIP.pt"`; a folder of `cenote clip`.

    Without texts, for search by image: a folder of a saved model; `"timm/BACKBONE"` and
    `"timm/BACKBONE/FILE"` with the names of `create_backbone`. Options are those of TextSpace and
    OpenClip.
    """
    kind, _, detail = str(name).partition("/")
    if kind == "text-space":
        from .text_space import TextSpace

        return _create(TextSpace, name, options, *([detail] if detail else []))
    if kind == "open_clip":
        from .open_clip import OpenClip

        return _create(OpenClip, name, options, *_model_and_weights(detail))
    from .image_only import create_image_only, load_image_only
    from .small_clip import TEXT, TEXT_WEIGHTS, load_image_text

    if kind == "timm":
        return _create(create_image_only, name, options, *_backbone_and_weights(detail))
    folder = Path(name).expanduser()
    if (folder / TEXT).is_file() or (folder / TEXT_WEIGHTS).is_file():
        return _create(load_image_text, name, options, folder)
    if folder.is_dir():
        return _create(load_image_only, name, options, folder)
    import timm

    hint = suggest(kind, ["text-space", "open_clip", "timm"])
    if timm.is_model(kind):
        hint = f"; did you mean 'timm/{name}'?"
    raise ValueError(
        f"no model '{name}'{hint} (text-space, open_clip/MODEL/WEIGHTS, timm/BACKBONE, "
        "timm/BACKBONE/FILE, or a folder that `cenote clip` or `cenote fit` wrote)"
    )


def _backbone_and_weights(detail: str) -> tuple[str, ...]:
    if detail.startswith(("hf-hub:", "local-dir:", "hf:")):  # which may contain a slash
        return (detail,)
    backbone, slash, weights = detail.partition("/")
    return (backbone, weights) if slash else (backbone,)


def _model_and_weights(detail: str) -> tuple[str, ...]:
    if detail.startswith(("hf-hub:", "local-dir:")):  # open_clip's names of repositories, folders
        return (detail,)
    model, _, weights = detail.partition("/")
    if not model or not weights:
        raise ValueError(
            f"'open_clip/{detail}' does not name its weights: open_clip/MODEL/TAG or "
            "open_clip/MODEL/FILE, such as open_clip/ViT-L-14/openai"
        )
    return model, weights


def _create(
    make: Callable[..., ImageText], name: str, options: Mapping[str, object], *arguments: Any
) -> ImageText:
    check_names(name, options, list(inspect.signature(make).parameters)[len(arguments) :])
    return make(*arguments, **options)
