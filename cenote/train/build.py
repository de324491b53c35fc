"""Build what a configuration describes: model, augmentation, and parts of a metric loss."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..backbones import Backbone
from ..data.transforms import MultiCrop, train_transform, wsol_train_transform
from ..losses.catalogue import create_metric_loss
from ..losses.metric import MetricLoss
from ..losses.metrix import Metrix
from ..losses.rivals import IMix, MoCHi, ProxySynthesis
from ..losses.xbm import CrossBatchMemory
from ..losses.zero_shot import ZeroShot
from ..models import PooledModel, create_model, load, load_released
from ..models.frozen import FrozenBackbone, PooledHead
from ..models.image_text.text_encoder import TextTower, Words
from ..models.surgery import create_finer_backbone
from ..options import check_names
from ..pooling.gsp import GSP
from .augment import augmentation
from .config import (
    ClipConfig,
    CropConfig,
    MetricConfig,
    MultiCropConfig,
    Options,
    PlainCropConfig,
    RunConfig,
    SupervisedConfig,
    WsolConfig,
)
from .tasks.metric import Freezing, MetricModule
from .tasks.supervised import JSD_VIEWS

RIVALS = {"i-mix": IMix, "mochi": MoCHi, "proxy-synthesis": ProxySynthesis}


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
    """Return the embedding after the pool; none if the pool has its own [GSP Sec. 4.4]."""
    model, options = config.model, config.options
    if isinstance(options, ClipConfig):
        return {"embedding_dim": options.dim}
    if not isinstance(options, MetricConfig):
        return {}
    if model.tokens != "cls" and model.pool_options.get("local") == options.dim:
        return {}
    return {"embedding_dim": options.dim, "embedding_norm": options.embedding_norm}


def set_preprocessing(config: RunConfig, backbone: Backbone) -> None:
    """Change the backbone's preprocessing where the configuration says so."""
    changes = {k: v for k, v in asdict(config.preprocessing).items() if v is not None}
    if config.augment.size is not None:
        changes["size"] = config.augment.size
    backbone.preprocessing = replace(backbone.preprocessing, **changes)


def build_frozen(config: RunConfig) -> FrozenBackbone:
    """Build the backbone whose weights stay as they are."""
    torch.manual_seed(config.train.seed)
    model = config.model
    backbone = create_finer_backbone(
        model.backbone,
        model.stride,
        pretrained=True,
        weights=model.weights,
        img_size=model.img_size,
    )
    set_preprocessing(config, backbone)
    return FrozenBackbone(backbone, model.stride)


def build_head(config: RunConfig, frozen: FrozenBackbone, classes: int = 0) -> PooledHead:
    """Build the part of a model that learns behind a frozen backbone."""
    model = config.model
    return frozen.create_head(
        model.pool,
        classes,
        model.tokens,
        pool_options=model.pool_options,
        **embedding_arguments(config),
    )


def load_start(model: PooledModel, start: Path) -> None:
    """Load all weights but the head's from the folder of a run or from the authors' checkpoint."""
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
    return {k: v for k, v in model.state_dict().items() if not k.startswith("head.")}


def freeze_all_but_head(model: PooledModel) -> None:
    """Freeze backbone, pool and last norm, including the statistics of their BatchNorm layers."""
    for module in (model.backbone, model.pool, model.after):
        if isinstance(module, nn.Module):
            module.requires_grad_(False).eval()
            # The engine calls train() on the whole model, which must not reach them.
            object.__setattr__(module, "train", lambda mode=True, module=module: module)


def build_augmentation(config: RunConfig, model: PooledModel) -> Any:
    """Build the transform of training images, with the size and the colours of evaluation."""
    augment, evaluation = config.augment, model.backbone.preprocessing
    size = evaluation.size
    colors: Options = {"mean": evaluation.mean, "std": evaluation.std}
    if isinstance(augment, PlainCropConfig):
        # Pretrained weights have learned from whole objects: gentle crops.
        smallest = augment.min_scale or (0.08 if config.model.from_scratch else 0.35)
        return train_transform(
            size,
            **colors,
            interpolation=evaluation.interpolation,
            scale=(smallest, 1.0),
            cutout=augment.cutout,
        )
    options = asdict(augment) | {"size": size} | colors
    if isinstance(augment, WsolConfig):
        return wsol_train_transform(**options)
    if isinstance(augment, MultiCropConfig):
        patch = _patch_size(model)
        options["local_size"] = augment.local_size or max(round(size * 3 / 7 / patch), 1) * patch
        if config.task == "moco":
            options["local"] = 0
        return MultiCrop(**options)
    assert isinstance(augment, CropConfig)
    return augmentation(views=JSD_VIEWS if config.task == "jsd" else 1, **options)


def _patch_size(model: PooledModel) -> int:
    size = getattr(getattr(model.backbone.model, "patch_embed", None), "patch_size", 32)
    return int(size[0] if isinstance(size, tuple) else size)


def build_metric_loss(options: MetricConfig, classes: int) -> MetricLoss:
    return create_metric_loss(options.loss, classes, options.dim, **options.loss_options)


def build_zero_shot(options: MetricConfig, classes: int, prototypes: int) -> ZeroShot:
    fixed = ("classes", "prototypes", "weight")
    names = [name for name in signature(ZeroShot).parameters if name not in fixed]
    check_names("zero-shot", options.zero_shot_options, names)
    return ZeroShot(classes, prototypes, options.zero_shot, **options.zero_shot_options)


def build_mixing(options: MetricConfig) -> Any:
    """Build Metrix or a rival, or return None if nothing is mixed."""
    if not (options.metrix or options.rival):
        return None
    kind: Any = Metrix
    arguments: Options = {"where": options.metrix, "pairs": options.mix}
    if options.rival:
        kind, arguments = RIVALS[options.rival], {}
    names = [item.name for item in fields(kind) if item.name not in arguments]
    check_names(options.rival or "metrix", options.mix_options, names)
    for name, value in options.mix_options.items():
        if name == "pairs" and isinstance(value, str):
            value = value.split(",")
        arguments[name] = tuple(value) if isinstance(value, list) else value
    return kind(**arguments)


def build_metric_module(
    options: MetricConfig, body: PooledModel | PooledHead, classes: int, fitted: bool = False
) -> MetricModule:
    """Build everything that learns around a model; its pool may be `fitted` to data already."""
    zero_shot = None
    if options.zero_shot:
        assert isinstance(body.pool, GSP)
        zero_shot = build_zero_shot(options, classes, body.pool.prototypes.shape[0])
    freezing = Freezing(options.warm_up, options.freeze_bn, options.proxy_rate, options.xbm_after)
    memory = CrossBatchMemory(options.xbm, options.dim) if options.xbm else None
    loss, mixing = build_metric_loss(options, classes), build_mixing(options)
    return MetricModule(body, loss, mixing, zero_shot, memory, freezing, fitted)


def build_text_tower(options: ClipConfig, words: Words) -> TextTower:
    return TextTower(
        len(words), options.dim, words.context, options.width, options.layers, options.heads
    )
