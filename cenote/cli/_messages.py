"""Functions that commands share: names, the output folder, messages, the command line."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from glob import has_magic
from pathlib import Path
from typing import NoReturn

from ..options import suggest

RESUMES = "resumes"  # argument of a KeyboardInterrupt
# The arguments of `main` when it is called from Python; empty when they are those of the process.
ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


def command_line() -> str:
    """Return the running command as a user would type it."""
    return shlex.join(["cenote", *(ARGUMENTS.get() or sys.argv[1:])])


def parse_names(text: str, choices: Iterable[str], kind: str) -> list[str]:
    """Split 'a, b' into names without duplicates; an unknown name is an error with a suggestion."""
    choices = list(choices)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in choices:
            hint = suggest(name, choices) or f": {', '.join(choices)}"
            raise ValueError(f"no {kind} '{name}'{hint}")
    if not names:
        raise ValueError(f"no {kind} is named: {', '.join(choices)}")
    return names


def check_output_folder(folder: Path | None) -> None:
    """Raise before hours of work if `folder` cannot be written; create nothing."""
    if folder is None:
        return
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"-o {existing} is a file: name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"-o {folder}: {existing} is not writable")


@contextmanager
def output_folder(folder: Path | None, *results: str) -> Iterator[None]:
    """Lock the folder that this command writes, and refuse the results of another command."""
    from cenote.data.files import command_folder

    with nullcontext() if folder is None else command_folder(folder, command_line(), results):
        yield


def check_data(data: str) -> None:
    """Raise ValueError if the data set does not exist; called before torch is imported."""
    from cenote.data.sources import check_exists

    check_exists(data)


def check_photos(paths: Sequence[str]) -> None:
    """Raise ValueError if no path exists; called before torch is imported."""
    from cenote.data.sources import names_a_dataset
    from cenote.data.video import split_frame

    if len(paths) == 1 and names_a_dataset(paths[0]):
        return
    files = {path: os.path.expanduser(split_frame(path)[0]) for path in paths}
    missing = [
        path for path, file in files.items() if not (os.path.lexists(file) or has_magic(file))
    ]
    if missing and len(missing) == len(files):
        raise ValueError(", ".join(f"{path}: no such file or folder" for path in missing))


def split_run(
    paths: Sequence[str], model: Path | str | None = None
) -> tuple[Path | None, Sequence[str]]:
    """Return the folder of the saved model, if the first path is one, and the photographs.

    `model` is what --model names, if the command has it.
    """
    from cenote.data import find_images

    if not paths:
        raise ValueError("no photographs found: name files, folders or globs")
    first = Path(paths[0])
    if (first / "config.json").is_file():
        if model is not None:
            raise ValueError(f"{first} and --model {model} are two models: name one")
        if len(paths) == 1:
            raise ValueError(f"{first} is a saved model: name photographs after it")
        return first, paths[1:]
    if len(paths) > 1 and model is None and not first.suffix:
        try:
            find_images([first])
        except ValueError:
            raise ValueError(f"{first} is neither a saved model nor a photograph") from None
    return None, paths


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return '1 box' or '2 boxes'."""
    if number != 1:
        noun = plural or f"{noun}s"
    return f"{number} {noun}"


def print_message(message: str) -> None:
    """Print a line on stderr above a running progress bar."""
    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)


def fail(command: str, message: str) -> NoReturn:
    """End with a message on stderr and exit code 1."""
    print_message(f"cenote {command}: {message}")
    raise SystemExit(1)


@contextmanager
def report_interrupt() -> Iterator[None]:
    """Mark Ctrl-C in a command that can be resumed: `main` prints the command that does."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(RESUMES) from None


class MessageHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_message(self.format(record))


def show_messages() -> None:
    """Print the library's log messages; under torchrun only those of the first process."""
    logger = logging.getLogger("cenote")
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, MessageHandler) for handler in logger.handlers):
        handler = MessageHandler()
        handler.addFilter(lambda _: os.environ.get("RANK", "0") == "0")
        logger.addHandler(handler)


class Failures:
    """Photographs that failed: each is printed at once, and the exit code is 1 at the end."""

    def __init__(self, command: str) -> None:
        self.command, self.count = command, 0

    def __call__(self, message: str) -> None:
        self.count += 1
        print_message(f"skipped {message}")

    def exit(self) -> None:
        if self.count:
            fail(self.command, f"{self.count} failed, see above")
