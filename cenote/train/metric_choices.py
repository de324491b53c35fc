"""From what a user asks for to a model, images and settings of metric learning."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..data.transforms import train_transform
from ..models import PooledModel, create_model, load
from ..models.frozen import FrozenBackbone, PooledHead
from ..models.surgery.stride import create_finer_backbone
from ..options import check_names
from ..pooling import registry
from ..predict.distributed import world
from .augment import augmentation
from .choices import given_only
from .config import OptimizationConfig
from .metric_options import MetricOptions
from .recipe_sets import on_data
from .recipes import Recipe, parse_fields, parse_settings

FROZEN = OptimizationConfig(epochs=30, batch=128, lr=1e-3, weight_decay=1e-4, warmup=1)
WHOLE = OptimizationConfig(epochs=20, batch=64, lr=1e-4, weight_decay=1e-4, warmup=1, clip=10.0)
UNREAD = (
    "smoothing",
    "mixup",
    "cutmix",
    "sar",
    "sar_loss",
    "sar_schedule",
    "select",
)  # settings of `cenote fit`
SCRATCH = OptimizationConfig(epochs=100, batch=64, lr=1e-3, weight_decay=0.05, warmup=5, clip=10.0)


@dataclass(frozen=True)
class MetricChoices:
    """What `cenote metric` was asked for."""

    backbone: str = "lite0"
    pool: str = "gsp"
    tokens: str = "patches"
    weights: Path | None = None  # of the backbone, or a run that this one begins with
    freeze: bool = False
    scratch: bool = False
    size: int | None = None
    pool_options: dict[str, Any] = field(default_factory=dict)
    model_options: dict[str, Any] = field(
        default_factory=dict
    )  # others of create_model, from a recipe
    augment: dict[str, Any] = field(
        default_factory=dict
    )  # of a recipe: arguments of `augmentation`
    preprocessing: dict[str, Any] = field(default_factory=dict)
    options: MetricOptions = field(default_factory=MetricOptions)
    settings: OptimizationConfig = WHOLE

    def __post_init__(self) -> None:
        if self.freeze and self.scratch:
            raise ValueError(
                "a frozen backbone needs trained weights: freeze and scratch exclude each other"
            )
        if self.freeze and ("input" in self.options.metrix or self.options.rival == "i-mix"):
            raise ValueError(
                "mixed images go through the backbone: no mixing of input with --freeze (feature works)"
            )
        if self.freeze and self.weights is not None and self.weights.is_dir():
            raise ValueError(
                "--freeze takes the file of a backbone's weights, not the folder of a run"
            )
        if self.scratch and self.weights is not None:
            raise ValueError("--scratch begins with random weights: leave it out, or --weights")
        pool = "cls" if self.tokens == "cls" else self.pool
        if self.options.zero_shot and pool != "gsp":
            way = "--pool gsp" if self.tokens != "cls" else "--tokens patches"
            raise ValueError(
                f"the zero-shot loss reads the histogram that GSP makes, '{pool}' has none: {way}"
            )
        if self.freeze and (self.options.warm_up or self.options.freeze_bn):
            raise ValueError(
                "a frozen backbone neither warms up nor moves: leave out --warm-up and --freeze-bn"
            )

    def check(self) -> None:
        """Whatever is wrong is told before the images are read."""
        if self.weights is not None and not self.weights.exists():
            raise FileNotFoundError(2, "no such weights", str(self.weights))
        if self.settings.accumulate > 1:
            raise ValueError(
                "images are compared with all others of their step: accumulate must be 1"
            )
        if self.options.embedding_norm and not self.embedding:
            raise ValueError(
                "no embedding follows a pool with local as large as dim: leave out --embedding-norm"
            )
        if self.options.warm_up >= self.settings.epochs:
            epochs = f"{self.options.warm_up:g} of {self.settings.epochs} epochs"
            raise ValueError(
                f"the backbone would wait for {epochs} and never learn: --freeze does that in minutes"
            )
        if self.settings.workers < 0:
            raise ValueError(f"workers must be at least 0, got {self.settings.workers}")
        if self.size is not None and self.size < 1:
            raise ValueError(f"size is a number of pixels from 1, got {self.size}")
        unread = [
            name
            for name in UNREAD
            if getattr(self.settings, name) != getattr(OptimizationConfig(), name)
        ]
        if unread:
            raise ValueError(
                f"metric learning does not use {', '.join(unread)}: leave out such settings"
            )
        if self.pool != "cls":
            check_names(self.pool, self.pool_options, registry.options(self.pool))
        self.options.check()

    def training(self, classes: int, images: int) -> tuple[OptimizationConfig, int]:
        """OptimizationConfig whose batch is what a step holds, and how many classes it holds (0: as they come).

        It holds two classes at least, and no more than there are.
        """
        own, batch = self.options, self.settings.batch
        if not own.images_per_class:
            return dataclasses.replace(self.settings, batch=min(batch, images)), 0
        if classes < world():
            raise ValueError(
                f"{classes} classes to learn from cannot be shared among {world()} processes: start fewer"
            )
        count = own.classes_per_batch or max(min(batch, images) // own.images_per_class, 2)
        count = min(count, classes)
        count -= count % world()  # each process has whole classes
        return dataclasses.replace(self.settings, batch=count * own.images_per_class), count

    @property
    def embedding(self) -> dict[str, Any]:
        """What follows the pool: nothing, if it has embedded every position before (002 4.4)."""
        if self.tokens != "cls" and self.pool_options.get("local") == self.options.dim:
            return {}
        return {"embedding_dim": self.options.dim, "embedding_norm": self.options.embedding_norm}

    def model(self) -> PooledModel:
        """Backbone, pool and embedding, all to be trained."""
        return self.start()[0]

    def start(self) -> tuple[PooledModel, bool]:
        """The model, and whether its pool is one that a run has trained."""
        torch.manual_seed(self.settings.seed)
        run = self.weights if self.weights is not None and self.weights.is_dir() else None
        model = create_model(
            self.backbone, self.pool, 0, pretrained=not self.scratch and self.weights is None,
            weights=None if run else self.weights, tokens=self.tokens, img_size=self.size,
            pool_options=self.pool_options, **self.embedding, **self.model_options,
        )  # fmt: skip
        size = {} if self.size is None else {"size": self.size}
        own, trained = model.backbone.preprocessing, False
        if run is not None:
            saved = load(run)
            own = saved.backbone.preprocessing
            trained = _begin_with(model, saved, run)
        model.backbone.preprocessing = dataclasses.replace(own, **{**self.preprocessing, **size})
        return model, trained

    def frozen(self) -> FrozenBackbone:
        torch.manual_seed(self.settings.seed)
        backbone = create_finer_backbone(
            self.backbone, 1, pretrained=True, weights=self.weights, img_size=self.size
        )
        if self.size is not None:
            backbone.preprocessing = dataclasses.replace(backbone.preprocessing, size=self.size)
        return FrozenBackbone(backbone)

    def top(self, frozen: FrozenBackbone) -> PooledHead:
        """Pool and embedding over a frozen backbone."""
        torch.manual_seed(self.settings.seed)
        return frozen.create_head(
            self.pool, 0, self.tokens, pool_options=self.pool_options, **self.embedding
        )

    def augmentation(self, model: PooledModel) -> Any:
        """Random crops, gentle for trained weights: they know whole objects."""
        own = model.backbone.preprocessing
        if self.augment:
            asked = {key: value for key, value in self.augment.items() if key != "kind"} | {
                "size": own.size
            }
            return augmentation(mean=own.mean, std=own.std, **asked)
        scale = (0.08, 1.0) if self.scratch else (0.35, 1.0)
        return train_transform(own.size, own.mean, own.std, own.interpolation, scale)


def _begin_with(model: PooledModel, saved: PooledModel, run: Path) -> bool:
    """The backbone of a run, and its pool and embedding where they are the same; whether all of the pool is."""
    try:
        model.backbone.load_state_dict(saved.backbone.state_dict())
    except RuntimeError as error:
        raise ValueError(
            f"{run} holds another backbone than '{model.backbone.name}' as it is asked for"
        ) from error
    own = model.state_dict()
    rest = {
        name: value
        for name, value in saved.state_dict().items()
        if not name.startswith(("backbone.", "head."))
        and name in own
        and own[name].shape == value.shape
    }
    if saved.config["pool"] != model.config["pool"]:
        return False
    model.load_state_dict(rest, strict=False)
    return all(name in rest for name in own if name.startswith("pool."))


def metric_choices(
    recipe: Recipe | None,
    data: str,
    model: dict[str, Any],
    options: dict[str, Any],
    settings: dict[str, Any],
) -> MetricChoices:
    """What was asked for on `data`, a benchmark or not; what was left open is the recipe's, or usual.

    `model`: fields of MetricChoices. GSP is sharp (eps 5) for losses of pairs and soft (0.5) for those with proxies,
    as published, unless its options say otherwise.
    """
    given = given_only(model)
    if "batch" in settings and options.get("classes_per_batch"):
        raise ValueError(
            "a batch is classes_per_batch x images_per_class: leave out one of batch and classes_per_batch"
        )
    kinds = (
        FROZEN if given.get("freeze") else SCRATCH if given.get("scratch") else WHOLE,
        MetricOptions(),
    )
    if recipe is None:
        usual = (
            {"proxy_rate": 10.0} if given.get("freeze") else {}
        )  # there the rate is ten times as large
        asked = parse_fields(kinds[1], usual | options, "metric", "")
        made = MetricChoices(
            options=asked, settings=parse_settings(settings, "metric", kinds[0]), **given
        )
    else:
        made = _of_recipe(on_data(recipe, data), given, options, settings)
    if "mix" in options and not made.options.metrix:
        own = (
            "; of MoCHi, --mix-options pairs=neg-neg does" if made.options.rival == "mochi" else ""
        )
        raise ValueError(
            f"--mix says which pairs Metrix mixes: --metrix feature, for instance{own}"
        )
    if made.pool == "gsp" and "eps" not in made.pool_options and asked_proxies(made.options):
        made = dataclasses.replace(made, pool_options={**made.pool_options, "eps": 0.5})
    return made


def _of_recipe(
    recipe: Recipe, given: dict[str, Any], options: dict[str, Any], settings: dict[str, Any]
) -> MetricChoices:
    if recipe.command != "metric":
        raise ValueError(
            f"{recipe.name} is no metric learning: cenote {recipe.command} --recipe {recipe.name}"
        )
    if given.get("freeze") or given.get("scratch"):
        raise ValueError(
            f"{recipe.name} says itself what is trained and from where: leave out freeze and scratch"
        )
    by_class = (
        {"classes_per_batch": None} if "batch" in settings else {}
    )  # a batch of the user's own
    own_options = {
        name: value
        for name, value in recipe.options.items()
        if name not in _replaced(options, recipe)
    }
    own = dict(recipe.model)
    pool = own.pop("pool", "gap")
    pool_options = own.pop("pool_options", {}) if given.get("pool", pool) == pool else {}
    fields: dict[str, Any] = {
        "backbone": own.pop("backbone"),
        "pool": pool,
        "tokens": own.pop("tokens", "patches"),
        "scratch": not own.pop("pretrained", False) and "weights" not in given,
        "size": own.pop("img_size", recipe.augment.get("size")),
        "augment": recipe.augment,
        "preprocessing": recipe.preprocessing,
        "options": parse_fields(
            MetricOptions(), {**own_options, **by_class, **options}, recipe.name, "options."
        ),
        "settings": parse_settings(settings, recipe.name, recipe.settings),
        "model_options": own,
    }
    chosen = {**pool_options, **given.pop("pool_options", {})}
    return MetricChoices(**{**fields, **given}, pool_options=chosen)


def _replaced(options: dict[str, Any], recipe: Recipe) -> set[str]:
    """What of a recipe goes with what the user puts in its place: options belong to their loss, mixing or protocol."""
    gone = {"conventional": {"repeats"}, "fair": {"validate"}}.get(
        options.get("protocol", ""), set[str]()
    )
    if options.get("loss", recipe.options.get("loss")) != recipe.options.get("loss"):
        gone |= {"loss_options"}
    if options.get("rival") or options.get("metrix") == ():
        gone |= {"metrix", "mix", "mix_options"}
    if options.get("metrix"):
        gone |= {"rival"} | ({"mix_options"} if recipe.options.get("rival") else set())
    return gone


def asked_proxies(options: MetricOptions) -> bool:
    with torch.random.fork_rng(devices=()):
        return options.make_loss(2).proxied
