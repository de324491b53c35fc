"""Configurations with the papers' numbers by name, such as "simpool/vit-small-supervised"."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field, fields, replace
from functools import cached_property
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import ValidationError
from pydantic.dataclasses import dataclass

from ..data.benchmarks import find_benchmark
from ..data.checks import read_yaml
from ..options import suggest
from .config import (
    AUGMENTATIONS,
    MULTI_CROPS,
    STRICT,
    TASKS,
    ModelConfig,
    OptimizationConfig,
    Options,
    PlainCropConfig,
    RunConfig,
    Sections,
)

Config = TypeVar("Config", bound=Any)
SetChanges = dict[Literal["model", "train", "options", "cost", "paper"], Options]
COLUMNS = ("recipe", "network", "pool", "data", "epochs", "batch", "the paper's figure")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Recipe:
    """The keys of a recipe's file, which docs/recipes.md explains, and what is made of them."""

    name: str
    about: str  # the comment at the top of the file
    changes: tuple[Sections, ...] = ()  # of the sections below
    task: Literal["supervised", "jsd", "head", "dino", "moco", "metric"] = "supervised"
    start: str | None = None  # the recipe whose trained model this one starts from
    model: Options
    train: Options
    options: Options = field(default_factory=dict)
    augment: Options = field(default_factory=dict)
    preprocessing: Options = field(default_factory=dict)
    data: str
    sets: dict[str, SetChanges] = field(default_factory=dict)  # by benchmark
    search: Options = field(default_factory=dict)  # what the paper searched for, and where
    cost: Options = field(default_factory=dict)
    paper: Options
    left_out: list[str] = field(default_factory=list)

    @cached_property
    def config(self) -> RunConfig:
        base = RunConfig(self.task, options=TASKS[self.task](), augment=self._augmentation())
        config = update(base, vars(self))
        for sections in self.changes:
            config = update(config, sections)
        return config

    @property
    def multiply_adds(self) -> float:
        """Multiply-adds to train on one image, all its views: forward and backward are three passes.

        A frozen backbone has one pass; a teacher has one more, of the large views.
        """
        passes = 1 if self.config.task == "head" or self.config.model.freeze else 3
        if self.config.command in ("dino", "moco"):
            passes += 1
        large = passes * self.cost["billion_multiply_adds"] * self.cost["views"]
        small = self.cost.get("small_billion_multiply_adds", 0) * self.cost.get("small_views", 0)
        return float(large + 3 * small) * 1e9

    def on(self, data: str) -> Recipe:
        """Return the recipe for this benchmark; unchanged if it does not name the benchmark."""
        if data not in self.sets:
            return self
        changes = self.sets[data]
        return replace(
            self,
            changes=(*self.changes, {str(key): value for key, value in changes.items()}),
            data=data,
            cost=self.cost | changes.get("cost", {}),
            paper=self.paper | changes.get("paper", {}),
        )

    def _augmentation(self) -> Any:
        """Return the augmentation of the kind that is named."""
        if self.task == "metric" and not self.augment:
            return PlainCropConfig()
        kinds = ("multicrop",) if self.task in ("dino", "moco") else ("crop", "wsol")
        kind = self.augment.get("kind", kinds[0])
        if kind not in kinds:
            hint = suggest(kind, kinds)
            raise ValueError(f"no kind of augmentation '{kind}'{hint} ({', '.join(kinds)})")
        return MULTI_CROPS.get(self.task) or AUGMENTATIONS[kind]()


def list_recipes() -> list[str]:
    """Return the names of the recipes that come with Cenote."""
    folder = files("cenote") / "recipes"
    return sorted(
        f"{group.name}/{file.name.removesuffix('.yaml')}"
        for group in folder.iterdir()
        if group.is_dir()
        for file in group.iterdir()
        if file.name.endswith(".yaml")
    )


def load_recipe(name: str | Path) -> Recipe:
    """Load a recipe by name, or from a YAML file."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return parse_recipe(path.read_text(encoding="utf-8"), str(path))
    names = list_recipes()
    if str(name) not in names:
        hint = suggest(str(name), names)
        raise ValueError(f"no recipe '{name}'{hint} (cenote recipes lists them; or a .yaml file)")
    file = files("cenote").joinpath("recipes", f"{name}.yaml")
    return parse_recipe(file.read_text(encoding="utf-8"), str(name))


def parse_recipe(text: str, name: str) -> Recipe:
    """Read a recipe; any error is a ValueError that names the recipe and the key."""
    comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
    about = "\n".join(line.removeprefix("#").removeprefix(" ").rstrip() for line in comment)
    names = [f.name for f in fields(Recipe) if f.name not in ("name", "about", "changes")]
    with _errors_of(name, names):
        content = read_yaml(text)
        if not isinstance(content, dict):
            raise ValueError(f"a recipe has keys: {', '.join(names)}")
        for key in content:
            if key not in names:
                hint = suggest(key, names) or f" ({', '.join(names)})"
                raise ValueError(f"no key '{key}'{hint}")
        recipe = Recipe(name=name, about=about, **content)
        if "backbone" not in recipe.model:
            raise ValueError("model.backbone must be the name of a backbone")
        _check(recipe.data, recipe.model)
        _ = recipe.config  # raises if a value is wrong
    for data, changes in recipe.sets.items():
        with _errors_of(f"{name}: sets.{data}", names):
            _check(data, changes.get("model", {}))
            _ = recipe.on(data).config
    return recipe


def _check(data: str, model: Options) -> None:
    """Raise if the benchmark is unknown, or if a key looks like a misspelt field of the model."""
    if not data.startswith("world/"):
        find_benchmark(data)
    names = [item.name for item in fields(ModelConfig)]
    for key in model:
        near = difflib.get_close_matches(key, names, 1, 0.8)
        if near and key not in names:
            raise ValueError(f"no key 'model.{key}'; did you mean '{near[0]}'?")


@contextmanager
def _errors_of(name: str, names: Iterable[str]) -> Iterator[None]:
    """Open the message of an error with the name of a recipe."""
    try:
        yield
    except RecursionError:
        raise ValueError(f"{name}: the YAML is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        message = str(error)
        if isinstance(error, yaml.YAMLError):
            message = f"not readable YAML: {' '.join(message.split())[:200]}"
        elif isinstance(error, ValidationError):
            message = explain(error, names)
        raise ValueError(f"{name}: {message}") from error


def update(config: RunConfig, sections: Mapping[str, Any]) -> RunConfig:
    """Return the configuration with other values in the sections that are named.

    Options belong to their pool: another pool drops those of the one before it. Keys of `model`
    that are not fields are arguments of timm's.
    """
    model, names = config.model, [item.name for item in fields(ModelConfig)]
    given = sections.get("model", {})
    changes = {key: value for key, value in given.items() if key in names}
    timm_options = {k: v for k, v in given.items() if k not in (*names, "num_classes")}
    if changes.get("pool", model.pool) != model.pool:
        common = () if changes["pool"] in ("cls", "own") else ("local",)  # of every pool
        kept = {k: v for k, v in model.pool_options.items() if k in common}
        model = replace(model, pool_options=kept)
    if isinstance(changes.get("pool_options"), dict):
        changes["pool_options"] = model.pool_options | changes["pool_options"]
    changes["backbone_options"] = model.backbone_options | timm_options
    augment = {k: v for k, v in sections.get("augment", {}).items() if k != "kind"}
    others = {
        name: read_fields(getattr(config, name), values, f"{name}.")
        for name, values in {**sections, "augment": augment}.items()
        if name in ("train", "options", "augment", "preprocessing")
    }
    explicit = config.explicit_options | set(sections.get("options", {}))
    model = read_fields(model, changes, "model.")
    return replace(config, model=model, explicit_options=explicit, **others)


def read_fields(base: Config, values: Mapping[str, Any], where: str = "") -> Config:
    """Return `base` with other values, each of its field's type; `where` opens error messages."""
    try:
        changed: Config = replace(base, **values)
    except ValidationError as error:
        raise ValueError(explain(error, vars(base), where)) from error
    return changed


def explain(error: ValidationError, names: Iterable[str], where: str = "") -> str:
    """Return the first problem of a dataclass with the fields `names` in one sentence."""
    unknown = ("unexpected_keyword_argument", "extra_forbidden")
    problems = sorted(error.errors(), key=lambda problem: problem["type"] not in unknown)
    problem, value = problems[0], problems[0]["input"]
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:  # an error of __post_init__
        return message
    key = where + ".".join(str(part) for part in problem["loc"] if part != "[key]")
    if problem["type"] in unknown:
        hint = suggest(problem["loc"][0], names) or f" ({', '.join(names)})"
        return f"no key '{key}'{hint}"
    if problem["type"] in ("missing", "missing_argument"):
        return f"key '{key}' is missing"
    hint = suggest(value, re.findall("'(.*?)'", message))
    # "Input should be a valid integer, unable to parse string as an integer"
    requirement = message.replace("Input should", "must").partition(", unable")[0]
    requirement = requirement.replace("greater than or equal to", "at least")
    requirement = requirement.replace("less than or equal to", "at most")
    return f"{key} {requirement.partition(', got')[0]}, got {value!r}{hint}"


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
    content = {k: v for k, v in asdict(recipe).items() if k not in ("name", "about", "changes")}
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
    figures = recipe.paper.get("figures", {}).items()
    figure = next((f"{value} ({name})" for name, value in figures), "none printed")
    sizes = [str(train.epochs), str(train.batch)]
    return [recipe.name, model.backbone, model.pool, recipe.data, *sizes, figure]
