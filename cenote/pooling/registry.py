"""Pools by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..options import check_names, suggest
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

    @property
    def group_name(self) -> str:
        return GROUPS.get(self.group, f"group {self.group}")


ENTRIES: dict[str, Entry] = {}
# The groups of S Table 1, and those of the pools that came later. A group without a name is shown as "group N".
GROUPS = {
    1: "simple", 2: "iterative", 3: "re-weighting", 4: "transformer", 5: "SimPool", 6: "GSP", 7: "retrieval",
    8: "probing",
}  # fmt: skip
# The order of S Table 1 and of the papers that follow. A pool that is not named here stands last in its group.
ORDER = (
    "gap max gap+max gem lse glsep how | otk kmeans slot | se cbam ge | vit cait | simpool | gsp | "
    "crow delf gemax gsop solar smk netvlad weldon | abmilp ep clip map aim jepa cae coca"
)


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
    order = ORDER.split()

    def place(name: str) -> tuple[int, int]:
        return ENTRIES[name].group, order.index(name) if name in order else len(order)

    return sorted(ENTRIES, key=place)


def options(name: str) -> dict[str, inspect.Parameter]:
    """The options of a pool besides `dim`. One that leaves `__init__` to the base has none."""
    cls = entry(name).cls
    if cls.__init__ is Pool.__init__:
        return {}
    parameters = inspect.signature(cls.__init__).parameters
    return {key: p for key, p in parameters.items() if key not in ("self", "dim")}


def entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise ValueError(
            f"no pool '{name}'{suggest(name, ENTRIES)} (known: {', '.join(list_pools())})"
        )
    return ENTRIES[name]


def create_pool(name: str, dim: int, *, check_finite: bool = False, **chosen: Any) -> Pool:
    """A pool by name for features of `dim` channels, e.g. `create_pool("simpool", 384, gamma=1.25)`.

    `check_finite` makes the pool refuse NaN and infinite features with a sentence.
    """
    known = options(name)
    check_names(name, chosen, known)
    pool = entry(name).cls(dim, **chosen)
    pool.check_finite, pool.options = check_finite, chosen
    return pool
