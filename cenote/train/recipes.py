"""OptimizationConfig by name with the papers' numbers in them: `load_recipe("simpool/vit-small-supervised")`."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import yaml

from ..backbones import Preprocessing
from .config import OptimizationConfig

HERE = "recipes"  # beside the code: they come with the package
FIT, UNLABELLED = ("supervised", "jsd", "head"), ("dino", "moco")
TASKS = (*FIT, *UNLABELLED, "metric")
SETTINGS = ("model", "train", "options", "augment", "preprocessing")  # each holds keys of its own
KEYS = ("task", "start", *SETTINGS, "data", "sets", "search", "cost", "paper", "left_out")
NEEDED = ("model", "train", "data", "paper")
SUFFIXES = (".yaml", ".yml")
Fields = TypeVar("Fields", bound=Any)


@dataclass(frozen=True)
class Recipe:
    """One way to train.

    `task`: "supervised"; "jsd", three views of an image; "head", all but the head is frozen; "dino" or "moco", without
    labels; "metric", for classes that are not there yet.
    """

    name: str
    about: str  # the comment that opens the file
    model: dict[str, Any]  # arguments of create_model
    settings: OptimizationConfig
    augment: dict[str, Any]  # `kind` crop, wsol or multicrop, and the arguments of that transform
    data: str  # a benchmark
    paper: dict[str, Any]
    task: str = "supervised"
    start: str | None = None  # the recipe whose trained model this one begins with
    preprocessing: dict[str, Any] = field(
        default_factory=dict
    )  # where the backbone's own is not the paper's
    search: dict[str, Any] = field(default_factory=dict)  # what the paper searched for, and where
    cost: dict[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # of the paper's training, for want of an engine that does it
    options: dict[str, Any] = field(
        default_factory=dict
    )  # the numbers of a method that has its own
    sets: dict[str, Any] = field(default_factory=dict)  # by benchmark: what is different there
    scaled: bool = False

    @property
    def command(self) -> str:
        """The command that takes it."""
        return "fit" if self.task in FIT else self.task

    def scaled_down(self, size: int = 64) -> Recipe:
        """The same training on a small network, small images, small batches and two epochs."""
        from .recipe_twins import scaled_down

        return scaled_down(self, size)


def list_recipes() -> list[str]:
    """The names of those that come with Cenote."""
    root = files("cenote") / HERE
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in root.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def load_recipe(name: str | Path) -> Recipe:
    """By name, or a YAML file of your own."""
    path = Path(name)
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise FileNotFoundError(2, "no such recipe file", str(path))
        return parse_recipe(path.read_text(encoding="utf-8"), str(path))
    known = list_recipes()
    if str(name) not in known:
        raise ValueError(
            f"no recipe '{name}'{_near(str(name), known)} (cenote recipes lists them; or give a .yaml file)"
        )
    folder, _, title = str(name).partition("/")
    return parse_recipe(
        (files("cenote") / HERE / folder / f"{title}.yaml").read_text(encoding="utf-8"), str(name)
    )


def parse_recipe(text: str, name: str) -> Recipe:
    """Checked: whatever is wrong is one sentence that names the recipe and the key."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(
            f"{name} is not readable YAML: {' '.join(str(error).split())[:200]}"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{name} is no recipe: it holds no keys ({', '.join(NEEDED)})")
    _known(name, "", content, KEYS)
    for key in NEEDED:
        if key not in content:
            raise ValueError(f"{name} has no '{key}'")
    for key in (*SETTINGS, "sets", "search", "cost", "paper"):
        if not isinstance(content.get(key, {}), dict):
            raise ValueError(f"{name}: '{key}' must hold keys, got {content[key]!r}")
    task = content.get("task", "supervised")
    if task not in TASKS:
        raise ValueError(f"{name}: no task '{task}'{_near(str(task), TASKS)} ({', '.join(TASKS)})")
    settings = parse_settings(content["train"], name)
    options = content.get("options", {})
    check_options(options, task, name)
    augment = content.get("augment", {})
    _known(name, "augment.", augment, augment_keys(augment, name, task))
    _known(
        name,
        "preprocessing.",
        content.get("preprocessing", {}),
        [f.name for f in dataclasses.fields(Preprocessing)],
    )
    recipe = Recipe(
        name,
        _opening(text),
        _checked_model(content["model"], name),
        settings,
        augment,
        _checked_data(content["data"], name),
        content["paper"],
        task,
        content.get("start"),
        content.get("preprocessing", {}),
        content.get("search", {}),
        content.get("cost", {}),
        tuple(content.get("left_out", ())),
        options,
        content.get("sets", {}),
    )
    if recipe.sets:
        from .recipe_sets import check_sets

        check_sets(recipe)
    return recipe


def parse_settings(
    given: dict[str, Any], name: str, base: OptimizationConfig | None = None
) -> OptimizationConfig:
    """Fields of `OptimizationConfig`, each with a value of its type."""
    return parse_fields(base or OptimizationConfig(), given, name, "train.")


def parse_fields(base: Fields, given: dict[str, Any], name: str, where: str) -> Fields:
    """A dataclass with other values, each of its field's type."""
    hints = get_type_hints(type(base))
    _known(name, where, given, list(hints))
    values = {
        key: _typed(f"{name}: {where}{key}", value, hints[key]) for key, value in given.items()
    }
    try:
        changed: Fields = dataclasses.replace(base, **values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return changed


def check_options(options: dict[str, Any], task: str, name: str) -> None:
    """What may stand under `options`: the method's own."""
    from .unlabelled import METHODS

    if task in METHODS:
        parse_fields(METHODS[task][1](), options, name, "options.")
    elif task == "metric":
        from .metric_options import MetricOptions

        made = parse_fields(MetricOptions(), options, name, "options.")
        try:
            if not made.loss.startswith(
                "pml/"
            ):  # those need a package that reading a recipe does not
                made.check()
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    elif options:
        raise ValueError(f"{name}: the task '{task}' has no options of its own")


def augment_keys(augment: dict[str, Any], name: str, task: str = "supervised") -> list[str]:
    """What may stand under `augment`."""
    from ..data.transforms import MultiCrop, wsol_train_transform
    from .augment import augmentation

    kinds: dict[str, Callable[..., Any]] = {"crop": augmentation, "wsol": wsol_train_transform}
    if task in UNLABELLED:
        kinds = {"multicrop": MultiCrop}
    kind = augment.get("kind", next(iter(kinds)))
    if kind not in kinds:
        raise ValueError(
            f"{name}: no kind of augmentation '{kind}'{_near(str(kind), kinds)} ({', '.join(kinds)})"
        )
    return [
        "kind",
        *(
            key
            for key in inspect.signature(kinds[kind]).parameters
            if key not in ("mean", "std", "views")
        ),
    ]


def _checked_model(model: dict[str, Any], name: str) -> dict[str, Any]:
    """The names of create_model are known; others go to timm, unless they look like a slip."""
    from ..models import create_model
    from ..pooling import list_pools

    if not isinstance(model.get("backbone"), str):
        raise ValueError(f"{name}: model.backbone must be the name of a backbone")
    own = [key for key in inspect.signature(create_model).parameters if key != "backbone_options"]
    for key in model:
        slip = difflib.get_close_matches(key, own, 1, 0.8)
        if key not in own and slip:
            raise ValueError(f"{name}: no key 'model.{key}'; did you mean '{slip[0]}'?")
    pools = [*list_pools(), "cls"]
    if model.get("pool", "gap") not in pools:
        raise ValueError(f"{name}: no pool '{model['pool']}'{_near(str(model['pool']), pools)}")
    return model


def _checked_data(data: Any, name: str) -> str:
    from ..data.benchmarks import find_benchmark

    if not str(data).startswith("world/"):
        try:
            find_benchmark(str(data))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return str(data)


def _typed(where: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(
                f"{where} is one of {', '.join(map(str, get_args(hint)))}, got {value!r}"
            )
        return value
    if get_origin(hint) is dict and isinstance(value, dict):
        return value
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(value)
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None and type(None) in kinds:
        return None
    if float in kinds and isinstance(
        value, str
    ):  # YAML takes 1e-3 for text: a number needs its point, 1.0e-3
        try:
            return float(value)
        except ValueError:
            pass
    if float in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if (bool in kinds and isinstance(value, bool)) or (str in kinds and isinstance(value, str)):
        return value
    if int in kinds and isinstance(value, int) and not isinstance(value, bool):
        return value
    names = " or ".join("nothing" if kind is type(None) else kind.__name__ for kind in kinds)
    raise ValueError(f"{where} must be {names}, got {value!r}")


def _known(name: str, where: str, given: dict[str, Any], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{name}: no key '{where}{key}'{_near(str(key), known)}")


def _near(word: str, known: Iterable[str]) -> str:
    close = [k for k in known if k.startswith(word)] or difflib.get_close_matches(
        word, list(known), 1, 0.5
    )
    return f"; did you mean '{close[0]}'?" if close else ""


def _opening(text: str) -> str:
    """The comment at the top of the file, without its marks."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" ").rstrip())
    return "\n".join(lines)
