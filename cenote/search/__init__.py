"""Composed retrieval: find images by image, by text, or by both."""

from .ask import Question, ask
from .compose import METHODS, compose, compose_all
from .filters import Filter
from .freedom import frequent_words
from .index import fill
from .matrix import Matrix
from .plan import Database, Moments, Plan, Query
from .store import Store, open_store
from .weicom import weicom_scores
from .words import WordMemory, load_words, remember_words

__all__ = [
    "METHODS",
    "Database",
    "Filter",
    "Matrix",
    "Moments",
    "Plan",
    "Query",
    "Question",
    "Store",
    "WordMemory",
    "ask",
    "compose",
    "compose_all",
    "fill",
    "frequent_words",
    "load_words",
    "open_store",
    "remember_words",
    "weicom_scores",
]
