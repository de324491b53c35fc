"""A procedural world of objects in scenes: no downloads, every truth known, the same pixels on every machine."""

from .drawing import Drawn, World
from .memory import world
from .settings import PRESETS, Settings
from .writing import read_settings, write_world

__all__ = ["PRESETS", "Drawn", "Settings", "World", "read_settings", "world", "write_world"]
