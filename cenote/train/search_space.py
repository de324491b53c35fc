"""What a random search draws, and from where."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple, get_type_hints

from .choices import Choices
from .config import HARMLESS, OptimizationConfig
from .recipes import Recipe


class Range(NamedTuple):
    low: float
    high: float
    log: bool = False


# Körschens et al., appendix.
RANGES = {
    "lr": Range(1e-5, 1.0, True),
    "weight_decay": Range(1e-7, 1e-1, True),
    "cutout": Range(0.0, 0.5),
}
TRIALS = 30


def search_space(
    asked: Iterable[str] = (), recipe: Recipe | None = None, freeze: bool = False
) -> dict[str, Range]:
    """The user's ranges (`lr=1e-4..1e-1:log`), or the recipe's, or the paper's."""
    own = dict(map(parse_range, asked))
    if own:
        return own
    if recipe is not None and recipe.search:
        return {
            key: _of_recipe(key, value, recipe.name)
            for key, value in recipe.search.items()
            if key in searchable()
        }
    return {key: value for key, value in RANGES.items() if not (freeze and key == "cutout")}


def parse_range(text: str) -> tuple[str, Range]:
    name, equals, rest = text.partition("=")
    ends, _, scale = rest.partition(":")
    low, dots, high = ends.partition("..")
    if not equals or not dots or scale not in ("", "log"):
        raise ValueError(
            f"a range is KEY=LOW..HIGH or KEY=LOW..HIGH:log, for example lr=1e-5..1:log; got '{text}'"
        )
    name = name.strip().replace("-", "_")
    if name == "seed":
        raise ValueError(
            f"{text}: another seed holds out other validation images; trials are compared on the same"
        )
    if name not in searchable():
        near = difflib.get_close_matches(name, searchable(), 1)
        hint = f"; did you mean '{near[0]}'?" if near else f": {', '.join(searchable())}"
        raise ValueError(f"nothing to search for is called '{name}'{hint}")
    try:
        return name, _checked(name, Range(float(low), float(high), scale == "log"))
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error


def searchable() -> dict[str, type]:
    """Numbers among the settings, and Cutout; by name, whether whole or not."""
    numbers = {
        name: kind
        for name, kind in get_type_hints(OptimizationConfig).items()
        if kind in (int, float)
    }
    # The seed makes the validation split too: trials of several would be compared on different images.
    fixed = (*HARMLESS, "most_bad", "seed")
    return {"cutout": float, **{name: kind for name, kind in numbers.items() if name not in fixed}}


def refuse_fixed(space: dict[str, Range], given: Iterable[str]) -> None:
    """What the user gave a value must not be drawn: the value would be forgotten."""
    both = [name for name in given if name in space]
    if both:
        low, high, _ = space[both[0]]
        raise ValueError(
            f"{both[0]} has a value, and is drawn from {low:g}..{high:g} as well: leave the value out, or say by "
            "--search what else is drawn"
        )


def apply(choices: Choices, drawn: dict[str, Any]) -> Choices:
    """The same training with these values."""
    settings = {key: value for key, value in drawn.items() if key not in ("lr", "cutout")}
    changes: dict[str, Any] = {"settings": {**choices.settings, **settings}}
    if "lr" in drawn:
        changes["rates"] = (drawn["lr"],)
    if "cutout" in drawn:
        changes["cutout"] = drawn["cutout"]
    return dataclasses.replace(choices, **changes)


def _of_recipe(key: str, value: Any, name: str) -> Range:
    try:
        low, high = value["range"]
        return _checked(key, Range(float(low), float(high), bool(value.get("log", False))))
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"{name}: search.{key} must hold range: [low, high] and perhaps log: true"
        ) from error


def _checked(name: str, found: Range) -> Range:
    if not found.low < found.high:
        raise ValueError(f"the range of {name} must grow, got {found.low:g}..{found.high:g}")
    if found.log and found.low <= 0:
        raise ValueError(f"a logarithmic range of {name} begins above 0, got {found.low:g}")
    return found
