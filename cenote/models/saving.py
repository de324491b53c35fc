"""A model in a folder: config.json and model.safetensors. Nothing in it is pickled, nothing in it
is run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, fields
from hashlib import file_digest
from pathlib import Path
from typing import Any
from uuid import uuid4

import timm
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .. import __version__
from ..backbones import Preprocessing
from .config import arguments_of, check_arguments, rebuild
from .pooled import PooledModel

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
KEYS = {"format", "model", "class_names", "preprocessing", "versions", "sha256"}
PENDING = re.compile(r"\.(cenote-[0-9a-f]{32}|model\.[0-9a-f]{64}\.safetensors)")


def save_model(model: PooledModel, folder: str | Path) -> None:
    """Write the two files so that a kill at any moment leaves the old model or the new one, never a
    mixture.

    config.json carries the digest of its weights, and replacing it is the one moment at which the
    new model counts: the new weights lie beside it by then, under a name made of that digest.
    """
    arguments = arguments_of(model)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format": FORMAT,
        "model": arguments,
        "class_names": model.class_names,
        "preprocessing": asdict(model.backbone.preprocessing),
        "versions": {"cenote": __version__, "torch": torch.__version__, "timm": timm.__version__},
    }
    try:
        written = _write(
            folder, lambda path: save_file(_tensors(model), path, metadata={"format": "pt"})
        )
        config["sha256"] = digest = _digest(written)
        pending = _pending(folder, digest)
        os.replace(written, pending)
        text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        described = _write(folder, lambda path: path.write_text(text, encoding="utf-8"))
        _sync(folder)
        os.replace(described, folder / CONFIG)  # from here on the new model counts
        _sync(folder)
        os.replace(pending, folder / WEIGHTS)
        _sync(folder)
    finally:
        for file in folder.iterdir():  # of this attempt, or of one that was killed
            if PENDING.fullmatch(file.name):
                _discard(file, folder)


def load(folder: str | Path) -> PooledModel:
    """The model that `save_model` wrote, in evaluation mode. Whatever is wrong with the files is
    one sentence.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(2, "no such model folder", str(folder))
    for _ in range(3):  # a save may finish while the two files are read: then both are read again
        config = read_config(folder / CONFIG)
        state = _read_weights(folder, config.get("sha256"))
        if state is not None and read_config(folder / CONFIG) == config:
            break
    else:
        raise ValueError(f"{folder / WEIGHTS} is not what {CONFIG} describes: the digests differ")
    assert state is not None
    model = rebuild(config["model"], folder / CONFIG)
    _fill(model, state, folder / WEIGHTS)
    model.class_names = config["class_names"]
    model.backbone.preprocessing = Preprocessing(**config["preprocessing"])
    return model.eval()


def read_config(path: Path) -> dict[str, Any]:
    """config.json, checked: known keys of the right kinds only, and no argument that could reach
    another file.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(2, "no such file, so this is no saved model", str(path)) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict) or "format" not in config:
        raise ValueError(f"{path} is not a Cenote model's: it has no 'format'")
    if type(config["format"]) is not int or config["format"] < 1:
        raise ValueError(f"{path}: format is a number from 1, got {config['format']!r:.80}")
    if config["format"] > FORMAT:
        raise ValueError(
            f"{path} has format {config['format']}, made by a newer Cenote: this one reads up to {FORMAT}"
        )
    if unknown := sorted(set(config) - KEYS):
        raise ValueError(f"{path} has the unknown key '{unknown[0]:.80}'")
    if lacking := sorted(KEYS - set(config) - {"sha256", "versions"}):
        raise ValueError(f"{path} lacks '{lacking[0]}'")
    digest = config.get("sha256", "0" * 64)
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"{path}: sha256 is 64 hexadecimal digits, got {digest!r:.80}")
    names = config["class_names"]
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"{path}: class_names is a list of names or null")
    _check_preprocessing(config["preprocessing"], path)
    check_arguments(config["model"], path)
    if names is not None and len(names) != config["model"].get("num_classes"):
        raise ValueError(
            f"{path} names {len(names)} classes, the model has {config['model'].get('num_classes')}"
        )
    return config


def _check_preprocessing(values: Any, path: Path) -> None:
    names = {field.name for field in fields(Preprocessing)}
    if not isinstance(values, dict) or set(values) != names:
        raise ValueError(f"{path}: preprocessing has exactly the keys {', '.join(sorted(names))}")

    def number(value: Any) -> bool:
        return type(value) in (int, float)

    for name in ("mean", "std"):
        if not (
            isinstance(values[name], list)
            and len(values[name]) == 3
            and all(map(number, values[name]))
        ):
            raise ValueError(
                f"{path}: preprocessing.{name} is three numbers, got {values[name]!r:.80}"
            )
    if type(values["size"]) is not int or not 1 <= values["size"] <= 1 << 16:
        raise ValueError(
            f"{path}: preprocessing.size is a number of pixels, got {values['size']!r:.80}"
        )
    if not number(values["crop"]) or not 0 < values["crop"] <= 4:
        raise ValueError(
            f"{path}: preprocessing.crop is a share above 0, got {values['crop']!r:.80}"
        )
    if not isinstance(values["interpolation"], str):
        raise ValueError(
            f"{path}: preprocessing.interpolation is a name, got {values['interpolation']!r:.80}"
        )


def _read_weights(folder: Path, digest: str | None) -> dict[str, Tensor] | None:
    """The tensors of this digest; None if the file there has another."""
    path = folder / WEIGHTS
    if digest is not None and _pending(folder, digest).is_file():
        path = _pending(
            folder, digest
        )  # killed between the two renames: the new weights still wait for their name
    try:
        if digest is not None and _digest(path) != digest and _looks_whole(path):
            return None
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dictionary
    except FileNotFoundError:
        if path.name != WEIGHTS:
            return None  # it has just been given its name
        raise FileNotFoundError(2, "no such file", str(path)) from None
    except (SafetensorError, ValueError, RuntimeError, TypeError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {str(error)[:200]}") from None


def _looks_whole(path: Path) -> bool:
    with safe_open(path, framework="pt"):
        return True


def _fill(model: PooledModel, state: dict[str, Tensor], path: Path) -> None:
    """Every tensor of the model from the file, and no other: else a sentence that counts and names
    them.
    """
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    saved_shapes = {name: tuple(value.shape) for name, value in state.items()}
    complaints = []
    for what, names in (
        ("lacks", sorted(shapes.keys() - saved_shapes.keys())),
        ("has besides", sorted(saved_shapes.keys() - shapes.keys())),
        (
            "has in other shapes",
            sorted(n for n in shapes.keys() & saved_shapes.keys() if shapes[n] != saved_shapes[n]),
        ),
    ):
        if names:
            complaints.append(
                f"{what} {', '.join(names[:3])}{f' and {len(names) - 3} more' if names[3:] else ''}"
            )
    if complaints:
        named = f"'{model.config['backbone']}' with '{model.config['pool']}'"
        raise ValueError(
            f"{path} does not fit {named}, which {CONFIG} names: it {'; it '.join(complaints)}"
        )
    for name, value in model.state_dict().items():
        if state[name].dtype != value.dtype and not (
            state[name].is_floating_point() and value.is_floating_point()
        ):
            raise ValueError(f"{path}: '{name}' holds {state[name].dtype}, the model {value.dtype}")
    kinds = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(kinds) == 1:
        model.to(kinds.pop())  # a model saved in half precision comes back in it
    model.load_state_dict(state)


def _tensors(model: PooledModel) -> dict[str, Tensor]:
    """The state dict with a copy for every tensor that shares memory: the format has no other word
    for tied ones.
    """
    storages: set[int] = set()
    tensors = {}
    for name, value in model.state_dict().items():
        value = value.detach().cpu().contiguous()
        shared = value.untyped_storage().data_ptr() in storages and value.numel() > 0
        tensors[name] = value.clone() if shared else value
        storages.add(value.untyped_storage().data_ptr())
    return tensors


def _write(folder: Path, write: Callable[[Path], object]) -> Path:
    """A new file, on the disk and not merely on its way there; alone, for safetensors may leave
    another beside it.
    """
    path = folder / f".cenote-{uuid4().hex}" / "new"
    path.parent.mkdir()
    write(path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def _discard(path: Path, folder: Path) -> None:
    """What is pending, unless config.json is waiting for just this one."""
    try:
        digest = read_config(folder / CONFIG).get("sha256")
    except (ValueError, OSError):
        digest = None
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    elif digest is None or path != _pending(folder, digest):
        path.unlink(missing_ok=True)


def _pending(folder: Path, digest: str) -> Path:
    return folder / f".model.{digest}.safetensors"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
