"""Type a command: in this process where it is ours, so that torch is imported once; or only read its options."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import inspect
import os
import re
import runpy
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import tyro

from cenote.cli import COMMANDS, command_function, main
from cenote.cli._training import config_of
from tests.docs.reading import ROOT
from tests.docs.shrinking import TRAIN, shrunk


class Parsed(Exception):
    """A script has read its options and goes no further."""


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command, made small."""
    if words[0] == "cenote":
        return main(spare(shrunk(words))[1:])
    if words[0] == "python":
        return script(shrunk(words), monkeypatch)
    if words[0] == "torchrun":
        ours = words.index("cenote")
        small = [*words[1:ours], *spare(shrunk(words[ours:]))]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", *small], env=environment
        ).returncode
    raise ValueError(f"no test knows how to run '{words[0]}'")


def release_memory() -> None:
    """Give free memory back to the system: commands set glibc to keep all of it (cenote.allocator)."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def spare(words: list[str]) -> list[str]:
    """What is made in a folder that is taken goes to another one: pages show alternatives under one name."""
    made = words[1] in TRAIN or (words[1] == "index" and "--model" in words)
    if made and "-o" in words:
        place = words.index("-o") + 1
        while os.path.exists(words[place]):
            words = [*words[:place], words[place] + "-other", *words[place + 1 :]]
    return words


def script(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """`python FILE ...` of this project."""
    path = ROOT / words[1]
    monkeypatch.setattr(sys, "argv", [str(path), *words[2:]])
    monkeypatch.syspath_prepend(path.parent)  # as Python does
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def exists(words: list[str]) -> bool:
    """Whether there is such a command or file, whatever comes behind it."""
    program, *rest = words
    if program == "cenote":
        return rest[0] in COMMANDS or rest[0] in ("-h", "<command>")
    return program != "python" or (ROOT / rest[0]).is_file()


def parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command's own parser and its own checks of names: what is not an option of it fails."""
    if words[0] == "cenote":
        parse_ours(words[1:])
    elif words[0] == "torchrun":
        parse_ours(words[words.index("cenote") + 1 :])
    elif words[0] == "python":
        parse_script(words, monkeypatch)
    elif words[0] == "make":
        targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)
    elif words[0] == "pip":
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]
        extras = re.findall(r"\[([\w,]+)\]", " ".join(words))
        assert {extra for some in extras for extra in some.split(",")} <= set(known)


def parse_ours(words: list[str]) -> None:
    command, *rest = words
    if words == ["-h"]:
        return
    assert command in COMMANDS, f"no command '{command}'"
    if rest == ["-h"]:
        return
    target = command_function(command)
    given: dict[str, Any] = {}

    @functools.wraps(target)
    def record(*positional: Any, **named: Any) -> None:
        given.update(inspect.signature(target).bind(*positional, **named).arguments)

    tyro.cli(record, args=rest)
    if command in ("fit", "metric", "dino", "moco", "clip") and "options" in given:
        with contextlib.suppress(FileNotFoundError):  # weights of the reader's own
            config_of(command, given["options"], given["data"])


def parse_script(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = (ROOT / words[1]).read_text(encoding="utf-8")
    if "argparse" not in source:
        return
    parse_args = argparse.ArgumentParser.parse_args

    def stop(*given: Any) -> None:
        parse_args(*given)
        raise Parsed

    with monkeypatch.context() as patch, pytest.raises(Parsed):
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        script(words, patch)
