"""Images and texts as vectors of one space."""

from .create import create_image_text
from .interface import ImageText, Invertible

__all__ = ["ImageText", "Invertible", "create_image_text"]
