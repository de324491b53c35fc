"""Check that every name the pages mention as `cenote....`, or import from it, exists (part of `make docs-check`)."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOTTED = re.compile(r"(?<![\w./-])cenote(?:\.[A-Za-z_]\w*)+")
IMPORT = re.compile(r"from (cenote[\w.]*) import (\([^)]*\)|[\w, ]+)")


def mentioned(text: str) -> Iterator[str]:
    """Yield the dotted names that a page mentions or imports."""
    yield from DOTTED.findall(text)
    for module, names in IMPORT.findall(text):
        for name in names.strip("()").split(","):
            if name.strip():
                yield f"{module}.{name.split(' as ')[0].strip()}"


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    head, *attributes = name.split(".")
    value: object = importlib.import_module(head)
    for attribute in attributes:
        head = f"{head}.{attribute}"
        if not hasattr(value, attribute):
            try:
                importlib.import_module(head)
            except ModuleNotFoundError:
                return False
        value = getattr(value, attribute)
    return True


def main() -> int:
    missing = [
        f"{path.relative_to(ROOT)}: there is no {name}"
        for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
        for name in sorted(set(mentioned(path.read_text(encoding="utf-8"))))
        if not exists(name)
    ]
    print("\n".join(missing), file=sys.stderr, end="\n" * bool(missing))
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
