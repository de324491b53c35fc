"""Search images by image, by text, or by both (composed retrieval)."""

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
