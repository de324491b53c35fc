"""Object discovery without labels: one file per method, registered under its name."""

from .base import METHODS
from .run import DiscoveredObjects, DiscoveryResult, discover_objects

__all__ = ["METHODS", "DiscoveredObjects", "DiscoveryResult", "discover_objects"]
