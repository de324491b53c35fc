"""A model in a folder: config.json and model.safetensors; the same two files on the Hugging Face
hub. Nothing in them is pickled, nothing in them is run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from hashlib import file_digest
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import timm
import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..backbones import Backbone, Preprocessing
from ..version import __version__
from .head import PoolAndHead
from .saved_arguments import argument_problems, difference, pool_options, with_lists, with_tuples

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
KEYS = {"format", "model", "class_names", "preprocessing", "versions", "sha256"}
PENDING = re.compile(r"\.(cenote-[0-9a-f]{32}|model\.[0-9a-f]{64}\.safetensors)")


class SavedModel(
    PoolAndHead, ModelHubMixin, library_name="cenote", tags=["image-feature-extraction", "pooling"]
):
    """`save(folder)`, `from_pretrained(folder or repository)`, `save_pretrained`, `push_to_hub` of
    a model that `create` makes.
    """

    backbone: Backbone
    class_names: list[str] | None
    config: dict[str, Any]  # the arguments of `create` that make this model again

    @classmethod
    def create(cls, **arguments: Any) -> Self:
        raise NotImplementedError

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors into the folder; `cenote.load(folder)` reads
        them.
        """
        save_model(self, folder)

    def save_pretrained(
        self, save_directory: str | Path, *, push_to_hub: bool = False, **options: Any
    ) -> str | None:
        """As the mixin does, but it begins by deleting config.json, and a kill then would leave
        half a model.
        """
        folder = Path(save_directory)
        self.save(folder)
        if not (folder / "README.md").exists():
            card = self.generate_model_card(**(options.get("model_card_kwargs") or {}))
            card.save(folder / "README.md")
        if not push_to_hub:
            return None
        return self.push_to_hub(options.pop("repo_id", None) or folder.name, **options)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """A model from a folder, or from a repository of the hub by name (revision=, token=,
        cache_dir=, ...).
        """
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():  # otherwise the network is not asked
            name, files = str(pretrained_model_name_or_path), [CONFIG, WEIGHTS]
            folder = Path(snapshot_download(name, allow_patterns=files, **options))
        return cls.read(folder)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The model that `save_model` wrote, in evaluation mode. Whatever is wrong with the files
        is one sentence.
        """
        if not folder.is_dir():
            raise FileNotFoundError(2, "no such model folder", str(folder))
        for _ in range(3):  # a save may finish while the two files are read: then read both again
            config = read_config(folder / CONFIG)
            state = _read_weights(folder, config.get("sha256"))
            if state is not None and read_config(folder / CONFIG) == config:
                break
        else:
            raise ValueError(
                f"{folder / WEIGHTS} is not what {CONFIG} describes: the digests differ"
            )
        assert state is not None
        model = cls.rebuild(config["model"], folder / CONFIG)
        _fill(model, state, folder / WEIGHTS)
        model.class_names = config["class_names"]
        model.backbone.preprocessing = Preprocessing(**config["preprocessing"])
        return model.eval()

    @classmethod
    def rebuild(cls, arguments: dict[str, Any], source: object) -> Self:
        """The model without its weights; arguments that make no model are a sentence about the
        file.
        """
        try:
            return cls.create(**with_tuples(arguments))
        except Exception as error:  # timm raises anything on arguments that make no sense
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"{source} describes a model that cannot be made: {reason[:300]}"
            ) from error


def arguments_of(model: SavedModel) -> dict[str, Any]:
    """What makes this model again; refused with a sentence if it would make another one."""
    options = {} if model.pool is None else pool_options(model.pool)
    arguments: dict[str, Any] = with_lists({**model.config, "pool_options": options})
    if not arguments.get("backbone"):
        raise ValueError("this model has no config: models come from create_model or replace_pool")
    for problem in argument_problems(arguments):
        raise ValueError(f"model.config: {problem}")
    with torch.random.fork_rng(devices=[]):  # saving must not change what training draws next
        twin = type(model).rebuild(arguments, "model.config")
    if differing := difference(model, twin):
        raise ValueError(
            f"model.config makes a model that differs from this one ({differing}): the options of "
            f"'{arguments['backbone']}' belong into create_model(...), or into model.config"
        )
    return arguments


def save_model(model: SavedModel, folder: str | Path) -> None:
    """Write the two files so that a kill at any moment leaves the old model or the new one, never a
    mixture.

    config.json carries the digest of its weights, and replacing it is the one moment at which the
    new model counts: the new weights are beside it by then, under a name made of that digest.
    """
    config = {
        "format": FORMAT,
        "model": arguments_of(model),
        "class_names": model.class_names,
        "preprocessing": asdict(model.backbone.preprocessing),
        "versions": {"cenote": __version__, "torch": torch.__version__, "timm": timm.__version__},
    }
    folder = Path(folder)
    # A folder of its own: safetensors may leave another file beside the one it writes.
    temporary = folder / f".cenote-{uuid4().hex}"
    temporary.mkdir(parents=True)
    try:
        save_file(_tensors(model), temporary / WEIGHTS, metadata={"format": "pt"})
        config["sha256"] = digest = _digest(temporary / WEIGHTS)
        text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (temporary / CONFIG).write_text(text, encoding="utf-8")
        _sync(temporary / WEIGHTS)
        _sync(temporary / CONFIG)
        pending = _pending(folder, digest)
        os.replace(temporary / WEIGHTS, pending)
        _sync(folder)
        os.replace(temporary / CONFIG, folder / CONFIG)  # from here on the new model counts
        _sync(folder)
        os.replace(pending, folder / WEIGHTS)
        _sync(folder)
    finally:
        _clean(folder)


def _clean(folder: Path) -> None:
    """Remove what this save, or one that was killed, left behind; not the weights that config.json
    waits for.
    """
    try:
        awaited = _pending(folder, read_config(folder / CONFIG).get("sha256"))
    except (ValueError, OSError):
        awaited = None
    for path in folder.iterdir():
        if PENDING.fullmatch(path.name) and path != awaited:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def read_config(path: Path) -> dict[str, Any]:
    """config.json, checked: known keys of the right kinds only, and no argument that could reach
    another file.
    """
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(2, "no such file, so not a saved model", str(path)) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    for problem in _config_problems(config):
        raise ValueError(f"{path}: {problem}")
    return config


def _config_problems(config: Any) -> Iterator[str]:
    """Yield what is wrong; only the first counts, later checks rely on the earlier ones."""
    if not isinstance(config, dict) or "format" not in config:
        yield "not a Cenote model's, it has no 'format'"
    number = config["format"]
    if type(number) is not int or not 1 <= number <= FORMAT:
        yield f"format is {number!r:.80}; this Cenote reads formats up to {FORMAT}"
    if unknown := sorted(set(config) - KEYS):
        yield f"unknown key '{unknown[0]:.80}'"
    if lacking := sorted(KEYS - set(config) - {"sha256", "versions"}):
        yield f"'{lacking[0]}' is missing"
    digest = config.get("sha256", "0" * 64)
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        yield f"sha256 is 64 hexadecimal digits, got {digest!r:.80}"
    values = config["preprocessing"]
    if not isinstance(values, dict) or set(values) != set(PREPROCESSING):
        yield f"preprocessing has exactly the keys {', '.join(sorted(PREPROCESSING))}"
    for key, fits in PREPROCESSING.items():
        if not fits(values[key]):
            yield f"preprocessing.{key} is {values[key]!r:.80}, which no saved model has"
    yield from argument_problems(config["model"])
    names, classes = config["class_names"], config["model"].get("num_classes")
    if names is None:
        return
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        yield "class_names is a list of names or null"
    if len(names) != classes:
        yield f"class_names has {len(names)} names, the model {classes} classes"


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _are_three_numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))


PREPROCESSING: dict[str, Callable[[Any], bool]] = {
    "size": lambda value: type(value) is int and 1 <= value <= 1 << 16,
    "crop": lambda value: _is_number(value) and 0 < value <= 4,
    "mean": _are_three_numbers,
    "std": _are_three_numbers,
    "interpolation": lambda value: isinstance(value, str),
}


def _read_weights(folder: Path, digest: str | None) -> dict[str, Tensor] | None:
    """The tensors of this digest; None if the file there has another."""
    path = folder / WEIGHTS
    if digest is not None and _pending(folder, digest).is_file():
        path = _pending(folder, digest)  # killed before the new weights were given their name
    try:
        state = load_file(path)
        return state if digest in (None, _digest(path)) else None
    except FileNotFoundError:
        if path.name != WEIGHTS:
            return None  # it has just been given its name
        raise FileNotFoundError(2, "no such file", str(path)) from None
    except (SafetensorError, ValueError, RuntimeError, TypeError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {str(error)[:200]}") from None


def _fill(model: SavedModel, state: dict[str, Tensor], path: Path) -> None:
    """Every tensor of the model from the file, and no other."""
    for name, value in model.state_dict().items():
        if name in state and state[name].is_floating_point() != value.is_floating_point():
            raise ValueError(f"{path}: '{name}' holds {state[name].dtype}, the model {value.dtype}")
    kinds = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(kinds) == 1:
        model.to(kinds.pop())  # a model saved in half precision comes back in it
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        names = f"'{model.config['backbone']}' with '{model.config['pool']}'"
        reason = " ".join(str(error).split()).partition(": ")[2]
        raise ValueError(f"{path} does not fit {names} of {CONFIG}: {reason[:400]}") from None


def _tensors(model: SavedModel) -> dict[str, Tensor]:
    """The state dict with a copy for every tensor that shares memory: the format cannot describe
    tied ones.
    """
    storages: set[int] = set()
    tensors = {}
    for name, value in model.state_dict().items():
        value = value.detach().cpu().contiguous()
        shared = value.untyped_storage().data_ptr() in storages and value.numel() > 0
        tensors[name] = value.clone() if shared else value
        storages.add(value.untyped_storage().data_ptr())
    return tensors


def _pending(folder: Path, digest: str | None) -> Path:
    return folder / f".model.{digest}.safetensors"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
