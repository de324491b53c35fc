"""A procedural world of objects in scenes: no downloads, every truth known, the same pixels on every machine."""

from .drawing import Drawn, World
from .generate import read_settings, world, write_world
from .settings import PRESETS, Settings

__all__ = ["PRESETS", "Drawn", "Settings", "World", "read_settings", "world", "write_world"]
