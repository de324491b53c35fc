"""Everything foreign becomes Features(tokens, grid, cls)."""

from .backbone import Backbone
from .create import create_backbone
from .features import Features
from .preprocessing import Preprocessing

__all__ = ["Backbone", "Features", "Preprocessing", "create_backbone"]
