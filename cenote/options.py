"""Check options that users give by name: unknown names and invalid numbers raise ValueError."""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
# An option of the command line in a message, with the name of its value: --weights FILE.
FLAG = re.compile(r"(?<![\w-])(-o|--[a-z][a-z0-9-]*)(?: ([A-Z]{2,})\b)?")
UNKNOWN = re.compile(r"\S+ got an unexpected keyword argument '(\w+)'.*")


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
    bounds = [f"of at least {least}"] * (least is not None) + [f"above {above}"] * (
        above is not None
    )
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
            f"{what} must be {' '.join([kind, ' and '.join(bounds)]).strip()}, got {value!r}"
        )


def check_words(what: str, chosen: Any, known: Iterable[str]) -> None:
    """One or more of `known`; a bare text would be taken letter by letter."""
    known = list(known)
    if isinstance(chosen, str) or not chosen or any(word not in known for word in chosen):
        raise ValueError(
            f"{what} must be some of {', '.join(known)}, such as ('{known[0]}',), got {chosen!r}"
        )


def check_choice(what: str, value: object, choices: Iterable[object]) -> None:
    """One of a few values."""
    choices = list(choices)
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise ValueError(f"{what} must be one of {listed}, got {value!r}")


def name_arguments(message: str) -> str:
    """Name Python arguments instead of options: "--pool-options" becomes "pool_options"."""

    def name(match: re.Match[str]) -> str:
        flag, value = match.groups()
        argument = {"-o": "out", "--resume": "resume=True"}.get(flag, flag[2:].replace("-", "_"))
        return f"{argument}={value}" if value else argument

    return FLAG.sub(name, message)


def _name_unknown_argument(function: Callable[..., Any], message: str) -> str:
    """Say in a TypeError of Python's which arguments a function of the Python API has."""
    unknown = UNKNOWN.fullmatch(message)
    if unknown is None:
        return message
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.name != "self" and p.kind != p.VAR_KEYWORD]
    hint = suggest(unknown[1], names) or f" ({', '.join(names)})"
    name = function.__qualname__.removesuffix(".__init__")
    return f"cenote.{name} has no argument '{unknown[1]}'{hint}"


def errors_name_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function of the Python API: its errors name arguments instead of options.

    `option_message` returns the message with options again, for commands that call the function.
    """

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if len(error.args) == 1 and isinstance(message := error.args[0], str):
                error.__dict__.setdefault("option_message", message)
                error.args = (_name_unknown_argument(function, name_arguments(message)),)
            raise

    return call


def option_message(error: Exception) -> str:
    """Return the message of an error with the options of the command line."""
    return str(getattr(error, "option_message", error))
