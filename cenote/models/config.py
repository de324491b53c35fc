"""The arguments of `create_model` as they stand in a saved model's config.json: written, checked,
used.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from ..pooling import Pool, create_pool, list_pools
from ..pooling import registry as pools
from . import pooled
from .pooled import PooledModel

# Weights come from the folder alone: none of these may say otherwise, least of all a path of
# somebody else's choice.
OTHER_WEIGHTS = re.compile(
    "pretrained.*|weights|checkpoint_path|cache_dir|.*_filter(_fn)?|(model|feature)_cfg|config"
)
NAME = re.compile(
    r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?"
)  # no "hf-hub:..." and no "local-dir:...", which timm would follow
LARGEST = 1 << 20  # beyond any width or number of classes
DEEPEST = (
    1 << 10
)  # blocks, layers, iterations: more would take hours to build before the weights could disagree


def arguments_of(model: PooledModel) -> dict[str, Any]:
    """What makes this model again; refused with a sentence if it would make another one."""
    arguments = _plain(
        {**model.config, "pool_options": {} if model.pool is None else pool_options(model.pool)}
    )
    if not arguments.get("backbone"):
        raise ValueError("this model has no config: models come from create_model or replace_pool")
    check_arguments(arguments, "model.config")
    with torch.random.fork_rng(devices=[]):  # saving must not change what training draws next
        twin = rebuild(arguments, "model.config")
    if difference := _difference(model, twin):
        raise ValueError(
            f"model.config makes a model that differs from this one ({difference}): the options that '"
            f"{arguments['backbone']}' was made with belong into create_model(...), or into model.config"
        )
    return arguments


def pool_options(pool: Pool) -> dict[str, Any]:
    """The options that make this pool again, also for one that was not made by `create_pool`."""
    if not pools.is_registered(pool):
        raise ValueError(
            f"{type(pool).__name__} is not a registered pool, so no file can name it: @register it first"
        )
    options = dict(pool.options)
    for key, parameter in pools.options(pool.name).items():
        value = getattr(pool, key, parameter.default)
        same_kind = type(value) is type(parameter.default) or parameter.default is None
        if same_kind and type(value) in (int, float, str, bool) and value != parameter.default:
            options.setdefault(key, value)
    try:
        with torch.random.fork_rng(devices=[]):
            twin = create_pool(pool.name, pool.dim, **options)
    except (TypeError, ValueError):
        twin = None
    if twin is None or _settings(twin) != _settings(pool) or _shapes(twin) != _shapes(pool):
        raise ValueError(
            f"'{pool.name}' has settings it cannot name: make it by create_pool('{pool.name}', ...)"
        )
    return options


def check_arguments(arguments: Any, source: object) -> None:
    """Plain values under known names, none of which leads out of the folder."""
    if not isinstance(arguments, dict):
        raise ValueError(
            f"{source}: 'model' holds the arguments of create_model, got {arguments!r:.80}"
        )
    for name, pattern in (("backbone", NAME), ("pool", re.compile("[a-z0-9_+]+"))):
        value = arguments.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"{source}: {name} is a name, got {value!r:.80}")
    for name, value in arguments.items():
        if not re.fullmatch("[a-z][a-z0-9_]*", name) or OTHER_WEIGHTS.fullmatch(name):
            raise ValueError(f"{source}: a saved model has no argument '{name:.80}'")
        if not _is_plain(value, nested=name == "pool_options"):
            raise ValueError(f"{source}: {name} is {value!r:.80}, which no saved model has")
    if arguments["pool"] not in ("cls", *list_pools()):
        raise ValueError(f"{source}: this version of Cenote has no pool '{arguments['pool']:.80}'")
    options = arguments.get("pool_options", {})
    if not isinstance(options, dict):
        raise ValueError(f"{source}: pool_options is a table of options, got {options!r:.80}")
    for name, value in {"depth": arguments.get("depth"), **options}.items():
        if (
            type(value) is int and abs(value) > DEEPEST and not name.endswith("dim")
        ):  # a width may be larger
            raise ValueError(f"{source}: {name} is {value}, which no saved model has")


def rebuild(arguments: dict[str, Any], source: object) -> PooledModel:
    """`create_model` without weights; what it does not know or cannot do is a sentence about the
    file.
    """
    try:
        return pooled.create_model(**_tuples(arguments), pretrained=False)
    except (
        Exception
    ) as error:  # timm raises whatever its models happen to raise on arguments that make no sense
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{source} describes a model that cannot be made: {reason[:300]}"
        ) from error


def _is_plain(value: Any, nested: bool = False) -> bool:
    if isinstance(value, dict):
        return nested and all(
            isinstance(key, str) and _is_plain(inner) for key, inner in value.items()
        )
    if isinstance(value, list):
        return len(value) <= 64 and all(_is_plain(inner) for inner in value)
    if type(value) in (int, float):
        return abs(value) <= LARGEST
    return (
        value is None
        or type(value) is bool
        or (isinstance(value, str) and not set(value) & set("/\\:"))
    )


def _plain(value: Any) -> Any:
    """Tuples become lists: JSON knows no others."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(_tuples(inner) for inner in value) if isinstance(value, list) else value


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def _settings(pool: Pool) -> dict[str, Any]:
    plain = (int, float, str, bool, type(None), frozenset)
    return {
        key: value
        for key, value in vars(pool).items()
        if type(value) in plain and key != "training"
    }


def _difference(model: nn.Module, twin: nn.Module) -> str:
    """The first thing in which two models differ, or nothing."""
    shapes, twin_shapes = _shapes(model), _shapes(twin)
    for name in [*shapes, *twin_shapes]:
        if shapes.get(name) != twin_shapes.get(name):
            return f"{name} is {shapes.get(name, 'absent')}, not {twin_shapes.get(name, 'there')}"
    # Strides, epsilons and activations have no tensors, but every layer prints its own.
    layers, twin_layers = _layers(model), _layers(twin)
    for name in [*layers, *twin_layers]:
        if layers.get(name) != twin_layers.get(name):
            return f"{name} is {layers.get(name, 'absent')}, not {twin_layers.get(name, 'there')}"
    return ""


def _layers(model: nn.Module) -> dict[str, str]:
    """What each layer says of itself; dropout is left out, it is for training only."""
    return {
        name: f"{type(layer).__name__}({layer.extra_repr()})".replace(
            "SyncBatchNorm", "BatchNorm2d"
        )
        for name, layer in model.named_modules()
        if not next(layer.children(), None)
        and "drop" not in f"{name} {type(layer).__name__}".lower()
    }
