"""Configurations with the papers' numbers by name, such as "simpool/vit-small-supervised"."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from ..data.benchmarks import find_benchmark
from ..options import suggest
from .config import (
    AUGMENTATIONS,
    TASKS,
    MetricConfig,
    ModelConfig,
    MultiCropConfig,
    OptimizationConfig,
    Options,
    PlainCropConfig,
    RunConfig,
    Sections,
    SupervisedConfig,
    WsolConfig,
)
from .typed_fields import read_fields
from .validate import try_loss, validate

SECTIONS = ("model", "train", "options", "augment", "preprocessing")
KEYS = ("task", "start", *SECTIONS, "data", "sets", "search", "cost", "paper", "left_out")
REQUIRED = ("model", "train", "data", "paper")
SET_KEYS = ("model", "train", "options", "cost", "paper")  # what may differ on another data set
MODEL_KEYS = tuple(field.name for field in dataclasses.fields(ModelConfig))
COLUMNS = ("recipe", "network", "pool", "data", "epochs", "batch", "the paper's figure")


@dataclass(frozen=True)
class Recipe:
    """A configuration, the data it is for, and what its paper reports."""

    name: str
    about: str  # the comment at the top of the file
    config: RunConfig
    content: Options  # the file as YAML reads it

    @property
    def data(self) -> str:
        return str(self.content["data"])

    @property
    def start(self) -> str | None:
        """The recipe whose trained model this one starts from."""
        return self.content.get("start")

    @property
    def paper(self) -> Options:
        return dict(self.content["paper"])

    @property
    def cost(self) -> Options:
        return dict(self.content.get("cost", {}))

    @property
    def search(self) -> Options:
        """What the paper searched for, and where."""
        return dict(self.content.get("search", {}))

    @property
    def sets(self) -> Sections:
        """By benchmark: the sections that differ on it."""
        return dict(self.content.get("sets", {}))

    def on(self, data: str) -> Recipe:
        """Return the recipe for this benchmark; unchanged if it does not name the benchmark."""
        if data not in self.sets:
            return self
        changes, content = self.sets[data], dict(self.content)
        with _errors_of(f"{self.name} on {data}"):
            config = update(self.config, changes)
            _check(config)
        for key in ("cost", "paper"):
            content[key] = {**content.get(key, {}), **changes.get(key, {})}
        return dataclasses.replace(self, config=config, content=content | {"data": data})

    def scaled_down(self, size: int = 64) -> Recipe:
        """Return the same training with a small network, small images and two epochs."""
        changes: Options = {"data": "world/tiny", "sets": {}, "start": None}
        return dataclasses.replace(
            self,
            config=scaled_down(self.config, size, self.name),
            content={**self.content, **changes},
        )


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with Cenote."""
    paths = (files("cenote") / "recipes").iterdir()
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in paths
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def load_recipe(name: str | Path) -> Recipe:
    """Load a recipe by name, or from a YAML file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise FileNotFoundError(2, "no such recipe file", str(path))
        return parse_recipe(path.read_text(encoding="utf-8"), str(path))
    names = list_recipes()
    if str(name) not in names:
        hint = suggest(str(name), names)
        raise ValueError(f"no recipe '{name}'{hint} (cenote recipes lists them; or a .yaml file)")
    file = files("cenote").joinpath("recipes", f"{name}.yaml")
    return parse_recipe(file.read_text(encoding="utf-8"), str(name))


def parse_recipe(text: str, name: str) -> Recipe:
    """Read a recipe; any error is a ValueError that names the recipe and the key."""
    with _errors_of(name):
        try:
            content = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"not readable YAML: {' '.join(str(error).split())[:200]}") from error
        if not isinstance(content, dict):
            raise ValueError(f"a recipe has keys: {', '.join(REQUIRED)}")
        _check_keys(content, KEYS)
        for key in REQUIRED:
            if key not in content:
                raise ValueError(f"key '{key}' is missing")
        for key in (*SECTIONS, "sets", "search", "cost", "paper"):
            _check_section(content, key)
        task = content.get("task", "supervised")
        tasks = [name for name in TASKS if name != "clip"]
        if task not in tasks:
            raise ValueError(f"no task '{task}'{suggest(task, tasks)} ({', '.join(tasks)})")
        if TASKS[task] is SupervisedConfig and content.get("options"):
            raise ValueError(f"the task '{task}' has no options of its own")
        if not isinstance(content["model"].get("backbone"), str):
            raise ValueError("model.backbone must be the name of a backbone")
        _check_model(content["model"])
        _check_data(content["data"])
        augment = _default_augmentation(task, content.get("augment"))
        base = RunConfig(task, ModelConfig(), OptimizationConfig(), TASKS[task](), augment)
        config = update(base, content)
        _check(config)
    comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
    about = "\n".join(line.removeprefix("#").removeprefix(" ").rstrip() for line in comment)
    recipe = Recipe(name, about, config, content)
    for data, changes in recipe.sets.items():
        with _errors_of(f"{name}: sets.{data}"):
            _check_data(data)
            _check_section(recipe.sets, data)
            _check_keys(changes, SET_KEYS)
            _check_model(changes.get("model", {}))
            for key in changes:
                _check_section(changes, key)
            recipe.on(data)
    return recipe


def update(config: RunConfig, sections: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with other values in the sections that are named.

    Options belong to their pool: another pool drops those of the one before it.
    """
    given, model = sections.get("model", {}), config.model
    model_changes = {key: value for key, value in given.items() if key in MODEL_KEYS}
    timm_options = {k: v for k, v in given.items() if k not in (*MODEL_KEYS, "num_classes")}
    if model_changes.get("pool", model.pool) != model.pool:
        model = dataclasses.replace(model, pool_options={})
    for name, changes in (
        ("pool_options", model_changes.get("pool_options", {})),
        ("backbone_options", timm_options),
    ):
        if isinstance(changes, dict):
            model_changes[name] = {**getattr(model, name), **changes}
    augment = {k: v for k, v in sections.get("augment", {}).items() if k != "kind"}
    return dataclasses.replace(
        config,
        model=read_fields(model, model_changes, "model."),
        train=read_fields(config.train, sections.get("train", {}), "train."),
        options=read_fields(config.options, sections.get("options", {}), "options."),
        explicit_options=config.explicit_options | set(sections.get("options", {})),
        augment=read_fields(config.augment, augment, "augment."),
        preprocessing=read_fields(
            config.preprocessing, sections.get("preprocessing", {}), "preprocessing."
        ),
    )


def _check_model(model: Options) -> None:
    """Raise if a key looks like a misspelt one; other unknown keys are arguments of timm's."""
    for key in model:
        near = difflib.get_close_matches(key, MODEL_KEYS, 1, 0.8)
        if near and key not in MODEL_KEYS:
            raise ValueError(f"no key 'model.{key}'; did you mean '{near[0]}'?")


def _default_augmentation(task: str, section: Options | None) -> Any:
    """Return the augmentation of the kind that a recipe names."""
    if task == "metric" and not section:
        return PlainCropConfig()
    kinds = ("multicrop",) if task in ("dino", "moco") else ("crop", "wsol")
    kind = (section or {}).get("kind", kinds[0])
    if kind not in kinds:
        hint = suggest(str(kind), kinds)
        raise ValueError(f"no kind of augmentation '{kind}'{hint} ({', '.join(kinds)})")
    return AUGMENTATIONS[kind]()


def _check(config: RunConfig) -> None:
    validate(config)
    # Losses of pytorch-metric-learning need a package that reading a recipe does not.
    if isinstance(config.options, MetricConfig) and not config.options.loss.startswith("pml/"):
        try_loss(config.options)


def _check_keys(content: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in content:
        if key not in keys:
            raise ValueError(f"no key '{key}'{suggest(key, keys)}")


def _check_section(content: Mapping[str, Any], key: str) -> None:
    if not isinstance(content.get(key, {}), dict):
        raise ValueError(f"'{key}' must hold keys, got {content[key]!r}")


def _check_data(name: Any) -> None:
    if not str(name).startswith("world/"):
        find_benchmark(str(name))


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Open the message of a ValueError with the name of a recipe."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


# Small versions, for tests and for a first try.

EPOCHS, BATCH, PARTS = 2, 16, 2
# The smallest network of each family. `depth` is create_model's: 12 + depth blocks.
SMALL_NETWORKS: Sections = {
    "resnet": {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]},
    "convnext": {"depths": [1, 1, 1, 1], "dims": [8, 8, 16, 16]},
    "vit": {"embed_dim": 24, "num_heads": 2, "depth": -10},
    "deit": {"embed_dim": 24, "num_heads": 2, "depth": -10},
}
SMALL_HEADS = {"out": 64, "hidden": 32, "bottleneck": 16}  # of DINO and MoCo
EPOCH_OPTIONS = ("warmup_t_epochs", "freeze_last")  # of DINO, in epochs
SMALL_METRIC = {
    "dim": 16,
    "xbm": 24,
    "xbm_after": 2,
    "classes_per_batch": 3,
    "warm_up": 0.5,
    "epoch_steps": 4,
}


def scaled_down(config: RunConfig, size: int, name: str = "") -> RunConfig:
    """Shrink sizes only: optimizer, schedule, augmentation and loss stay. Pretrained weights go.

    The learning rate of SGD and LARS shrinks with the batch; AdamW's stays.
    """
    model, train = config.model, config.train
    family = next((key for key in SMALL_NETWORKS if model.backbone.startswith(key)), None)
    if family is None:
        known = ", ".join(SMALL_NETWORKS)
        raise ValueError(f"{name}: '{model.backbone}' has no small version, but {known} have")
    sections: Sections = {
        "model": {**SMALL_NETWORKS[family], "pretrained": False},
        "augment": {"size": size},
        "options": {},
    }
    if family in ("vit", "deit"):
        sections["model"]["img_size"] = size
    if model.fpn:
        sections["model"]["fpn_dim"] = 16
    if isinstance(config.augment, WsolConfig):
        sections["augment"]["resize"] = round(size * 256 / 224)
    if isinstance(config.augment, MultiCropConfig):
        sections["augment"]["local_size"] = size // 2
    shrink = EPOCHS / train.epochs
    if config.task in ("dino", "moco"):
        options = asdict(config.options)
        sections["options"] = {k: v for k, v in SMALL_HEADS.items() if k in options}
        sections["options"] |= {k: options[k] * shrink for k in EPOCH_OPTIONS if k in options}
    if isinstance(config.options, MetricConfig):
        options = asdict(config.options)
        sections["options"] = {k: v for k, v in SMALL_METRIC.items() if options[k]}
        # A tiny data set has classes for one model, not for the fair protocol's four.
        sections["options"] |= {"protocol": "conventional", "repeats": 1}
        if model.pool == "gsp":
            sections["model"]["pool_options"] = {"prototypes": 8}
    sections["train"] = {
        "epochs": EPOCHS,
        "batch": BATCH,
        "lr": train.lr * BATCH / train.batch,
        "accumulate": min(train.accumulate, PARTS),
        "warmup": train.warmup * shrink,
        "step_every": train.step_every * shrink,
        "patience": None,  # it would be longer than the run
    }
    if train.optimizer not in ("sgd", "momentum", "lars"):
        del sections["train"]["lr"]
    return update(config, sections)


# Recipes to read: a table of all, or one in full.


def recipe_page(name: str) -> str:
    """Return a recipe's comment (command, cost, figure) and its content as YAML."""
    recipe = load_recipe(name)
    content = {key: value for key, value in recipe_json(recipe).items() if value}
    body = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    return f"{recipe.name}\n\n{recipe.about}\n\n{body}".rstrip()


def recipe_json(recipe: Recipe) -> Options:
    """Return the keys of the file; of `train` the values that differ from the default."""
    default, train = asdict(OptimizationConfig()), asdict(recipe.config.train)
    always = ("epochs", "batch", "lr", "optimizer", "weight_decay")
    changed = {key: value for key, value in train.items() if value != default[key]}
    empty: Options = {"task": "supervised", "start": None, "left_out": []}
    content = {key: recipe.content.get(key, empty.get(key, {})) for key in KEYS}
    return content | {"train": changed | {key: train[key] for key in always}}


def recipes_json(name: str = "") -> Any:
    if name:
        recipe = load_recipe(name)
        return {"name": recipe.name, "about": recipe.about, **recipe_json(recipe)}
    recipes = map(load_recipe, list_recipes())
    return [{"name": recipe.name, **recipe_json(recipe)} for recipe in recipes]


def recipe_table(style: str = "text") -> str:
    """Return one row for each recipe, as text or Markdown."""
    rows = [_row(load_recipe(name)) for name in list_recipes()]
    if style == "markdown":
        marked = [[f"`{name}`", *cells] for name, *cells in rows]
        lines = [COLUMNS, ["---"] * len(COLUMNS), *marked]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    lines = [COLUMNS, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in lines)


def _row(recipe: Recipe) -> list[str]:
    model, train = recipe.config.model, recipe.config.train
    figures = recipe.paper.get("figures", {})
    figure = next((f"{value} ({name})" for name, value in figures.items()), "none printed")
    return [
        recipe.name,
        model.backbone,
        model.pool,
        recipe.data,
        str(train.epochs),
        str(train.batch),
        figure,
    ]
