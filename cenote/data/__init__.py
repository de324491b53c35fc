"""Images and labels as they lie on disk."""

from .files import write_atomically
from .images import BadImage, find_images, read_image

__all__ = ["BadImage", "find_images", "read_image", "write_atomically"]
