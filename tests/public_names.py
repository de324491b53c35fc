"""The names that Cenote's packages export (`__all__`) with their signatures, as a list that is checked in.

Run as a script (`make names`), it rewrites public_names.json. Names of modules inside a package are free to change.
"""

import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path

import cenote

LIST = Path(__file__).with_name("public_names.json")


def public_names() -> dict[str, dict[str, str]]:
    """Return package -> exported name -> signature."""
    packages = [
        "cenote",
        *(i.name for i in pkgutil.walk_packages(cenote.__path__, "cenote.") if i.ispkg),
    ]
    exports = {name: exported(name) for name in packages}
    return {name: exports[name] for name in sorted(exports) if exports[name]}


def exported(package: str) -> dict[str, str]:
    module = importlib.import_module(package)
    return {
        name: signature(getattr(module, name)) for name in sorted(getattr(module, "__all__", ()))
    }


def signature(value: object) -> str:
    """Return parameters and defaults, without annotations: Python versions print those differently."""
    if not callable(value):
        return type(value).__name__
    try:
        full = inspect.signature(value)
    except ValueError:
        return "(...)"
    bare = [p.replace(annotation=p.empty) for p in full.parameters.values()]
    text = str(full.replace(parameters=bare, return_annotation=full.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # a default that is a function prints its address


if __name__ == "__main__":
    LIST.write_text(
        json.dumps(public_names(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
