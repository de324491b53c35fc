"""A procedural data set: no downloads, full annotations, the same pixels on every machine."""

from .drawing import SyntheticImage, World
from .generate import read_settings, world, write_world
from .settings import PRESETS, WorldSettings

__all__ = [
    "PRESETS",
    "SyntheticImage",
    "World",
    "WorldSettings",
    "read_settings",
    "world",
    "write_world",
]
