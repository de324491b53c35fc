"""Validation of what users pass and what files contain."""

from __future__ import annotations


def check(condition: object, message: str) -> None:
    """Raise a ValueError with this message unless the condition holds."""
    if not condition:
        raise ValueError(message)
