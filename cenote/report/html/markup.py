"""HTML that cannot be forgotten to be escaped: whatever is not `Html` already becomes text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

EMPTY = {"img", "input", "br", "meta", "link"}


class Html(str):
    """Markup. Only this file and whole files of the package make some out of strings."""


Child = str | Iterable["Child"] | None


def el(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element. `class_` is class, `aria_sort` aria-sort; True is a bare attribute, None and False are none."""
    given = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        given.append(
            f" {key}" if value is True else f' {key}="{html.escape(_text(value), quote=True)}"'
        )
    opening = f"<{name}{''.join(given)}>"
    return Html(opening if name in EMPTY else f"{opening}{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    return Html("".join(map(_one, children)))


def _one(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    return html.escape(_clean(child), quote=False) if isinstance(child, str) else join(*child)


def _text(value: str | float) -> str:
    return _clean(value) if isinstance(value, str) else f"{value:.6g}"


def _clean(text: str) -> str:
    """Without control characters, which HTML does not allow even when escaped."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", text)
