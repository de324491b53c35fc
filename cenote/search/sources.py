"""Which of the DATA given an image came with, and so which images leave an index when they are no more there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from glob import has_magic

from ..data.digests import digest_of
from .store import ImageEntry


class Sources:
    """Of the files of a data set: each is its own DATA, or below one, or matched by one, or in a list that is one."""

    def __init__(self, source: str) -> None:
        parts = [part for part in source.split("\n") if part]
        self.parts = {os.path.abspath(os.path.expanduser(part)): part for part in parts}
        self.globs = [path for path in self.parts if has_magic(path) and not os.path.exists(path)]
        # Of a list or a data set's name. A text of all would be kept with each image.
        self.rest = source if len(parts) <= 1 else digest_of(os.fsencode(source)).hex()

    def of(self, path: str) -> str:
        """What is kept with the image: short, whatever was given."""
        found = self._part(path)
        return self.rest if found is None else self.parts[found]

    def see(self, listed: Iterable[str]) -> None:
        """The images that are there."""
        found = {path: self._part(path) for path in listed}
        self.alive = set(
            found.values()
        )  # a folder without images may be a disk that is not mounted
        self.beside = {os.path.dirname(path) for path, part in found.items() if part == path}
        self.closed = cache(_is_closed)

    def lost(self, entry: ImageEntry) -> bool:
        """Whether an image that is not listed is to leave; what another DATA brought stays."""
        return self._was_here(entry) and not self.closed(os.path.dirname(entry.path))

    def _was_here(self, entry: ImageEntry) -> bool:
        part = self._part(entry.path)
        if part is not None:
            return part in self.alive
        if (
            entry.source == entry.path
        ):  # named one by one, as a shell does with p/*.jpg: it names only what is there
            return os.path.dirname(entry.path) in self.beside and not os.path.exists(entry.path)
        return entry.source == self.rest and None in self.alive

    def _part(self, path: str) -> str | None:
        """The file itself, or the deepest folder, or a glob; None: no DATA says so."""
        above = path
        while above not in self.parts:
            before, above = above, os.path.dirname(above)
            if above in (before, ""):
                # A star of fnmatch goes through folders: ** is one.
                return next(
                    (each for each in self.globs if fnmatchcase(path, each.replace("**/", "*"))),
                    None,
                )
        return above


def _is_closed(folder: str) -> bool:
    """To us: who knows what is in it?"""
    try:
        os.scandir(folder).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False
