"""A backbone by name: timm's, or the one whose weights come with pip."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import timm
from torch import nn

from ..options import suggest
from .backbone import Backbone
from .hub import without_retries
from .lite0 import PREPROCESSING, TIMM_NAME, load_lite0
from .micro import MICRO
from .micro import PREPROCESSING as MICRO_PREPROCESSING
from .weights import load_weights

# Any input size at run time, in the words that the model's family understands.
ANY_SIZE: tuple[dict[str, Any], ...] = ({"strict_img_size": False}, {"dynamic_img_size": True}, {})


def create_backbone(
    name: str,
    pretrained: bool = False,
    weights: str | Path | None = None,
    img_size: int | tuple[int, int] | None = None,
    **timm_options: Any,
) -> Backbone:
    """A backbone by timm's name, or "lite0": EfficientNet-Lite0 with weights that need no download.

    "vit_micro" and "resnet_micro" are made for images of 64 pixels, and learn from scratch in
    minutes. `weights` is a local checkpoint of the timm model (.safetensors, or .pth loaded without
    unpickling code).
    """
    preprocessing = None
    if name == "lite0":
        model, preprocessing = timm.create_model(TIMM_NAME, **timm_options), PREPROCESSING
        if pretrained and weights is None:
            load_lite0(model)
    elif name in MICRO:
        if pretrained and weights is None:
            raise ValueError(
                f"'{name}' has no trained weights: train it from scratch, or give a local file"
            )
        settings, preprocessing = MICRO[name], MICRO_PREPROCESSING
        model = _create_timm(
            settings.timm_name,
            False,
            img_size or preprocessing.size,
            settings.options | timm_options,
        )
    else:
        model = _create_timm(name, pretrained and weights is None, img_size, timm_options)
    if weights is not None:
        load_weights(model, Path(weights))
    return Backbone(model, name, preprocessing)


def _create_timm(name: str, pretrained: bool, img_size: Any, options: dict[str, Any]) -> nn.Module:
    architecture = name.partition(".")[
        0
    ]  # "vit_small_patch14_dinov2.lvd142m" names an architecture and its weights
    if not timm.is_model(architecture):
        hint = suggest(architecture, [*timm.list_models(), "lite0", *MICRO])
        raise ValueError(f"no backbone '{name}'{hint} (timm's names, or 'lite0')")
    if pretrained and not timm.is_model_pretrained(architecture):
        raise ValueError(
            f"timm has no weights for '{name}': give a local file (weights=..., --weights FILE), or 'lite0'"
        )
    sized = {} if img_size is None else {"img_size": img_size}
    refused: Exception | None = None
    for wording in ANY_SIZE:
        for size in (
            [sized, {}] if sized else [{}]
        ):  # convolutional networks know no img_size and need none
            try:
                with without_retries() if pretrained else nullcontext():
                    model = timm.create_model(
                        name, pretrained=pretrained, **{**options, **wording, **size}
                    )
                if wording and _crops_its_own_size(model):
                    continue
                return model
            except TypeError as error:
                if "unexpected keyword argument" not in str(error):
                    raise
                refused = error
            except (OSError, RuntimeError) as error:
                if not pretrained:
                    raise
                raise OSError(
                    f"the weights of '{name}' could not be had ({(str(error).splitlines() or [''])[0]}): "
                    "without network use the backbone 'lite0', or give a local file (weights=..., --weights FILE)"
                ) from error
    raise ValueError(f"timm cannot make '{name}' with {options}: {refused}")


def _crops_its_own_size(model: Any) -> bool:
    """SigLIP of 384 pixels in patches of 14 drops the rest, which timm forbids once any size is
    allowed.
    """
    patches = getattr(model, "patch_embed", None)
    size, patch = getattr(patches, "img_size", None), getattr(patches, "patch_size", None)
    return bool(size and isinstance(patch, tuple) and (size[0] % patch[0] or size[1] % patch[1]))
