"""A backbone, a pool and a head become a model."""

from .head import Head
from .pooled import PooledModel, create_model, replace_pool
from .released import load_released
from .saving import load, save_model

__all__ = ["Head", "PooledModel", "create_model", "load", "load_released", "replace_pool", "save_model"]
