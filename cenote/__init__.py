"""Cenote: feature maps become vectors, and you see where they came from.

Names are imported when they are first used: `import cenote` and `cenote -h` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .api.index import Index
    from .api.model import Model, Prediction, attend, discover, localize
    from .api.training import Probes, Tournament, fit, probe, tournament
    from .data import open_dataset
    from .models import create_model, load
    from .pooling import Pool, create_pool, landscape, list_pools
    from .train.callbacks import Callback

_MODULES = {
    "api.index": ("Index",),
    "api.model": ("Model", "Prediction", "attend", "discover", "localize"),
    "api.training": ("Probes", "Tournament", "fit", "probe", "tournament"),
    "data": ("open_dataset",),
    "models": ("create_model", "load"),
    "pooling": ("Pool", "create_pool", "landscape", "list_pools"),
    "train.callbacks": ("Callback",),
}
_HOME = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "Callback",
    "Index",
    "Model",
    "Pool",
    "Prediction",
    "Probes",
    "Tournament",
    "__version__",
    "attend",
    "create_model",
    "create_pool",
    "discover",
    "fit",
    "landscape",
    "list_pools",
    "load",
    "localize",
    "open_dataset",
    "probe",
    "tournament",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cenote' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)  # kept: asked for once only
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
