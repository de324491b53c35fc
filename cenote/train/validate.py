"""Check a configuration before any image is read."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..losses.mixing import Mixable
from ..models.image_text.text_encoder import Words
from ..models.surgery import Pyramid, create_finer_backbone
from ..options import check_names, check_number, suggest
from ..pooling import list_pools, registry
from .build import (
    build_metric_loss,
    build_mixing,
    build_text_tower,
    build_zero_shot,
    embedding_arguments,
)
from .config import (
    ClipConfig,
    MetricConfig,
    OptimizationConfig,
    PlainCropConfig,
    RunConfig,
    SupervisedConfig,
    WsolConfig,
)
from .typed_fields import check_choices, check_minimum

# Settings that only `cenote fit` uses.
FIT_SETTINGS = ("smoothing", "mixup", "cutmix", "sar", "sar_loss", "sar_schedule", "select")


def validate(config: RunConfig) -> None:
    """Raise ValueError with the first problem of a configuration; nothing is built."""
    for message in _problems(config):
        raise ValueError(message)


def _problems(config: RunConfig) -> Iterator[str]:
    model, augment, options = config.model, config.augment, config.options
    pools = [*list_pools(), "cls"]
    if model.pool not in pools:
        yield f"no pool '{model.pool}'{suggest(model.pool, pools)}"
    if model.pool != "cls":
        check_names(model.pool, model.pool_options, registry.options(model.pool))
    check_minimum(config.train, workers=0)
    check_minimum(augment, size=1)
    if isinstance(augment, PlainCropConfig | WsolConfig):
        check_number("cutout", augment.cutout, least=0, most=1)
    if model.freeze and not model.pretrained and model.weights is None:
        yield (
            "a frozen backbone needs trained weights: freeze and scratch exclude each other "
            "(--backbone lite0 has weights, or give --weights)"
        )
    if isinstance(options, SupervisedConfig):
        yield from _fit_problems(config)
        return
    if isinstance(options, MetricConfig | ClipConfig):
        default = OptimizationConfig()
        changed = [n for n in FIT_SETTINGS if getattr(config.train, n) != getattr(default, n)]
        if changed:
            yield f"cenote {config.command} does not use {', '.join(changed)}: leave them out"
        if config.train.accumulate > 1:
            yield "examples are compared with all others of their step: accumulate must be 1"
    if isinstance(options, MetricConfig):
        yield from _metric_problems(config, options)
    if isinstance(options, ClipConfig):
        check_choices(options)
        check_number("batch", config.train.batch, whole=True, least=2)
        check_number("dim", options.dim, whole=True, least=1)
        if isinstance(augment, PlainCropConfig):
            check_number("crop", augment.min_scale, above=0, most=1)


def _fit_problems(config: RunConfig) -> Iterator[str]:
    model, train = config.model, config.train
    if not model.freeze:
        if len(config.options.rates) > 1:
            yield "several learning rates need --freeze: give one --lr"
        return
    if model.fpn:
        yield "a feature pyramid must be trained: --fpn excludes --freeze (--stride works)"
    if model.last_block or train.sar:
        yield "SAR changes how a backbone attends: --sar and --last-block exclude --freeze"
    if getattr(config.augment, "cutout", 0):
        yield "frozen features are computed once from whole images: --cutout excludes --freeze"
    if train.select != "accuracy":
        yield "with --freeze accuracy selects the epoch: --select boxes and pixels exclude it"


def _metric_problems(config: RunConfig, options: MetricConfig) -> Iterator[str]:
    model = config.model
    check_choices(options)
    check_minimum(options, images_per_class=0, xbm=0, xbm_after=0, warm_up=0, epoch_steps=1)
    check_number("proxy_rate", options.proxy_rate, above=0)
    if options.rival and options.metrix:
        yield "Metrix and its rivals exclude each other: leave out --metrix or --rival"
    if options.mix_options and not (options.rival or options.metrix):
        yield "options of mixing need something to mix: --metrix feature, for instance"
    if options.classes_per_batch is not None and (
        options.classes_per_batch < 2 or not options.images_per_class
    ):
        yield "classes_per_batch must be at least 2, with images_per_class of at least 1"
    if options.xbm_after and not options.xbm:
        yield "xbm_after is the first step of a memory: it needs --xbm, its size"
    if not 1 <= options.repeats <= 5:
        yield (
            f"repeats must be from 1 to 5, got {options.repeats}: every collection of four models "
            "is evaluated, 81 for 3 trainings, 625 for 5"
        )
    if options.repeats > 1 and options.protocol != "fair":
        yield "--repeats is how often the models of the fair protocol are trained: --protocol fair"
    if options.protocol == "fair" and options.validate != "classes":
        yield "the fair protocol selects by the classes that a fold holds out: no --validate"
    if options.embedding_norm and not embedding_arguments(config):
        yield "no embedding follows a pool with local as large as dim: leave out --embedding-norm"
    if options.warm_up >= config.train.epochs:
        epochs = f"{options.warm_up:g} of {config.train.epochs} epochs"
        yield f"the backbone would stay frozen for {epochs}: --freeze does that in minutes"
    pool = "cls" if model.tokens == "cls" else model.pool
    if options.zero_shot and pool != "gsp":
        remedy = "--tokens patches" if model.tokens == "cls" else "--pool gsp"
        yield f"the zero-shot loss reads the histogram of GSP, '{pool}' has none: {remedy}"
    if model.freeze and ("input" in options.metrix or options.rival == "i-mix"):
        yield "mixed images pass through the backbone: input excludes --freeze (feature works)"
    if model.freeze and (options.warm_up or options.freeze_bn):
        yield "a frozen backbone does not learn: leave out --warm-up and --freeze-bn"


def try_out(config: RunConfig) -> None:
    """Build what can fail, once and small, without drawing numbers that training would draw."""
    model, options = config.model, config.options
    for path in (model.weights, model.start):
        if path is not None and not path.exists():
            raise FileNotFoundError(2, "no such weights file", str(path))
    if config.command == "clip" and model.weights is not None and model.weights.is_dir():
        raise ValueError(f"--weights takes a file of a backbone's weights, got {model.weights}")
    with torch.random.fork_rng(devices=()):
        if model.stride != 1 or model.fpn is not None:
            backbone = create_finer_backbone(
                model.backbone, model.stride, img_size=model.img_size, **model.backbone_options
            )
            if model.fpn is not None:
                Pyramid(backbone, model.fpn, dim=1)
        if isinstance(options, MetricConfig):
            try_loss(options)
        if isinstance(options, ClipConfig):
            build_text_tower(options, Words([]))


def try_loss(options: MetricConfig) -> None:
    """Compute the loss of one step with next to nothing."""
    with torch.random.fork_rng(devices=()):
        loss, mixing = build_metric_loss(options, 2), build_mixing(options)
        if options.zero_shot:
            build_zero_shot(options, 2, 1)
        z, labels = torch.randn(4, options.dim), torch.tensor([0, 0, 1, 1])
        memory = (torch.randn(2, options.dim), labels[1:3]) if options.xbm else None
        if mixing is None:
            loss(z, labels, memory)
            return

        def embed(x: Tensor) -> Tensor:
            return torch.randn(len(x), options.dim)

        batch = Mixable(labels, z, torch.randn(4, 1, 1), torch.randn(4, 3, 1, 1), embed, embed)
        mixing(loss, batch, torch.Generator(), memory)
