"""The pooling framework and every pooling method: one file a method, found automatically."""

import importlib
import pkgutil

from .base import MixablePool, NoAttention, OnMap, Pool, as_tokens
from .framework import Algorithm, Component, Mean, f_alpha
from .landscape import landscape, landscape_rows
from .registry import create_pool, list_pools

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")  # a method registers itself

__all__ = [
    "Algorithm",
    "Component",
    "Mean",
    "MixablePool",
    "NoAttention",
    "OnMap",
    "Pool",
    "as_tokens",
    "create_pool",
    "f_alpha",
    "landscape",
    "landscape_rows",
    "list_pools",
]
