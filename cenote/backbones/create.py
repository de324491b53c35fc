"""A backbone by name: timm's, one whose weights are part of this package, two very small ones,
networks of the papers that timm does not have, and models of Hugging Face transformers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import timm
from torch import nn

from ..options import suggest
from .backbone import Backbone
from .hugging_face import ARCHITECTURE, HUGGING_FACE, create_encoder, read_hugging_face
from .networks import NETWORKS
from .preprocessing import Preprocessing
from .sources import Options, is_source, read_source, sha256
from .weights import load_weights, without_retries

# EfficientNet-Lite0 with ImageNet-1k weights: trained features on a machine without network. The
# usual ImageNet mean and deviation lose ten points of accuracy with these weights (origin: NOTICE).
LITE0 = "tf_efficientnet_lite0"
LITE0_WEIGHTS = Path(__file__).with_name("lite0.safetensors")
LITE0_PREPROCESSING = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3)
# Networks that two cores train in minutes: timm's name and options.
MICRO: dict[str, tuple[str, Options]] = {
    # 0.7 million parameters, 8 x 8 positions
    "vit_micro": (
        "vit_tiny_patch16_224",
        {"patch_size": 8, "embed_dim": 96, "depth": 6, "num_heads": 3},
    ),
    # 0.4 million, 2 x 2 positions, or 4 x 4 and 8 x 8 with stride=2 and 4
    "resnet_micro": ("test_resnet", {}),
}
WITHOUT_WEIGHTS = (*MICRO, *NETWORKS)  # there are none to download
MICRO_PREPROCESSING = Preprocessing(size=64, interpolation="bilinear")
# Any input size at run time, in the words that the model's family understands.
ANY_SIZE: tuple[Options, ...] = ({"strict_img_size": False}, {"dynamic_img_size": True}, {})


def create_backbone(
    name: str,
    pretrained: bool = False,
    weights: str | Path | None = None,
    img_size: int | tuple[int, int] | None = None,
    **timm_options: Any,
) -> Backbone:
    """Create a backbone by timm's name, or "lite0": EfficientNet-Lite0 with its own weights.

    "vit_micro" and "resnet_micro" are made for images of 64 pixels, and learn from scratch in
    minutes; "bn_inception", "cvt_13", "pvt_small", "resnet20" and "t2t_vit_14" are not timm's, but
    in `networks`. "hf-hub:OWNER/NAME" and "local-dir:FOLDER" are timm models on the Hugging Face hub
    or in a folder, "hf:OWNER/NAME" and "hf:FOLDER" models of Hugging Face transformers. `weights`
    is a local checkpoint of the timm model (.safetensors, or .pth loaded without unpickling code).
    """
    preprocessing, created_with = None, {"img_size": img_size, **timm_options}
    pretrained = pretrained and weights is None
    if is_source(name):
        return _from_source(name, pretrained, weights, img_size, timm_options)
    if name.startswith((HUGGING_FACE, ARCHITECTURE)):
        return _from_transformers(name, pretrained, weights, img_size, timm_options)
    if pretrained and name in WITHOUT_WEIGHTS:
        raise ValueError(
            f"'{name}' has no weights to download: train it from scratch, or give a local file "
            "(weights=..., --weights FILE)"
        )
    if name == "lite0":
        model, preprocessing = timm.create_model(LITE0, **timm_options), LITE0_PREPROCESSING
        if pretrained:
            weights = LITE0_WEIGHTS
    elif name in MICRO:
        preprocessing = MICRO_PREPROCESSING
        timm_name, options = MICRO[name]
        img_size = img_size or preprocessing.size
        model = _create(timm_name, False, img_size, options | timm_options)
    else:
        model = _create(name, pretrained, img_size, timm_options)
    if weights is not None:
        load_weights(model, Path(weights))
    backbone = Backbone(model, name, preprocessing)
    backbone.options = created_with
    return backbone


def _from_source(
    name: str, pretrained: bool, weights: str | Path | None, img_size: Any, timm_options: Options
) -> Backbone:
    """Create the architecture that a configuration names, with the weights beside it."""
    source = read_source(name, pretrained)
    options = {**source.arguments, **timm_options}
    classes = {k: v for k, v in source.settings.items() if k == "num_classes"}
    model: Any = _create(source.architecture, False, img_size, {**classes, **options})
    model.pretrained_cfg = {**model.pretrained_cfg, **source.settings}
    path = weights or source.weights
    if path is not None:
        load_weights(model, Path(path))
    backbone = Backbone(model, source.architecture)
    backbone.options = {"img_size": img_size, **options}
    backbone.arguments = source.arguments
    if source.weights is not None:
        backbone.source = {"name": name, "sha256": sha256(source.weights)}
    return backbone


def _from_transformers(
    name: str, pretrained: bool, weights: str | Path | None, img_size: Any, options: Options
) -> Backbone:
    """Create a model of transformers. Position embeddings fit any `img_size` at run time."""
    if name.startswith(ARCHITECTURE):
        backbone = Backbone(create_encoder(name, **options), name)
        backbone.arguments = options
    else:
        if options:
            option = next(iter(options))
            raise ValueError(f"'{name}' has no argument '{option}': its config.json has them all")
        source = read_hugging_face(name, pretrained)
        backbone = Backbone(source.encoder, source.architecture, source.preprocessing)
        backbone.arguments, backbone.source = source.arguments, source.source
    if weights is not None:
        load_weights(backbone.model, Path(weights))
    backbone.options = {"img_size": img_size, **backbone.arguments}
    return backbone


def _create(name: str, pretrained: bool, img_size: Any, options: Options) -> nn.Module:
    create = NETWORKS.get(name) or _timm_factory(name, pretrained)
    sizes: list[Options] = [{}]  # convolutional networks know no img_size and need none
    if img_size is not None:
        sizes.insert(0, {"img_size": img_size})
    refused: Exception | None = None
    for any_size, size in ((any_size, size) for any_size in ANY_SIZE for size in sizes):
        try:
            with without_retries() if pretrained else nullcontext():
                arguments = {**options, **any_size, **size}
                model = create(**arguments)
            if not (any_size and _crops_its_own_size(model)):
                return model
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                raise
            refused = error
        except (OSError, RuntimeError) as error:
            if not pretrained:
                raise
            reason = (str(error).splitlines() or [""])[0]
            raise OSError(
                f"the weights of '{name}' could not be loaded ({reason}): without network use the "
                "backbone 'lite0', or give a local file (weights=..., --weights FILE)"
            ) from error
    raise ValueError(f"'{name}' cannot be created with {options}: {refused}")


def _timm_factory(name: str, pretrained: bool) -> Callable[..., nn.Module]:
    # "vit_small_patch14_dinov2.lvd142m" names an architecture and its weights.
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        hint = suggest(architecture, [*timm.list_models(), "lite0", *WITHOUT_WEIGHTS])
        hint = hint or _similar_names(name)
        names = "timm's names, 'lite0', 'hf-hub:OWNER/NAME', 'local-dir:FOLDER' or 'hf:OWNER/NAME'"
        raise ValueError(f"no backbone '{name}'{hint} ({names})")
    return partial(timm.create_model, name, pretrained=pretrained)


def _similar_names(name: str) -> str:
    """Name timm's backbones of a family, such as that of "dinov3_vits16", for a message."""
    if "/" in name:
        return f"; did you mean 'hf:{name}' (transformers) or 'hf-hub:{name}' (timm)?"
    words = re.sub("[^a-z0-9]+", "_", name.lower())
    family = words.partition("_")[0]
    for part in (words, family, family.rstrip("0123456789")):
        names = [n for n in timm.list_models() if part in n]
        if len(part) > 2 and names:
            smallest = sorted(names, key=lambda n: (not re.search("tiny|small", n), len(n)))[:3]
            return f"; timm has {', '.join(smallest)}{', ...' if len(names) > 3 else ''}"
    return ""


def _crops_its_own_size(model: Any) -> bool:
    """Return whether the image size is not a multiple of the patch size.

    SigLIP of 384 pixels in patches of 14 drops the rest, which timm forbids once any size is
    allowed.
    """
    patches = getattr(model, "patch_embed", None)
    size, patch = getattr(patches, "img_size", None), getattr(patches, "patch_size", None)
    return bool(size and isinstance(patch, tuple) and (size[0] % patch[0] or size[1] % patch[1]))
