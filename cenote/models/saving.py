"""A model in a folder: config.json and model.safetensors; the same two files on the Hugging Face
hub. Nothing in them is pickled, nothing in them is run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import timm
import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ..backbones import Backbone, Preprocessing
from ..backbones.hugging_face import ARCHITECTURE
from ..backbones.sources import OTHER_WEIGHTS, sha256
from ..data.files import sweep, temporary_path
from ..pooling import Pool, create_pool, list_pools
from ..pooling import registry as pools
from ..pooling.own import OwnPool
from ..version import __version__
from .head import PoolAndHead

Arguments = dict[str, Any]  # of `create`, by name
FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
OPTIONAL = {"map_kind", "map_size", "multi_label", "sha256", "source", "versions"}
MAP_KINDS = ("pool", "cam", "cls")  # that may be the first of a saved model's
KEYS = {"format", "model", "class_names", "preprocessing"} | OPTIONAL
PENDING = re.compile(r"\.model\.[0-9a-f]{64}\.safetensors")

# No "hf-hub:..." and no "local-dir:...", which timm would follow.
BACKBONE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_-]+)?")
LARGEST = 1 << 20  # beyond any width or number of classes
# Of blocks, layers, iterations: more would take hours to build before the weights could disagree.
DEEPEST = 1 << 10
MARGIN = (
    1 << 26
)  # parameters beyond those of the weights that a model may register when it is built


class SavedModel(
    PoolAndHead, ModelHubMixin, library_name="cenote", tags=["image-feature-extraction", "pooling"]
):
    """`save(folder)`, `from_pretrained(folder or repository)`, `save_pretrained`, `push_to_hub` of
    a model that `create` makes.
    """

    backbone: Backbone
    class_names: list[str] | None
    multi_label: bool = False  # whether an image may have several classes
    map_kind: str | None = None  # the first of its maps; None: as the pool has it
    map_size: int | None = None  # side of images for the first of its maps; None: as in training
    config: Arguments  # the arguments of `create` that make this model again

    @classmethod
    def create(cls, **arguments: Any) -> Self:
        raise NotImplementedError

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return those of the classes (..., classes): sigmoid if an image may have several."""
        return logits.sigmoid() if self.multi_label else logits.softmax(-1)

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors into the folder, for `cenote.load(folder)`."""
        save_model(self, folder)

    def save_pretrained(
        self, save_directory: str | Path, *, push_to_hub: bool = False, **options: Any
    ) -> str | None:
        """As the mixin, which begins by deleting config.json: a kill would leave half a model."""
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
        """A model from a folder, or from the hub by name (revision=, token=, cache_dir=, ...)."""
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():  # otherwise the network is not asked
            name, files = str(pretrained_model_name_or_path), [CONFIG, WEIGHTS]
            folder = Path(snapshot_download(name, allow_patterns=files, **options))
        return cls.read(folder)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The model that `save_model` wrote, in evaluation mode."""
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
        saved = sum(value.numel() for value in state.values())
        with _limited_parameters(4 * saved + MARGIN):
            model = cls.rebuild(config["model"], folder / CONFIG)
        _fill(model, state, folder / WEIGHTS)
        model.class_names = config["class_names"]
        model.multi_label = config.get("multi_label", False)
        model.map_kind, model.map_size = config.get("map_kind"), config.get("map_size")
        model.backbone.preprocessing = Preprocessing(**config["preprocessing"])
        model.backbone.source = config.get("source")
        return model.eval()

    @classmethod
    def rebuild(cls, arguments: Arguments, source: object) -> Self:
        """The model without its weights; whatever goes wrong is a sentence about the file."""
        if arguments["pool"] == "simpool":  # older files name an exponent only where there is one
            options = {"gamma": None, **arguments.get("pool_options", {})}
            arguments = {**arguments, "pool_options": options}
        try:
            return cls.create(**with_tuples(arguments))
        except Exception as error:  # timm raises anything on arguments that make no sense
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"{source} describes a model that cannot be made: {reason[:300]}"
            ) from error


@contextmanager
def _limited_parameters(most: int) -> Iterator[None]:
    """Refuse to register more parameters: a short configuration must not fill the memory.

    The memory of a parameter that is refused has not been written, and is not taken from the
    system. Parameters that are registered twice, or replaced, count again.
    """
    this_thread, count = threading.get_ident(), 0

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count
        if parameter is not None and threading.get_ident() == this_thread:
            count += parameter.numel()
            if count > most:
                raise ValueError(f"it has far more parameters than {WEIGHTS}")

    hook = register_module_parameter_registration_hook(check)
    try:
        yield
    finally:
        hook.remove()


def arguments_of(model: SavedModel) -> Arguments:
    """What makes this model again; refused with a sentence if it would make another one."""
    arguments: Arguments = with_lists({**model.config, "pool_options": pool_options(model.pool)})
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
    preprocessing = model.backbone.preprocessing
    versions = {"cenote": __version__, "torch": torch.__version__, "timm": timm.__version__}
    if model.backbone.name.startswith(ARCHITECTURE):
        versions["transformers"] = version("transformers")
    config = {
        "format": FORMAT,
        "model": arguments_of(model),
        "class_names": model.class_names,
        "preprocessing": {k: v for k, v in preprocessing.identity().items() if k in PREPROCESSING},
        "versions": versions,
    }
    if model.multi_label:
        config["multi_label"] = True
    if model.map_kind is not None:
        config["map_kind"] = model.map_kind
    if model.map_size is not None:
        config["map_size"] = model.map_size
    if model.backbone.source is not None:
        config["source"] = model.backbone.source
    folder = Path(folder)
    # A folder of its own: safetensors may leave another file beside the one it writes.
    folder.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(folder)
    temporary.mkdir()
    try:
        save_file(_tensors(model), temporary / WEIGHTS, metadata={"format": "pt"})
        config["sha256"] = digest = sha256(temporary / WEIGHTS)
        text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (temporary / CONFIG).write_text(text, encoding="utf-8")
        # safetensors writes files of mode 600: both follow the umask.
        (temporary / WEIGHTS).chmod((temporary / CONFIG).stat().st_mode)
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
        shutil.rmtree(temporary, ignore_errors=True)
        _clean(folder)


def _clean(folder: Path) -> None:
    """Remove what killed saves left behind, but not the weights that config.json waits for."""
    sweep(folder)
    try:
        awaited = _pending(folder, read_config(folder / CONFIG).get("sha256"))
    except (ValueError, OSError):
        awaited = None
    for path in folder.iterdir():
        if PENDING.fullmatch(path.name) and path != awaited:
            path.unlink(missing_ok=True)


def read_config(path: Path) -> Any:
    """config.json, checked: known keys only, and no argument that could reach another file."""
    return read_checked(path, _config_problems)


def read_checked(path: Path, problems: Callable[[Any], Iterator[str]]) -> Any:
    """The content of a JSON file; the first of its problems is a ValueError."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(2, "no such file, so not a saved model", str(path)) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    for problem in problems(config):
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
    if lacking := sorted(KEYS - OPTIONAL - set(config)):
        yield f"'{lacking[0]}' is missing"
    digest = config.get("sha256", "0" * 64)
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        yield f"sha256 is 64 hexadecimal digits, got {digest!r:.80}"
    if type(config.get("multi_label", False)) is not bool:
        yield f"multi_label is true or false, got {config['multi_label']!r:.80}"
    if config.get("map_kind", "pool") not in MAP_KINDS:
        yield f"map_kind is one of {', '.join(MAP_KINDS)}, got {config['map_kind']!r:.80}"
    if not _is_side(config.get("map_size", 1)):
        yield f"map_size is a number of pixels, got {config['map_size']!r:.80}"
    source = config.get("source", {})
    if not isinstance(source, dict) or not all(isinstance(v, str) for v in source.values()):
        yield f"source is the name and digest of the backbone's weights, got {source!r:.80}"
    values = config["preprocessing"]
    required = set(PREPROCESSING) - {"crop_mode"}
    if not isinstance(values, dict) or not required <= set(values) <= set(PREPROCESSING):
        yield f"preprocessing has exactly the keys {', '.join(sorted(required))}"
    for key, fits in PREPROCESSING.items():
        if key in values and not fits(values[key]):
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


def _is_side(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 1 << 12


def _are_three_numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))


# "random" is timm's, for training.
INTERPOLATIONS = (
    "nearest",
    "nearest-exact",
    "bilinear",
    "bicubic",
    "box",
    "hamming",
    "lanczos",
    "random",
)
PREPROCESSING: dict[str, Callable[[Any], bool]] = {
    "size": _is_side,
    "crop": lambda value: _is_number(value) and 0 < value <= 4,
    "mean": _are_three_numbers,
    "std": _are_three_numbers,
    "interpolation": lambda value: value in INTERPOLATIONS,
    "crop_mode": lambda value: value in ("center", "floor", "squash"),
}


def _read_weights(folder: Path, digest: str | None) -> dict[str, Tensor] | None:
    """The tensors of this digest; None if the file there has another."""
    path = folder / WEIGHTS
    if digest is not None and _pending(folder, digest).is_file():
        path = _pending(folder, digest)  # killed before the new weights were given their name
    try:
        state = load_file(path)
        if digest in (None, sha256(path)):
            return state
        return None
    except FileNotFoundError:
        if path.name == WEIGHTS:
            raise FileNotFoundError(2, "no such file", str(path)) from None
        return None  # it has just been given its name
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
    """The state dict with a copy of every tied tensor, which the format cannot describe."""
    storages: set[int] = set()
    tensors = {}
    for name, value in model.state_dict().items():
        value = value.detach().cpu().contiguous()
        shared = value.untyped_storage().data_ptr() in storages and value.numel() > 0
        tensors[name] = value
        if shared:
            tensors[name] = value.clone()
        storages.add(value.untyped_storage().data_ptr())
    return tensors


def _pending(folder: Path, digest: str | None) -> Path:
    return folder / f".model.{digest}.safetensors"


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# The arguments of `create` in config.json.


def argument_problems(arguments: Any) -> Iterator[str]:
    """What keeps arguments from being a saved model's: plain values under known names, none of which
    leads out of the folder. Only the first problem counts, later checks rely on the earlier ones.
    """
    if not isinstance(arguments, dict):
        yield f"'model' holds the arguments of create_model, got {arguments!r:.80}"
    for name, pattern in (("backbone", BACKBONE), ("pool", re.compile("[a-z0-9_+]+"))):
        value = arguments.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            yield f"{name} is a name, got {value!r:.80}"
    for name, value in arguments.items():
        if not re.fullmatch("[a-z][a-z0-9_]*", name) or OTHER_WEIGHTS.fullmatch(name):
            yield f"a saved model has no argument '{name:.80}'"
        if not _is_plain(value, nested=name.endswith("_options")):
            yield f"{name} is {value!r:.80}, which no saved model has"
    if arguments["pool"] not in ("cls", "own", *list_pools()):
        yield f"this version of Cenote has no pool '{arguments['pool']:.80}'"
    options, timm_options = (arguments.get(f"{part}_options", {}) for part in ("pool", "backbone"))
    for part, table in (("pool", options), ("backbone", timm_options)):
        if not isinstance(table, dict):
            yield f"{part}_options is a table of options, got {table!r:.80}"
    for name in timm_options:
        if OTHER_WEIGHTS.fullmatch(name):
            yield f"a saved model has no argument '{name:.80}'"
    depths = {"depth": arguments.get("depth"), "depth of the backbone": timm_options.get("depth")}
    depths["num_hidden_layers"] = timm_options.get("num_hidden_layers")  # of transformers
    for name, value in {**depths, **options}.items():
        if type(value) is int and abs(value) > DEEPEST and not name.endswith("dim"):
            yield f"{name} is {value}, which no saved model has"


def _is_plain(value: Any, nested: bool = False) -> bool:
    if isinstance(value, dict):
        keys_are_names = all(isinstance(key, str) for key in value)
        return nested and keys_are_names and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return len(value) <= 64 and all(map(_is_plain, value))
    if type(value) in (int, float):
        return abs(value) <= LARGEST
    if isinstance(value, str):
        return not set(value) & set("/\\:")
    return value is None or type(value) is bool


def with_lists(value: Any) -> Any:
    """Tuples become lists: JSON has no tuples."""
    if isinstance(value, dict):
        return {key: with_lists(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [with_lists(inner) for inner in value]
    return value


def with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_tuples(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return tuple(with_tuples(inner) for inner in value)
    return value


def pool_options(pool: Pool | None) -> Arguments:
    """The options that make this pool again, also for one that was not made by `create_pool`."""
    if pool is None:
        return {}
    if isinstance(pool, OwnPool):  # of the backbone, with which it is created again
        return dict(pool.options)
    if not pools.is_registered(pool):
        raise ValueError(
            f"{type(pool).__name__} is not a registered pool, so no file can name it: @register it"
        )
    options = dict(pool.options)
    for key, parameter in pools.options(pool.name).items():
        value = getattr(pool, key, parameter.default)
        same_kind = type(value) is type(parameter.default) or parameter.default is None
        if same_kind and type(value) in (int, float, str, bool) and value != parameter.default:
            options.setdefault(key, value)
    try:
        with torch.random.fork_rng(devices=[]):
            twin = create_pool(pool.name, pool.in_dim, **options)
    except (TypeError, ValueError):
        twin = None
    if twin is None or _settings(twin) != _settings(pool) or _shapes(twin) != _shapes(pool):
        raise ValueError(
            f"'{pool.name}' has settings it cannot name: make it by create_pool('{pool.name}', ...)"
        )
    return options


def difference(model: nn.Module, twin: nn.Module) -> str:
    """The first thing in which two models differ, or nothing.

    Strides, epsilons and activations have no tensors, but every layer prints its own.
    """
    for describe in (_shapes, _layers):
        values, twin_values = describe(model), describe(twin)
        for name in [*values, *twin_values]:
            if values.get(name) != twin_values.get(name):
                return (
                    f"{name} is {values.get(name, 'absent')}, not {twin_values.get(name, 'there')}"
                )
    return ""


def _shapes(module: nn.Module) -> Mapping[str, object]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def _layers(model: nn.Module) -> Mapping[str, object]:
    """What each layer says of itself; dropout is left out, it is for training only."""
    layers = {}
    for name, layer in model.named_modules():
        kind = type(layer).__name__.replace("SyncBatchNorm", "BatchNorm2d")
        if not any(True for _ in layer.children()) and "drop" not in f"{name} {kind}".lower():
            layers[name] = f"{kind}({layer.extra_repr()})"
    return layers


def _settings(pool: Pool) -> Mapping[str, object]:
    plain = (int, float, str, bool, type(None), frozenset)
    return {k: v for k, v in vars(pool).items() if type(v) in plain and k != "training"}


def model_digest(folder: Path) -> str:
    """Return a digest of configuration and weights: pools without parameters share weights."""
    digest = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
