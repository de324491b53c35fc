"""A backbone, a pool and a head become a model."""

from .attention_maps import last_qkv
from .head import Head
from .pooled import PooledModel, create_model, load, replace_pool
from .released_checkpoints import load_released
from .saving import save_model

__all__ = [
    "Head",
    "PooledModel",
    "create_model",
    "last_qkv",
    "load",
    "load_released",
    "replace_pool",
    "save_model",
]
