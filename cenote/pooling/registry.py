"""Pools by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .base import Pool

P = TypeVar("P", bound=type[Pool])


@dataclass(frozen=True)
class Entry:
    """A registered method and what the landscape says about it besides its parts."""

    name: str
    group: int
    cls: type[Pool]
    title: str  # as the papers write it
    source: str  # the paper it comes from
    category: bool  # used in category-level tasks (CAT of Table 1)
    simplified: bool  # the row leaves something out (* of Table 1)


ENTRIES: dict[str, Entry] = {}


def register(
    name: str, group: int, title: str, source: str, category: bool = False, simplified: bool = False
) -> Callable[[P], P]:
    def add(cls: P) -> P:
        cls.name = name
        ENTRIES[name] = Entry(name, group, cls, title, source, category, simplified)
        return cls

    return add


def list_pools() -> list[str]:
    """Every pool's name, in the order of the landscape."""
    return sorted(ENTRIES, key=lambda name: ENTRIES[name].group)


def options(name: str) -> dict[str, inspect.Parameter]:
    """The options of a pool besides `dim`."""
    parameters = inspect.signature(entry(name).cls.__init__).parameters
    return {key: p for key, p in parameters.items() if key not in ("self", "dim")}


def entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise ValueError(f"no pool '{name}'{suggest(name, ENTRIES)}; known: {', '.join(list_pools())}")
    return ENTRIES[name]


def create_pool(name: str, dim: int, *, check_finite: bool = False, **chosen: Any) -> Pool:
    """A pool by name for features of `dim` channels, e.g. `create_pool("simpool", 384, gamma=1.25)`.

    `check_finite` makes the pool refuse NaN and infinite features with a sentence.
    """
    known = options(name)
    for key in chosen:
        if key not in known:
            listed = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"'{name}' has no option '{key}'{suggest(key, known)}; {listed}")
    pool = entry(name).cls(dim, **chosen)
    pool.check_finite = check_finite
    return pool


def suggest(word: str, known: Any) -> str:
    """'; did you mean ...?' for a near miss, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""
