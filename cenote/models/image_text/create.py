"""An image-text model by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...options import check_names, suggest
from .interface import ImageText

FORMS = "text-space, open_clip/MODEL/WEIGHTS, or a folder that `cenote clip` wrote"


def create_image_text(name: str, **options: Any) -> ImageText:
    """`"text-space"` needs no download; `"open_clip/ViT-L-14/openai"`,
    `"open_clip/ViT-L-14/RemoteCLIP.pt"`; a folder.

    Options are those of TextSpace and OpenClip.
    """
    kind, _, detail = str(name).partition("/")
    if kind == "text-space":
        from .text_space import TextSpace

        return _made(TextSpace, name, options, *([detail] if detail else []))
    if kind == "open_clip":
        from .open_clip import OpenClip

        return _made(OpenClip, name, options, *_model_and_weights(detail))
    folder = Path(name).expanduser()
    if folder.is_dir():
        from .saving import load_image_text

        return _made(load_image_text, name, options, folder)
    raise ValueError(
        f"no image-text model '{name}'{suggest(kind, ['text-space', 'open_clip'])} ({FORMS})"
    )


def _model_and_weights(rest: str) -> tuple[str, ...]:
    if rest.startswith(
        ("hf-hub:", "local-dir:")
    ):  # open_clip's own way to name a repository or a folder
        return (rest,)
    model, _, weights = rest.partition("/")
    if not model or not weights:
        raise ValueError(
            f"'open_clip/{rest}' says not which weights: open_clip/MODEL/TAG or open_clip/MODEL/FILE, "
            "such as open_clip/ViT-L-14/openai"
        )
    return model, weights


def _made(
    make: Callable[..., ImageText], name: str, options: dict[str, Any], *given: Any
) -> ImageText:
    parameters = list(inspect.signature(make).parameters)[len(given) :]
    check_names(name, options, parameters)
    return make(*given, **options)
