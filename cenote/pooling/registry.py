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
class PoolEntry:
    """A registered method and its columns of the landscape that are not components."""

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


LOCAL = inspect.Parameter("local", inspect.Parameter.KEYWORD_ONLY, default=None)
ENTRIES: dict[str, PoolEntry] = {}
ABLATIONS: dict[str, type[Pool]] = {}
# The groups of [SimPool Table 1], and those of later methods. A group without a name is "group N".
GROUPS = {
    1: "simple",
    2: "iterative",
    3: "re-weighting",
    4: "transformer",
    5: "SimPool",
    6: "GSP",
    7: "retrieval",
    8: "probing",
}
# The order of [SimPool Table 1] and of later papers. A pool that is not listed is last in its
# group.
ORDER = (
    "gap max gap+max gem lse glsep tap how | otk kmeans slot | se cbam ge | vit cait | simpool | gsp | "
    "crow delf gemax gsop solar smk netvlad weldon | abmilp ep clip map aim jepa cae coca prr"
)


def register(
    name: str, group: int, title: str, source: str, category: bool = False, simplified: bool = False
) -> Callable[[P], P]:
    """Register a pool class under a name."""

    def add(cls: P) -> P:
        cls.name = name
        ENTRIES[name] = PoolEntry(name, group, cls, title, source, category, simplified)
        return cls

    return add


def register_ablation(name: str) -> Callable[[P], P]:
    """Register a class with more options of a pool: `create_pool` uses it when one is given."""

    def add(cls: P) -> P:
        ABLATIONS[name] = cls
        return cls

    return add


def list_pools() -> list[str]:
    """Return the names of all pools in the order of the landscape."""
    order = {name: i for i, name in enumerate(ORDER.split())}
    return sorted(ENTRIES, key=lambda name: (ENTRIES[name].group, order.get(name, len(order))))


def options(name: str) -> dict[str, inspect.Parameter]:
    """Return the options of a pool, those of its ablation included, and `local` of all pools."""
    return _parameters(ABLATIONS.get(name) or entry(name).cls) | {"local": LOCAL}


def _parameters(cls: type[Pool]) -> dict[str, inspect.Parameter]:
    if cls.__init__ is Pool.__init__:
        return {}
    return dict(list(inspect.signature(cls).parameters.items())[1:])  # without dim


def entry(name: str) -> PoolEntry:
    if name == "own":
        raise ValueError("'own' is the pooling of an encoder: create_model(backbone, 'own')")
    if name not in ENTRIES:
        hint = suggest(name, ENTRIES) or f": {', '.join(list_pools())}"
        raise ValueError(f"no pool '{name}'{hint}")
    return ENTRIES[name]


def is_registered(pool: Pool) -> bool:
    """Return whether `create_pool` can create a pool of this class again."""
    return pool.name in ENTRIES and type(pool) in (ENTRIES[pool.name].cls, ABLATIONS.get(pool.name))


def create_pool(
    name: str, dim: int, *, local: int | None = None, check_finite: bool = False, **chosen: Any
) -> Pool:
    """Create a pool for features of `dim` channels: `create_pool("simpool", 384, gamma=1.25)`.

    `local=128` maps every position linearly to 128 channels before it is pooled. With
    `check_finite` the pool raises ValueError for NaN and infinite features.
    """
    cls = entry(name).cls
    check_names(name, chosen, options(name))
    if not chosen.keys() <= _parameters(cls).keys():
        cls = ABLATIONS[name]
    pool = cls(dim if local is None else local, **chosen)
    if local is not None:
        pool.embed_positions(dim)
        chosen["local"] = local
    pool.check_finite, pool.options = check_finite, chosen
    return pool
