"""The boxes of object maps, as `cenote localize` predicts them (predict/object_map.py)."""

from .base import METHODS, DiscoveryMethod

METHODS["object"] = DiscoveryMethod("Object map", "object map", None)
