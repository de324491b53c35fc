"""ImageNet-C's fifteen corruptions at five severities, for any image and any data set.

Every module of this package may register corruptions: a new one is one function in one file.
"""

from importlib import import_module
from pkgutil import iter_modules

from .registry import SEVERITIES, Corrupt, Corruption, corrupt, registered, with_corruption

for _module in iter_modules(__path__):
    import_module(f".{_module.name}", __package__)

# In the published order; GROUPS has them by group.
CORRUPTIONS: dict[str, Corruption] = {}
GROUPS: dict[str, tuple[str, ...]] = {}
for _entry in registered():
    CORRUPTIONS[_entry.name] = _entry.function
    GROUPS[_entry.group] = (*GROUPS.get(_entry.group, ()), _entry.name)

__all__ = ["CORRUPTIONS", "GROUPS", "SEVERITIES", "Corrupt", "corrupt", "with_corruption"]
