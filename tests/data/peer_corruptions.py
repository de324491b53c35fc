"""The PyPI package imagecorruptions 1.1.2 (2020) on today's libraries, none of which it can be imported with."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


def load_peer() -> Callable[..., Any] | None:
    """Its `corrupt(image, severity, corruption_name)`, or None where it or what it needs is not installed."""
    spec = importlib.util.find_spec("imagecorruptions")
    if (
        spec is None
        or spec.origin is None
        or any(importlib.util.find_spec(one) is None for one in ("cv2", "skimage"))
    ):
        return None
    import skimage.filters
    from scipy import ndimage

    folder = Path(spec.origin).parent
    resources, moved = ModuleType("pkg_resources"), ModuleType("scipy.ndimage.interpolation")
    resources.resource_filename = lambda _, name: str(folder / name)  # type: ignore[attr-defined]
    moved.map_coordinates = ndimage.map_coordinates  # type: ignore[attr-defined]
    sys.modules.setdefault("pkg_resources", resources)
    sys.modules.setdefault("scipy.ndimage.interpolation", moved)
    names = importlib.import_module("imagecorruptions.corruptions")
    peer = importlib.import_module("imagecorruptions")

    def gaussian(image: Any, sigma: Any, multichannel: bool = False, **options: Any) -> Any:
        return skimage.filters.gaussian(
            image, sigma, channel_axis=-1 if multichannel else None, **options
        )

    names.gaussian = gaussian  # type: ignore[attr-defined]
    if not hasattr(np, "float_"):
        names.np = _WithOldNames()  # type: ignore[attr-defined]
    return peer.corrupt  # type: ignore[no-any-return]


class _WithOldNames:
    """NumPy, with a name that it dropped."""

    float_ = np.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)
