"""From the options of a command, and a recipe or a saved run, to a validated `RunConfig`.

Everything that can be wrong is reported before an image is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from ..backbones.create import WITHOUT_WEIGHTS
from ..losses.mixing import Mixable
from ..models import load
from ..models.image_text.text_encoder import Words
from ..models.layers import Layers
from ..models.own import OF_LAST_LAYER, OWN_OPTIONS
from ..models.pooled import Assembly
from ..models.surgery import Pyramid, create_finer_backbone
from ..models.wsol.registry import check_options, find_method
from ..options import check_names, suggest
from ..pooling import list_pools, registry
from .build import build_text_tower, embedding_arguments
from .callbacks import check_loggers
from .config import (
    ClipConfig,
    MetricConfig,
    ModelConfig,
    OptimizationConfig,
    Options,
    PreprocessingConfig,
    RunConfig,
    Sections,
    SupervisedConfig,
    default_config,
    flags_of,
)
from .recipes import Recipe, update
from .tasks.metric import build_metric_loss, build_mixing, build_zero_shot

SAR_WEIGHT = 0.01  # [SAR Eq. 12]
ROWS_WITH_LOSS = ("E", "F")  # of [SAR Table 1b]: the last blocks of rows A and C, with the loss
# Settings that only `cenote fit` uses.
FIT_SETTINGS = (
    "pool_lr_factor",
    "smoothing",
    "mixup",
    "cutmix",
    "sar",
    "sar_loss",
    "sar_schedule",
    "drloc",
    "drloc_pairs",
    "select",
)


def configure(
    command: str, recipe: Recipe | None = None, data: str = "", **given: Any
) -> RunConfig:
    """Combine the defaults of a command with a recipe and the options that are given.

    `given` has the options of the command line by name (None: not given), and whole sections of the
    tree as dicts: `model`, `options`, `augment`, and `settings` for `train`. `data` selects what a
    recipe says about one of its benchmarks.
    """
    given = {key: value for key, value in given.items() if value is not None}
    names = [name for name, *_ in flags_of(command)]
    check_names(f"cenote {command}", given, [*names, "model", "augment", "options", "settings"])
    weights, freeze, scratch = (given.get(key) for key in ("weights", "freeze", "scratch"))
    changes = _sections(command, given)
    _refuse(_conflicts(command, recipe, given, changes))
    if recipe is not None:
        base = recipe.on(data).config
        if not hasattr(base.augment, "cutout"):
            changes["augment"].pop("cutout", None)
        if changes["model"].get("stride") == 1:  # then nothing is left that could be dilated
            changes["model"].setdefault("no_dilation", False)
    elif command == "fit" and weights is not None and Path(weights).is_dir():
        base = _run_config(Path(weights), changes["model"])
        changes["model"].pop("img_size", None)
    else:
        base = default_config(command, bool(freeze), bool(scratch))
        if wsol := changes["model"].get("wsol"):
            changes["model"].setdefault("pool", find_method(wsol).pool)
    if command == "metric":
        base = _drop_replaced(base, changes)
    try:
        config = update(base, changes)
    except ValueError as error:
        raise ValueError(_with_flags(str(error), command, given)) from error
    config = _start(config, recipe)
    config = _complete(config, recipe, changes)
    validate(config)
    try_out(config)
    return config


def _with_flags(message: str, command: str, given: Options) -> str:
    """Name the options of a message as they are typed: --crop instead of augment.min_scale."""
    paths = {"train.lr": "lr", "augment.size": "size", "model.img_size": "size"}
    paths |= {f"{section}.{item.name}": name for name, section, item, _ in flags_of(command)}
    for path, name in paths.items():
        if name in given and not path.startswith("."):  # that of a shortcut
            flag = f"--{name.replace('_', '-')}"
            message = re.sub(rf"\b{re.escape(path)}\b(\.\w+)*", flag, message)
    return message.replace("train.", "--settings ").replace("options.", "--options ")


def _sections(command: str, given: Options) -> Sections:
    """Sort the given options into the sections of the tree."""
    sections: Sections = {
        "model": dict(given.get("model", {})),
        "train": {},
        "options": {},
        "augment": dict(given.get("augment", {})),
    }
    for name, section, item, _ in flags_of(command):
        if section and name in given:
            sections[section][item.name] = given[name]
    if given.get("last_block") in ROWS_WITH_LOSS:
        sections["train"].setdefault("sar", SAR_WEIGHT)
    sections["train"] |= given.get("settings", {})
    sections["options"] |= given.get("options", {})
    if given.get("scratch"):
        sections["model"]["pretrained"] = False
    if "size" in given:
        sections["augment"]["size"] = sections["model"]["img_size"] = given["size"]
    rates = sections["options"].get("rates", ())
    if len(rates) == 1 and not given.get("freeze"):
        del sections["options"]["rates"]
        sections["train"]["lr"] = rates[0]
    return sections


def _conflicts(
    command: str, recipe: Recipe | None, given: Options, changes: Sections
) -> Iterator[str]:
    """Yield what is wrong with options that are given together, or with a recipe."""
    starts = [name for name in ("freeze", "scratch") if given.get(name)]
    folder = given.get("weights")
    if "scratch" in starts and folder is not None and command != "fit":
        yield "--scratch starts from random weights: leave out it or --weights"
    if "batch" in changes["train"] and changes["options"].get("classes_per_batch"):
        yield "a batch is classes_per_batch x images_per_class: leave out batch or classes_per_batch"
    if recipe is not None:
        yield from _recipe_conflicts(command, recipe, given, starts)
    elif starts and command == "fit" and folder is not None and Path(folder).is_dir():
        yield (
            f"{folder} is a saved model, of which all weights are trained: leave out --freeze and "
            "--scratch (--freeze takes a file of a backbone's weights)"
        )


def _recipe_conflicts(
    command: str, recipe: Recipe, given: Options, starts: list[str]
) -> Iterator[str]:
    name = recipe.name
    if recipe.config.command != command:
        right = f"cenote {recipe.config.command} --recipe {name}"
        yield f"{name} is not a recipe of cenote {command}: {right}"
    if starts:
        yield f"{name} says what is trained: leave out {starts[0]}"
    if command in ("dino", "moco") and recipe.start is not None:
        yield f"{name}: cenote {command} starts from random weights: no 'start'"
    if recipe.start is not None and "weights" not in given:
        yield (
            f"{name} starts from a trained model: give the folder of a run of {recipe.start}, or "
            "its authors' checkpoint, by --weights"
        )
    if given.get("cutout") and not hasattr(recipe.config.augment, "cutout"):
        yield f"the augmentation of {name} has no Cutout: leave out cutout"


def _run_config(folder: Path, changes: Options) -> RunConfig:
    """Return the configuration that trains a saved model further."""
    saved = load(folder)
    block = saved.config.get("last_block")
    if changes.get("last_block", block) != block:
        raise ValueError(f"{folder} keeps the last block that it has: leave out --last-block")
    config = update(default_config("fit"), {"model": saved.config})
    own = saved.backbone.preprocessing
    preprocessing = PreprocessingConfig(own.size, own.crop, own.interpolation, own.mean, own.std)
    return replace(config, preprocessing=preprocessing)


def _drop_replaced(config: RunConfig, changes: Sections) -> RunConfig:
    """Reset options of a recipe that belong to a loss, mixing or protocol that is replaced."""
    options, given, replaced = config.options, changes["options"], set[str]()
    if given.get("loss", options.loss) != options.loss:
        replaced |= {"loss_options", "miner", "miner_options"}
    if given.get("rival") or given.get("metrix") == ():
        replaced |= {"metrix", "mix", "mix_options"}
    if given.get("metrix"):
        replaced |= {"rival"}
        if options.rival:
            replaced |= {"mix_options"}
    replaced |= {"conventional": {"repeats"}, "fair": {"validate"}}.get(
        given.get("protocol", ""), set()
    )
    if "batch" in changes["train"]:
        replaced |= {"classes_per_batch"}
    default = MetricConfig()
    defaults = {name: getattr(default, name) for name in replaced}
    return replace(config, options=replace(options, **defaults))


def _start(config: RunConfig, recipe: Recipe | None) -> RunConfig:
    """Decide what the weights are: of the backbone, or of a whole model."""
    model = config.model
    if model.weights is None:
        if config.command == "clip" and model.backbone in WITHOUT_WEIGHTS:
            model = replace(model, pretrained=False)
        return replace(config, model=model)
    whole = model.weights.is_dir() and config.command != "clip"
    if whole or (recipe is not None and recipe.start is not None):
        model = replace(model, start=model.weights, weights=None)
    if not model.freeze:
        model = replace(model, pretrained=False)
    return replace(config, model=model)


def _complete(config: RunConfig, recipe: Recipe | None, changes: Sections) -> RunConfig:
    """Adapt defaults to what is given: shorter warm-ups, larger batches, losses with proxies."""
    model, train, options = config.model, config.train, config.options
    if "epochs" in changes["train"] and "warmup" not in changes["train"]:
        train = replace(train, warmup=min(train.warmup, train.epochs / 5))
    if model.freeze and model.tokens == "summary" and "pool_lr_factor" not in changes["train"]:
        # The small factor is for attention over positions; over layers it would stay uniform.
        train = replace(train, pool_lr_factor=1.0)
    if recipe is None and config.command in ("dino", "moco", "clip"):
        adapted: Options = {"warmup": min(train.warmup, train.epochs / 10)}
        if config.command != "clip":  # the papers' learning rates are for 256 images
            adapted["lr"] = train.lr * max(train.batch / 256, 1)
        adapted = {k: v for k, v in adapted.items() if k not in changes["train"]}
        train = replace(train, **adapted)
    if isinstance(options, MetricConfig):
        if "mix" in changes["options"] and not options.metrix:
            hint = {"mochi": "; MoCHi has --mix-options pairs=neg-neg"}.get(options.rival or "", "")
            raise ValueError(f"--mix says which pairs Metrix mixes: --metrix feature{hint}")
        # GSP is sharp (eps 5) for losses of pairs and soft (0.5) for those with proxies.
        if model.pool == "gsp" and "eps" not in model.pool_options and _uses_proxies(options):
            model = replace(model, pool_options={**model.pool_options, "eps": 0.5})
        if config.augment.size is None and isinstance(model.img_size, int):
            augment = replace(config.augment, size=model.img_size)
            config = replace(config, augment=augment)
    return replace(config, model=model, train=train)


def _uses_proxies(options: MetricConfig) -> bool:
    with torch.random.fork_rng(devices=()):
        return build_metric_loss(options, 2).proxied


def parse_pairs(pairs: Iterable[str]) -> Options:
    """Read `gamma=2 heads=4` as {"gamma": 2, "heads": 4}, each value as YAML reads it."""
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"an option is KEY=VALUE, for example gamma=2; got '{pair}'")
        value = yaml.safe_load("null" if text.lower() == "none" else text)
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)  # YAML reads 1e-4 as text
        values[key.strip().replace("-", "_")] = value
    return values


def with_values(config: RunConfig, values: Options) -> RunConfig:
    """Return the configuration with other values of `train`, the learning rate, or Cutout."""
    train = {key: value for key, value in values.items() if key not in ("lr", "cutout")}
    changes: Sections = {"train": train}
    if "cutout" in values:
        changes["augment"] = {"cutout": values["cutout"]}
    if "lr" in values:
        if config.model.freeze and isinstance(config.options, SupervisedConfig):
            changes["options"] = {"rates": (values["lr"],)}
        else:
            train["lr"] = values["lr"]
    config = update(config, changes)
    validate(config)
    return config


def validate(config: RunConfig) -> None:
    """Raise ValueError with the first problem of a configuration; nothing is built."""
    _refuse(_problems(config))
    check_loggers(config.train.log)


def _refuse(problems: Iterator[str]) -> None:
    for message in problems:
        raise ValueError(message)


def _problems(config: RunConfig) -> Iterator[str]:
    model, options = config.model, config.options
    pools = [*list_pools(), "own", "cls"]
    if model.pool not in pools:
        yield f"no pool '{model.pool}'{suggest(model.pool, pools)}"
    if model.pool == "own":
        check_names(model.pool, model.pool_options, OWN_OPTIONS)
    elif model.pool != "cls":
        check_names(model.pool, model.pool_options, registry.options(model.pool))
    if model.freeze and model.start is not None:
        yield "--freeze takes a file of a backbone's weights, not the folder of a run"
    if model.freeze and not model.pretrained and model.weights is None:
        yield (
            "a frozen backbone needs trained weights: freeze and scratch exclude each other "
            "(--backbone lite0 has weights, or give --weights)"
        )
    if model.freeze and config.train.keep_epochs:
        yield "--keep-epochs cannot be combined with --freeze: train once for each number of --epochs"
    if config.train.keep_epochs and max(config.train.keep_epochs) > config.train.epochs:
        yield f"--keep-epochs must be at most {config.train.epochs}, the last epoch"
    if model.freeze and model.depth:
        yield "a frozen backbone keeps its blocks: --depth excludes --freeze"
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
        batch, weights = config.train.batch, model.weights
        if batch < 2:
            yield f"images are compared with each other: batch must be at least 2, got {batch}"
        if weights is not None and weights.is_dir():
            yield f"--weights takes a file of a backbone's weights, got {weights}"


def _fit_problems(config: RunConfig) -> Iterator[str]:
    model, train = config.model, config.train
    if model.combine == "concat" and _count_vectors(model) == 1:
        pool = "cls" if model.tokens == "cls" else model.pool
        yield (
            f"--combine concat needs several vectors, '{pool}' makes one of an image: "
            "--pool simpool --pool-options k=2, for instance"
        )
    yield from _wsol_problems(config)
    if not model.freeze:
        if len(config.options.rates) > 1:
            yield "several learning rates need --freeze: give one --lr"
        return
    if model.fpn:
        yield "a feature pyramid must be trained: --fpn excludes --freeze (--stride works)"
    if model.last_block or train.sar:
        yield "SAR changes how a backbone attends: --sar and --last-block exclude --freeze"
    if train.drloc:
        yield "DRLoc changes the tokens of a backbone: --drloc excludes --freeze"
    if getattr(config.augment, "cutout", 0):
        yield "frozen features are computed once from whole images: --cutout excludes --freeze"
    if train.select != "accuracy":
        yield "with --freeze accuracy selects the epoch: --select boxes and pixels exclude it"


def _wsol_problems(config: RunConfig) -> Iterator[str]:
    model = config.model
    if config.task == "jsd" and (model.wsol or config.train.drloc):
        yield "jsd compares views of an image by a loss of its own: leave out --wsol and --drloc"
    if model.wsol is None:
        if model.wsol_options:
            yield "--wsol-options are those of --wsol: give a method"
        return
    check_options(model.wsol, model.wsol_options)
    if model.freeze and find_method(model.wsol).changes_images:
        yield f"--wsol {model.wsol} hides parts of images, from which features are computed once: no --freeze"
    if model.pool in ("cls", "own") or model.tokens in ("cls", "summary"):
        yield f"--wsol {model.wsol} is for pools over positions: --pool {find_method(model.wsol).pool}"


def _count_vectors(model: ModelConfig) -> int:
    if "cls" in (model.pool, model.tokens):
        return 1
    defaults = {name: p.default for name, p in registry.options(model.pool).items()}
    return int({"k": 1, **defaults, **model.pool_options}["k"])


def _metric_problems(config: RunConfig, options: MetricConfig) -> Iterator[str]:
    model = config.model
    if options.miner_options and not options.miner:
        yield "--miner-options are those of --miner: give one"
    if options.rival and options.metrix:
        yield "Metrix and its rivals exclude each other: leave out --metrix or --rival"
    if options.mix_options and not (options.rival or options.metrix):
        yield "options of mixing need something to mix: --metrix feature, for instance"
    if options.classes_per_batch and not options.images_per_class:
        yield "classes_per_batch needs images_per_class of at least 1"
    if options.learners and (options.metrix or options.rival or options.xbm):
        yield "D&C compares the images of a cluster only: --learners excludes --metrix, --rival, --xbm"
    if options.joint_epochs and not options.learners:
        yield "--joint-epochs are the last epochs of D&C: they need --learners"
    if options.xbm_after and not options.xbm:
        yield "xbm_after is the first step of a memory: it needs --xbm, its size"
    if options.repeats > 1 and options.protocol != "fair":
        yield "--repeats is how often the models of the fair protocol are trained: --protocol fair"
    if options.test == "images" and options.validate in ("classes", "fifth"):
        yield "--test images trains on all classes: select the epoch by --validate test or last"
    if options.protocol == "fair" and options.validate != "classes":
        yield "the fair protocol selects by the classes that a fold holds out: no --validate"
    if options.embedding_norm and not embedding_arguments(config):
        yield "no embedding follows a pool whose local vectors have dim in all: no --embedding-norm"
    if options.warm_up >= config.train.epochs:
        epochs = f"{options.warm_up:g} of {config.train.epochs} epochs"
        yield f"the backbone would stay frozen for {epochs}: --freeze does that in minutes"
    pool, remedy = model.pool, "--pool gsp"
    if model.tokens == "cls":
        pool, remedy = "cls", "--tokens patches"
    if options.zero_shot and pool != "gsp":
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
    with torch.random.fork_rng(devices=()):
        Assembly(
            tokens=model.tokens, feature_layers=model.feature_layers, norm=model.norm, fpn=model.fpn
        )
        if model.feature_layers and model.pool == "own":
            raise ValueError(OF_LAST_LAYER)
        if model.stride != 1 or model.fpn is not None or model.feature_layers:
            backbone = create_finer_backbone(
                model.backbone,
                model.stride,
                model.no_dilation,
                img_size=model.img_size,
                **model.backbone_options,
            )
            if model.fpn is not None:
                Pyramid(backbone, model.fpn, dim=1)
            if model.feature_layers:
                if model.depth:
                    backbone.set_depth(model.depth)
                Layers(backbone, model.feature_layers, model.tokens == "summary")
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
