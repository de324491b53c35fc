"""ImageNet-C's fifteen corruptions at five severities, of any image and of any data set."""

from .registry import CORRUPTIONS, GROUPS, SEVERITIES, corrupt
from .source import with_corruption
from .transform import Corrupt

__all__ = ["CORRUPTIONS", "GROUPS", "SEVERITIES", "Corrupt", "corrupt", "with_corruption"]
