"""The arguments of `create_model` in the config.json of a saved model, and their checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..pooling import Pool, create_pool, list_pools
from ..pooling import registry as pools

# Weights come from the folder alone: none of these may say otherwise, least of all a path of
# somebody else's choice.
OTHER_WEIGHTS = re.compile(
    "pretrained.*|weights|checkpoint_path|cache_dir|.*_filter(_fn)?|(model|feature)_cfg|config"
)
# No "hf-hub:..." and no "local-dir:...", which timm would follow.
BACKBONE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?")
LARGEST = 1 << 20  # beyond any width or number of classes
# Of blocks, layers, iterations: more would take hours to build before the weights could disagree.
DEEPEST = 1 << 10


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
        if not _is_plain(value, nested=name == "pool_options"):
            yield f"{name} is {value!r:.80}, which no saved model has"
    if arguments["pool"] not in ("cls", *list_pools()):
        yield f"this version of Cenote has no pool '{arguments['pool']:.80}'"
    options = arguments.get("pool_options", {})
    if not isinstance(options, dict):
        yield f"pool_options is a table of options, got {options!r:.80}"
    for name, value in {"depth": arguments.get("depth"), **options}.items():
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
    return [with_lists(inner) for inner in value] if isinstance(value, tuple | list) else value


def with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_tuples(inner) for key, inner in value.items()}
    return tuple(with_tuples(inner) for inner in value) if isinstance(value, list) else value


def pool_options(pool: Pool) -> dict[str, Any]:
    """The options that make this pool again, also for one that was not made by `create_pool`."""
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
            twin = create_pool(pool.name, pool.dim, **options)
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


def _shapes(module: nn.Module) -> dict[str, Any]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def _layers(model: nn.Module) -> dict[str, Any]:
    """What each layer says of itself; dropout is left out, it is for training only."""
    layers = {}
    for name, layer in model.named_modules():
        kind = type(layer).__name__.replace("SyncBatchNorm", "BatchNorm2d")
        if not any(True for _ in layer.children()) and "drop" not in f"{name} {kind}".lower():
            layers[name] = f"{kind}({layer.extra_repr()})"
    return layers


def _settings(pool: Pool) -> dict[str, Any]:
    plain = (int, float, str, bool, type(None), frozenset)
    return {k: v for k, v in vars(pool).items() if type(v) in plain and k != "training"}
