"""A backbone, a pool and a head become a model. Today: the head."""

from .head import Head

__all__ = ["Head"]
