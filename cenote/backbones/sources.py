"""Backbones from a folder (`local-dir:FOLDER`) or the Hugging Face hub (`hf-hub:OWNER/NAME`).

Both hold the config.json and the weights of a timm model. It names an architecture of timm and its
arguments; nothing else of it is used, and no code of it is run.
"""

from __future__ import annotations

import json
import re
from hashlib import file_digest
from pathlib import Path
from typing import Any, NamedTuple

from .weights import without_retries

LOCAL, HUB = "local-dir:", "hf-hub:"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# Weights come from the given file alone: no argument may lead to others.
OTHER_WEIGHTS = re.compile(
    "pretrained(?!_window_sizes).*|weights|checkpoint_path|cache_dir|.*_filter(_fn)?|(model|feature)_cfg|config"
)


class Source(NamedTuple):
    """A timm model that is not in timm's list."""

    architecture: str
    arguments: dict[str, Any]  # of timm's create_model
    settings: dict[str, Any]  # timm's `pretrained_cfg`: image size, mean, deviation, classes
    weights: Path | None


def is_source(name: str) -> bool:
    return name.startswith((LOCAL, HUB))


def read_source(name: str, pretrained: bool) -> Source:
    """Read the configuration; find the weights, too, if they are wanted."""
    path = _file(name, "config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        architecture = str(config["architecture"])
        # Older files have the settings beside the architecture.
        settings = dict(config.get("pretrained_cfg", config))
        arguments = dict(config.get("model_args") or {})
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is not that of a timm model, it names no architecture: use timm's name of the "
            "architecture with --weights FILE"
        ) from None
    for argument in arguments:
        if OTHER_WEIGHTS.fullmatch(argument):
            raise ValueError(f"{path}: '{argument:.80}' is not an argument of an architecture")
    if "num_classes" in config:
        settings["num_classes"] = config["num_classes"]
    weights = None
    if pretrained:
        try:
            weights = _file(name, WEIGHTS[0])
        except OSError:
            weights = _file(name, WEIGHTS[1])
    return Source(architecture, arguments, settings, weights)


def _file(name: str, file: str) -> Path:
    if name.startswith(LOCAL):
        path = Path(name.removeprefix(LOCAL)) / file
        if not path.is_file():
            raise FileNotFoundError(2, "no such file of a timm model", str(path))
        return path
    from huggingface_hub import hf_hub_download

    repository, _, revision = name.removeprefix(HUB).partition("@")
    try:
        with without_retries():
            return Path(hf_hub_download(repository, file, revision=revision or None))
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise OSError(
            f"{file} of '{name}' could not be loaded ({reason}): without network use a folder that "
            f"has it, {LOCAL}FOLDER"
        ) from error


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
