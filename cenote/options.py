"""Check options that users give by name: unknown names and invalid numbers raise ValueError."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


def suggest(word: Any, known: Iterable[str]) -> str:
    """'; did you mean ...?' for a near miss, else nothing."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise ValueError for an unknown name, with a suggestion or else with all names."""
    known = list(known)
    if name not in known:
        raise ValueError(f"no {kind} '{name}'{suggest(name, known) or ': ' + ', '.join(known)}")


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            listed = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"'{owner}' has no option '{name}'{suggest(name, known)} ({listed})")


def check_number(
    what: str,
    value: Any,
    whole: bool = False,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> None:
    """Finite, and within these bounds."""
    bounds = [f"at least {least}"] * (least is not None) + [f"above {above}"] * (above is not None)
    bounds += [f"at most {most}"] * (most is not None)
    good = (
        isinstance(value, Integral if whole else Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
    if good and least is not None:
        good = value >= least
    if good and above is not None:
        good = value > above
    if good and most is not None:
        good = value <= most
    if not good:
        kind = "a whole number" if whole else "a number"
        raise ValueError(
            f"{what} is {' '.join([kind, ' and '.join(bounds)]).strip()}, got {value!r}"
        )


def check_words(what: str, chosen: Any, known: Iterable[str]) -> None:
    """One or more of `known`; a bare text would be taken letter by letter."""
    known = list(known)
    if isinstance(chosen, str) or not chosen or any(word not in known for word in chosen):
        raise ValueError(
            f"{what} are some of {', '.join(known)}, such as ('{known[0]}',), got {chosen!r}"
        )


def check_choice(what: str, value: object, choices: Iterable[object]) -> None:
    """One of a few values."""
    choices = list(choices)
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise ValueError(f"{what} is one of {listed}, got {value!r}")
