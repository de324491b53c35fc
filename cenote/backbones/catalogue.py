"""timm's architectures by family, with what the last check of all of them found (checked.json)."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

CHECKED = Path(__file__).with_name("checked.json")


@cache
def families() -> dict[str, list[str]]:
    """Every architecture of timm by the module that defines it."""
    import timm
    from timm.models import _registry

    by_family: dict[str, list[str]] = {}
    for name in timm.list_models():
        by_family.setdefault(_registry._model_to_module[name], []).append(name)
    return dict(sorted(by_family.items()))


def family(name: str) -> str:
    return next((family for family, names in families().items() if name in names), "")


@cache
def checked() -> dict[str, Any]:
    """What the last check found, a row for every family: {"timm": version, "families": [...]}."""
    return (
        json.loads(CHECKED.read_text(encoding="utf-8"))
        if CHECKED.exists()
        else {"timm": "", "families": []}
    )


def representative(family: str) -> str:
    """The smallest architecture of a family."""
    names = families()[family]
    smallest = {row["family"]: row["smallest"] for row in checked()["families"]}
    return (
        smallest[family] if smallest.get(family) in names else names[0]
    )  # a family newer than the last check


def select(pattern: str = "", every: bool = False) -> list[str]:
    """Architectures or families that match a pattern ("vit_*"), every architecture, or the smallest
    of every family.
    """
    if not pattern:
        return [
            name
            for f, names in families().items()
            for name in (names if every else [representative(f)])
        ]
    names = [
        name
        for f, names in families().items()
        for name in names
        if fnmatch(name, pattern) or fnmatch(f, pattern)
    ]
    if not names:
        raise ValueError(
            f"no architecture and no family of timm matches '{pattern}' (for example 'vit_*')"
        )
    return names
