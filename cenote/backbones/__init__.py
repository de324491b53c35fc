"""timm encoders as Features(tokens, grid, cls)."""

from .backbone import Backbone, Features
from .create import create_backbone
from .preprocessing import Preprocessing

__all__ = ["Backbone", "Features", "Preprocessing", "create_backbone"]
