"""The SimPool authors' checkpoints: their names and wrappers, loaded into a `PooledModel`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones.weights import read_weights
from .pooled import PooledModel

# Where a checkpoint keeps its networks, the one to prefer first: DINO's teacher, a supervised run's
# average.
WRAPPERS = ("teacher", "state_dict_ema", "state_dict", "model", "student")
# Their pool, in the DINO networks and in the supervised ViT, ResNet and ConvNeXt; and its tensors.
POOLS = ("simpool", "gp", "gp.pool", "global_pool.pool", "head.global_pool.pool")
POOL_TENSORS = ("norm_patches", "wq", "wk", "beta")
HEADS = ("head", "fc", "head.fc")
# ConvNeXt's first names of its layers, as the DINO runs kept them, and timm's. The stem before the
# other downsamplers.
CONVNEXT = (
    (r"\bdownsample_layers\.0\.", "stem."),
    (r"\bdownsample_layers\.(\d+)\.", r"stages.\1.downsample."),
    (r"\bstages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),
    (r"\.dwconv\.", ".conv_dw."),
    (r"\.pwconv(\d)\.", r".mlp.fc\1."),
)
# Objects beside the networks in those files. They are read as nothing: not one of them is called.
BESIDES = (
    "argparse.Namespace",
    "numpy.dtype",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.dtypes.Float64DType",
    "numpy.dtypes.Float32DType",
    "numpy.dtypes.Int64DType",
)


class Nothing:
    """Stands for an object of a checkpoint that is neither needed nor trusted."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


def load_released(model: PooledModel, path: str | Path) -> str:
    """Fill the model from a released checkpoint; the sentence says what of the file or of the head
    was left over.

    A backbone or a pool that the file fills only in part is refused, as is a model with its last
    LayerNorm elsewhere; it then stays as it was. The DINO ViT was trained with positions that are
    resampled at every size: `create_model(..., norm="after", dino_positions=True)`.
    """
    if model.pool is None or model.pool.name != "simpool":
        raise ValueError("a released SimPool checkpoint needs a model with pool='simpool'")
    path = Path(path)
    tensors = read_released(path)
    if any("downsample_layers." in name for name in tensors):
        tensors = {_convnext_name(name): value for name, value in tensors.items()}
    prefix = _prefix(tensors, model.backbone.model)
    norm_after = not isinstance(model.after, nn.Identity)
    their_names = {
        _our_name(name.removeprefix(prefix), norm_after): name
        for name in tensors
        if name.startswith(prefix)
    }
    state = model.state_dict()
    fitting = {n: tensors[name] for n, name in their_names.items()}
    problems = []
    for name, value in state.items():
        needed = not name.startswith("head.") and not name.endswith("num_batches_tracked")
        if name not in fitting:
            problems += [f"no tensor for {name}"] * needed
        elif fitting[name].shape != value.shape:
            shape = tuple(fitting.pop(name).shape)
            problems += [f"{name} is {shape} there, {tuple(value.shape)} here"] * needed
    if problems:
        raise ValueError(
            f"{path} does not fit '{model.backbone.name}' with simpool: {_few(problems)}"
        )
    place = _norm_place({name.removeprefix(prefix) for name in tensors})
    if model.norm != place:
        raise ValueError(
            f"the network in {path} has its last LayerNorm {place} the pool: create the model with "
            f"norm='{place}'"
        )
    model.load_state_dict(fitting, strict=False)
    if "pool.beta" in fitting:  # the model is now one with an offset, also when it is saved
        model.pool.options["beta"] = True
        model.config["pool_options"] = model.pool.options
    used = {their_names[name] for name in fitting}
    leftover = {
        "not in the model": [name for name in tensors if name not in used],
        "not in the file": [n for n in state if n.startswith("head.") and n not in fitting],
    }
    return "; ".join(f"{what}: {_few(names)}" for what, names in leftover.items() if names)


def read_released(path: Path) -> dict[str, Tensor]:
    """The tensors of the network in the file. Nothing in the file is executed."""
    if path.suffix == ".safetensors" or not path.is_file():
        return read_weights(path)
    try:
        with torch.serialization.safe_globals([(Nothing, name) for name in BESIDES]):
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or malicious file makes the reader raise
        reason = (str(error).splitlines() or ["?"])[0]
        if "weights" in str(error).lower():
            reason = "code in it is not run"
        raise ValueError(f"{path} is not a readable checkpoint: {reason[:200]}") from error
    if not isinstance(state, dict):
        state = {}
    network = next((state[key] for key in WRAPPERS if isinstance(state.get(key), dict)), state)
    tensors = {
        name: value
        for name, value in network.items()
        if isinstance(name, str) and isinstance(value, Tensor)
    }
    if not tensors:
        raise ValueError(f"{path} holds no network: a dictionary of tensors was expected")
    return tensors


def _prefix(tensors: dict[str, Tensor], backbone: nn.Module) -> str:
    """What stands before the backbone's names, such as "module.backbone.": what most of them agree
    on.
    """
    votes: Counter[str] = Counter()
    for our_name in backbone.state_dict():
        votes.update(
            name.removesuffix(our_name) for name in tensors if f".{name}".endswith(f".{our_name}")
        )
    return max(votes, key=lambda prefix: votes[prefix], default="")


def _norm_place(names: set[str]) -> str:
    """Where the authors' networks have their last LayerNorm, in the words of `create_model`."""
    if "norm.weight" not in names and "head.norm.weight" not in names:
        return "none"  # ResNet
    if "norm.weight" in names and "simpool.wq.weight" not in names:
        return "before"  # the supervised ViT
    return "after"  # the DINO networks and ConvNeXt


def _our_name(name: str, norm_after: bool) -> str:
    for pool in POOLS:
        inner = name.removeprefix(f"{pool}.")
        if inner != name and inner.split(".")[0] in POOL_TENSORS:
            return "pool." + inner.replace("norm_patches.", "norm.")
    stem, _, leaf = name.rpartition(".")
    if stem in HEADS:
        return f"head.linear.{leaf}"
    if stem in ("norm", "head.norm") and norm_after:
        return f"after.{leaf}"  # the DINO ViT and the ConvNeXt normalise behind the pool
    return f"backbone.model.{name}"


def _convnext_name(name: str) -> str:
    for pattern, replacement in CONVNEXT:
        name = re.sub(pattern, replacement, name)
    return name


def _few(names: list[str]) -> str:
    listed = ", ".join(names[:4])
    if names[4:]:
        listed += f" and {len(names) - 4} more"
    return listed
