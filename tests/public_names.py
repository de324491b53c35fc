"""The public names of Cenote and their signatures; run as a script, it rewrites public_names.json (`make names`)."""

import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import cenote

LIST = Path(__file__).with_name("public_names.json")


def public_names() -> dict[str, dict[str, str]]:
    """Module -> name -> signature, for every module and every name without an underscore."""
    found = {"cenote": names_of(cenote)}
    for info in pkgutil.walk_packages(cenote.__path__, "cenote."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            found[info.name] = names_of(importlib.import_module(info.name))
    return dict(sorted(found.items()))


def names_of(module: ModuleType) -> dict[str, str]:
    names = getattr(module, "__all__", None)
    if names is None:  # what it defines itself, not what it imports
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    return {name: signature(getattr(module, name)) for name in sorted(names)}


def signature(value: object) -> str:
    """Parameters and defaults. Annotations are left out: Python versions print them differently."""
    if not callable(value):
        return type(value).__name__
    try:
        found = inspect.signature(value)
    except ValueError:
        return "(...)"
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    text = str(found.replace(parameters=bare, return_annotation=found.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # a default that is a function prints where it lies


if __name__ == "__main__":
    LIST.write_text(json.dumps(public_names(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
