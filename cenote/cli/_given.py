"""What commands are given and how they answer: names with commas, a folder to write to, a line on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def names_in(text: str, known: Iterable[str], what: str) -> list[str]:
    """The names in 'one, two', each once; one that is not known is refused with a suggestion."""
    from difflib import get_close_matches

    known = list(known)
    names = [name for part in dict.fromkeys(text.split(",")) if (name := part.strip())]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ValueError(f"no {what} '{name}'{hint} ({', '.join(known)})")
    if not names:
        raise ValueError(f"no {what} is named: {', '.join(known)}")
    return list(dict.fromkeys(names))


def check_out(folder: Path | None) -> None:
    """Refuse what can be no folder before an hour of work, and make nothing: wrong input leaves nothing behind."""
    if folder is None:
        return
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"-o {there} is a file: name a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"-o {folder}: nothing may be written in {there}")


def say(sentence: str) -> None:
    """A line on stderr that does not break the progress bar."""
    from tqdm import tqdm

    tqdm.write(sentence, file=sys.stderr)


def counted(number: int, one: str, more: str = "") -> str:
    """1 box, 2 boxes."""
    return f"{number} {one if number == 1 else more or one + 's'}"


@contextmanager
def going_on() -> Iterator[None]:
    """What was seen until Ctrl-C is in the journal."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        raise
