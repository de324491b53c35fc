"""Models of Hugging Face transformers: `hf:OWNER/NAME` on the hub, `hf:FOLDER` on this machine.

The files are those of `save_pretrained`: config.json, model.safetensors, preprocessor_config.json.
The classes are those of the installed package. No code of a repository is run, nothing is
unpickled.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..extras import require
from .preprocessing import Preprocessing
from .sources import Options, sha256
from .transformers_encoder import TransformersEncoder
from .weights import without_retries

log = logging.getLogger(__name__)
HUGGING_FACE = "hf:"
ARCHITECTURE = "transformers."  # and transformers' model type: the name of an architecture
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SMALL_FILES = [CONFIG, "preprocessor_config.json", "processor_config.json"]
WEIGHT_FILES = [WEIGHTS, INDEX, "model-*-of-*.safetensors"]
MODEL_OPTIONS = ("add_pooling_layer",)  # arguments of the model, not of its configuration
# Which intermediate maps transformers' own backbones return: the last hidden state stays the same.
FOR_PYRAMIDS = {"out_features", "out_indices", "_out_features", "_out_indices", "stage_names"}


class HuggingFaceModel(NamedTuple):
    encoder: TransformersEncoder
    architecture: str
    arguments: Options  # of `create_encoder`
    preprocessing: Preprocessing
    source: dict[str, str] | None  # name and digest of the weights


def read_hugging_face(name: str, pretrained: bool) -> HuggingFaceModel:
    """Read the model "hf:...", with its weights if `pretrained`."""
    require("transformers", extra="hf")
    folder = _folder(name, pretrained)
    config = _read_config(folder / CONFIG, name)
    architecture, arguments, source = ARCHITECTURE + config.model_type, _arguments(config), None
    if pretrained:
        files = _weight_files(folder)
        model, arguments = _load(folder, config, arguments)
        encoder = TransformersEncoder(model, name)
        digests = [sha256(file) for file in files]
        if len(digests) > 1:
            digests = [hashlib.sha256("".join(digests).encode()).hexdigest()]
        source = {"name": name, "sha256": digests[0]}
    else:
        encoder = create_encoder(architecture, **arguments)
    preprocessing = _preprocessing(folder, encoder)
    return HuggingFaceModel(encoder, architecture, arguments, preprocessing, source)


def create_encoder(architecture: str, **arguments: Any) -> TransformersEncoder:
    """Create "transformers.MODEL_TYPE" with random weights."""
    transformers = require("transformers", extra="hf")
    model_type = architecture.removeprefix(ARCHITECTURE)
    if model_type not in transformers.CONFIG_MAPPING:
        raise ValueError(_unknown_type(architecture, model_type))
    config_class = transformers.CONFIG_MAPPING[model_type]
    options = {k: arguments.pop(k) for k in MODEL_OPTIONS if k in arguments}
    for argument in arguments:
        if argument not in _parameters(config_class):
            raise ValueError(f"'{architecture}' has no argument '{argument:.80}'")
    arguments = json.loads(json.dumps(arguments))  # transformers wants lists, not tuples
    config = config_class(**arguments)
    with _quiet():
        model = _model_class(config, architecture)(config, **options)
    return TransformersEncoder(model, architecture)


def _folder(name: str, pretrained: bool) -> Path:
    """Return the folder that the name gives, or one in the hub's cache."""
    path = Path(name.removeprefix(HUGGING_FACE)).expanduser()
    if path.is_dir():
        return path
    if not REPOSITORY.fullmatch(str(path)):
        raise FileNotFoundError(2, "no such folder, and not OWNER/NAME of the hub", str(path))
    from huggingface_hub import snapshot_download

    repository, _, revision = str(path).partition("@")
    files = SMALL_FILES + WEIGHT_FILES * pretrained
    try:
        with without_retries():
            folder = snapshot_download(repository, revision=revision or None, allow_patterns=files)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise OSError(
            f"'{name}' could not be loaded ({reason}): without network use a folder of "
            f"save_pretrained, {HUGGING_FACE}FOLDER"
        ) from error
    return Path(folder)


def _read_config(path: Path, name: str) -> Any:
    """Return the configuration of the vision model, the vision part of an image-text model."""
    transformers = require("transformers", extra="hf")
    if not path.is_file():
        raise FileNotFoundError(2, "no such file, which save_pretrained writes", str(path))
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        model_type = str(values["model_type"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} names no model type of transformers: a timm model is hf-hub:OWNER/NAME or "
            "local-dir:FOLDER"
        ) from None
    if model_type not in transformers.CONFIG_MAPPING:
        raise ValueError(_unknown_type(name, model_type))
    config_class = transformers.CONFIG_MAPPING[model_type]
    with _quiet():
        try:
            config = config_class.from_dict(values)
            config = getattr(config, "vision_config", None) or config
            _model_class(config, name)
            # A new one, without settings that are not the architecture's: precision, attention, ...
            return type(config)(**_arguments(config))
        except (TypeError, AttributeError) as error:
            reason = (str(error).splitlines() or [""])[0]
            raise ValueError(f"{path} is not a {model_type}'s: {reason[:200]}") from error


def _unknown_type(name: str, model_type: str) -> str:
    version = require("transformers", extra="hf").__version__
    return (
        f"'{name}': transformers {version} has no model type '{model_type:.80}', and code of a "
        "repository is not run: update transformers, or use timm's name of the architecture"
    )


def _model_class(config: Any, name: str) -> Any:
    """Return the class of the encoder; refuse one that is not for images."""
    model_class = require("transformers", extra="hf").MODEL_MAPPING.get(type(config), None)
    if isinstance(model_class, tuple):
        model_class = model_class[0]
    if getattr(model_class, "main_input_name", "") != "pixel_values":
        raise ValueError(
            f"'{name}' ({config.model_type}) is not a model of images: give the name of one, such "
            "as hf:facebook/dinov2-small"
        )
    if getattr(config, "backbone", None) or getattr(config, "backbone_config", None):
        raise ValueError(f"'{name}' is built on another model: use the name of that one")
    if config.model_type.startswith("timm"):
        raise ValueError(f"'{name}' is a timm model: its name is hf-hub:OWNER/NAME")
    return model_class


def _parameters(config_class: Any) -> set[str]:
    """Return the names of the arguments that only this architecture has."""
    shared = require("transformers", extra="hf").PreTrainedConfig
    names = set(inspect.signature(config_class).parameters) - FOR_PYRAMIDS - {"kwargs"}
    return names - set(inspect.signature(shared).parameters) - set(shared().to_dict())


def _arguments(config: Any) -> Options:
    names = _parameters(type(config))
    return {name: value for name, value in config.to_dict().items() if name in names}


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(
            2,
            "no such file; other formats, which may run code, are not read",
            str(folder / WEIGHTS),
        )
    names = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(names))]


def _load(folder: Path, config: Any, arguments: Options) -> tuple[Any, Options]:
    """Return the model with its weights, and its arguments; an untrained pooler is left out."""
    model_class = _model_class(config, str(folder))
    with _quiet():
        try:
            model, report = model_class.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
        except Exception as error:  # a damaged file may raise anything
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"{folder} is not a whole {model_class.__name__}: {reason}") from error
    missing = sorted(report["missing_keys"])
    if missing and all(key.startswith("pooler.") for key in missing):
        model.pooler = None
        return model, {**arguments, "add_pooling_layer": False}
    if missing:
        raise ValueError(f"{folder} has no '{missing[0]}', which a {model_class.__name__} needs")
    return model, arguments


def _preprocessing(folder: Path, encoder: TransformersEncoder) -> Preprocessing:
    """Return the settings of the model's own image processor."""
    transformers = require("transformers", extra="hf")
    with _quiet():
        try:
            processor = transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError):
            log.warning(
                "%s has no image processor of transformers: images are normalised by ImageNet's "
                "mean and deviation",
                folder,
            )
            return Preprocessing(size=encoder.image_size[0])
    resize, crop_to = (dict(getattr(processor, key, None) or {}) for key in ("size", "crop_size"))
    side: int = resize.get("height") or resize.get("shortest_edge") or encoder.image_size[0]
    size, crop = side, 1.0
    crops = resize.get("shortest_edge") is not None
    if getattr(processor, "do_center_crop", False) and crop_to.get("height"):
        size, crop = crop_to["height"], _share(crop_to["height"], side)
    elif getattr(processor, "crop_pct", None):  # ConvNeXt crops to sizes below 384
        crops = side < 384
        crop = processor.crop_pct if crops else 1.0
    elif getattr(processor, "max_num_patches", None):  # SigLIP 2 with images of any shape
        size, crops = math.isqrt(processor.max_num_patches) * encoder.patch_size[0], True
    mean, std = (0.0,) * 3, (1.0,) * 3
    if processor.do_normalize:
        mean, std = tuple(processor.image_mean), tuple(processor.image_std)
    from PIL import Image

    interpolation = Image.Resampling(processor.resample).name.lower()
    crop_mode = "floor" if crops else "squash"
    return Preprocessing(size, crop, interpolation, mean, std, crop_mode=crop_mode)


def _share(crop: int, short_side: int) -> float:
    """Return crop / short_side, rounded so that floor(crop / share) is the short side again."""
    share = crop / short_side
    return share if math.floor(crop / share) == short_side else math.nextafter(share, 0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the progress bars of transformers and its warnings about unused weights."""
    library = require("transformers.utils.logging", extra="hf")
    verbosity, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()
