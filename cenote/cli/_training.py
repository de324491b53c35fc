"""What the commands that train share: options made from the configuration, and their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import Field, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import tyro

from ..options import option_message
from ..train.config import DEFAULTS, Options, default_config, flags_of
from ._messages import RESUMES, fail, report_interrupt

if TYPE_CHECKING:
    from cenote.train.config import RunConfig
    from cenote.train.recipes import Recipe

Data = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
Out = Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def options_type(command: str) -> type[Any]:
    """Return a dataclass with the options of a command; None, () and False mean: not given."""
    members = []
    for name, section, item, hint in flags_of(command):
        kind: Any = hint | None
        default: Any = None
        metavar = item.metadata.get("metavar") or _metavar(hint)
        if hint is bool:
            kind, default = Flag, False
        elif get_origin(hint) is dict:
            kind, default, metavar = tuple[str, ...], (), "KEY=VALUE..."
        elif hint == tuple[float, ...]:
            kind, default = hint, ()
        elif get_origin(hint) is tuple:
            kind = str | None  # names with commas
        shown = item.metadata.get("shown") or _default(command, section, item)
        text: Options = {"help": f"{item.metadata['help']}.", "help_behavior_hint": ""}
        if hint is not bool:
            text["metavar"] = metavar
            if shown:
                text["help_behavior_hint"] = f"(default: {shown})"
        members.append((name, Annotated[kind, tyro.conf.arg(**text)], field(default=default)))
    return make_dataclass(f"{command.title()}Options", members, frozen=True)


def _metavar(hint: Any) -> str:
    kinds = [kind for kind in get_args(hint | None) if kind is not type(None)]
    if get_origin(kinds[0]) is Literal:
        return f"{{{','.join(map(str, get_args(kinds[0])))}}}"
    return {int: "N", float: "X"}.get(kinds[0], "NAME")


def _default(command: str, section: str, item: Field[Any]) -> str:
    """Describe the default of an option, with those of --freeze and --scratch where they differ."""
    if not section:
        return ""
    if section != "train":
        return _text(getattr(getattr(default_config(command), section), item.name))
    values = {start: _text(getattr(train, item.name)) for start, train in DEFAULTS[command].items()}
    usual = values.pop("")
    others = [f"with --{start} {v or 'none'}" for start, v in values.items() if v != usual]
    return ", ".join([usual, *others])


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(item if isinstance(item, str) else f"{item:g}" for item in value)
    if value is None or value == {}:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def given_options(command: str, options: Any) -> Options:
    """Return the options that are given, with lists of names and KEY=VALUE pairs parsed."""
    from cenote.train.configure import parse_pairs

    given: Options = {}
    for name, _, _, hint in flags_of(command):
        value = getattr(options, name)
        if value is None or value is False or value == ():
            continue
        if get_origin(hint) is dict:
            value = parse_pairs(value)
        elif get_origin(hint) is tuple and isinstance(value, str):
            names = [text.strip() for text in value.split(",")]
            value = tuple(dict.fromkeys(name for name in names if name not in ("", "none")))
        given[name] = value
    return given


def recipe_of(options: Any) -> Recipe | None:
    from cenote.train.recipes import load_recipe

    name = getattr(options, "recipe", None)
    if name is None:
        return None
    return load_recipe(name)


def config_of(command: str, options: Any, data: str = "") -> RunConfig:
    """Return the validated configuration; `data` as given, since sop:FOLDER names a benchmark."""
    from cenote.train.configure import configure

    given = given_options(command, options)
    given.pop("recipe", None)
    return configure(command, recipe_of(options), data.partition(":")[0], **given)


@contextmanager
def exit_if_stopped(command: str) -> Iterator[None]:
    """End with code 1 and a message if a run stops before its end; an interrupted one resumes."""
    from cenote.train.log import Interrupted, Stopped

    try:
        with report_interrupt():
            yield
    except Interrupted:
        raise KeyboardInterrupt(RESUMES) from None
    except Stopped as stop:
        fail(command, option_message(stop))
