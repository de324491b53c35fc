"""Build the model that a configuration describes, and load the weights that it starts from."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from torch import nn

from ..backbones import Backbone
from ..data import Dataset
from ..models import PooledModel, create_model, load, load_released
from ..models.frozen import FrozenBackbone, PooledHead
from ..models.head import Head
from ..models.image_text.text_encoder import TextTower, Words
from ..models.surgery import create_finer_backbone
from ..pooling import create_pool
from .config import (
    ClipConfig,
    MetricConfig,
    Options,
    RunConfig,
    SupervisedConfig,
)


def build_model(config: RunConfig, classes: int = 0) -> PooledModel:
    """Build the model that a run trains; weights of another run are not loaded into it yet."""
    torch.manual_seed(config.train.seed)
    model = create_model(**model_arguments(config), num_classes=classes)
    set_preprocessing(config, model.backbone)
    return model


def model_arguments(config: RunConfig) -> Options:
    """Return the arguments of `create_model`, without the number of classes."""
    values = {item.name: getattr(config.model, item.name) for item in fields(config.model)}
    timm_options = values.pop("backbone_options")
    del values["start"], values["freeze"]
    if not isinstance(config.options, SupervisedConfig):
        values["img_size"] = config.model.img_size or config.augment.size
    return {**values, **embedding_arguments(config), **timm_options}


def embedding_arguments(config: RunConfig) -> Options:
    """Return the embedding after the pool.

    There is none if positions are embedded before they are pooled and the pool's vectors, in a row,
    have `dim` dimensions: 128 for one of 128 or eight of 16 [GSP Sec. 4.4].
    """
    model, options = config.model, config.options
    if isinstance(options, ClipConfig):
        return {"embedding_dim": options.dim}
    if not isinstance(options, MetricConfig):
        return {}
    pooled = model.pool not in ("cls", "own") and model.tokens != "cls"
    if pooled and "local" in model.pool_options:
        with torch.random.fork_rng(devices=()):
            pool = create_pool(model.pool, 1, **model.pool_options)
        if pool.k * pool.out_dim == options.dim:
            return {}
    return {"embedding_dim": options.dim, "embedding_norm": options.embedding_norm}


def set_preprocessing(config: RunConfig, backbone: Backbone) -> None:
    """Change the backbone's preprocessing where the configuration says so."""
    changes = {k: v for k, v in asdict(config.preprocessing).items() if v is not None}
    if config.augment.size is not None:
        changes["size"] = config.augment.size
    backbone.preprocessing = replace(backbone.preprocessing, **changes)


def build_frozen(config: RunConfig, device: torch.device) -> FrozenBackbone:
    """Build the backbone whose weights stay as they are."""
    torch.manual_seed(config.train.seed)
    model = config.model
    backbone = create_finer_backbone(
        model.backbone,
        model.stride,
        model.no_dilation,
        pretrained=True,
        weights=model.weights,
        img_size=model.img_size,
    )
    set_preprocessing(config, backbone)
    summary = model.tokens == "summary"
    frozen = FrozenBackbone(
        backbone, model.stride, model.no_dilation, model.feature_layers, summary
    )
    frozen.backbone.to(device)
    return frozen


def build_head(config: RunConfig, frozen: FrozenBackbone, classes: int = 0) -> PooledHead:
    """Build the part of a model that learns behind a frozen backbone."""
    model = config.model
    return frozen.create_head(
        model.pool,
        classes,
        model.tokens,
        model.combine,
        pool_options=model.pool_options,
        wsol=model.wsol,
        wsol_options=model.wsol_options,
        **embedding_arguments(config),
    )


def start_from_shares(model: nn.Module, dataset: Dataset) -> None:
    """Let the probability of each class start at the share of images that have it.

    For sigmoids: they would start at 1/2, and a short training would leave many of them there.
    """
    head = model.get_submodule("head")
    assert isinstance(head, Head)
    shares = torch.from_numpy((dataset.class_counts + 0.5) / (len(dataset) + 1))
    with torch.no_grad():
        head.linear.bias.copy_(shares.logit())


def load_start(model: PooledModel, start: Path) -> None:
    """Load all weights but those of head and `wsol` from a run or the authors' checkpoint."""
    if not start.is_dir():
        load_released(model, start)
        return
    state = _without_head(model)
    saved = _without_head(load(start))
    differing = [
        name
        for name in state.keys() | saved.keys()
        if name not in state or name not in saved or saved[name].shape != state[name].shape
    ]
    if differing:
        raise ValueError(
            f"{start} contains another model than the configured one: {min(differing)} differs"
        )
    model.load_state_dict(saved, strict=False)


def _without_head(model: PooledModel) -> dict[str, torch.Tensor]:
    return {k: v for k, v in model.state_dict().items() if not k.startswith(("head.", "wsol."))}


def freeze_all_but_head(model: PooledModel) -> None:
    """Freeze backbone, pool and last norm, including the statistics of their BatchNorm layers."""
    for module in (model.backbone, model.pool, model.after):
        if isinstance(module, nn.Module):
            module.requires_grad_(False).eval()
            # The engine calls train() on the whole model, which must not reach them.
            object.__setattr__(module, "train", lambda mode=True, module=module: module)


def build_text_tower(options: ClipConfig, words: Words) -> TextTower:
    return TextTower(
        len(words), options.dim, words.context, options.width, options.layers, options.heads
    )
