"""Search images by image, by text, or by both (composed retrieval).

Names are imported when they are first used: `cenote search` checks its input before torch is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .composition import ComposedQuery, Scorer
    from .database import Database, MatrixDatabase, Moments
    from .freedom import frequent_words
    from .index import update_index
    from .load import open_store
    from .methods import METHODS, compose, compose_all
    from .query import Searcher, SearchRequest, ask
    from .store import Filter, Store
    from .weicom import weicom_scores
    from .words import WordMemory, load_words, remember_words

_MODULES = {
    "composition": ("ComposedQuery", "Scorer"),
    "database": ("Database", "MatrixDatabase", "Moments"),
    "freedom": ("frequent_words",),
    "index": ("update_index",),
    "load": ("open_store",),
    "methods": ("METHODS", "compose", "compose_all"),
    "query": ("SearchRequest", "Searcher", "ask"),
    "store": ("Filter", "Store"),
    "weicom": ("weicom_scores",),
    "words": ("WordMemory", "load_words", "remember_words"),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "METHODS",
    "ComposedQuery",
    "Database",
    "Filter",
    "MatrixDatabase",
    "Moments",
    "Scorer",
    "SearchRequest",
    "Searcher",
    "Store",
    "WordMemory",
    "ask",
    "compose",
    "compose_all",
    "frequent_words",
    "load_words",
    "open_store",
    "remember_words",
    "update_index",
    "weicom_scores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
