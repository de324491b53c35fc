"""Cenote: feature maps become vectors, and you see where they came from.

Names are imported when they are first used: `import cenote` and `cenote -h` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .models import create_model, load
    from .pooling import Pool, create_pool, landscape, list_pools
    from .predict.localize import localize

_HOME = {
    "Pool": "cenote.pooling",
    "create_model": "cenote.models",
    "create_pool": "cenote.pooling",
    "landscape": "cenote.pooling",
    "list_pools": "cenote.pooling",
    "load": "cenote.models",
    "localize": "cenote.predict.localize",
}

__all__ = [
    "Pool",
    "__version__",
    "create_model",
    "create_pool",
    "landscape",
    "list_pools",
    "load",
    "localize",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cenote' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)  # kept: asked for once only
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
