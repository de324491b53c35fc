"""Where an index's images and its model are now, after the folder that holds them all was moved or copied."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .store import Description, Entry

if TYPE_CHECKING:
    from .filters import Filter


class Places:
    """An index keeps whole paths, and the folder that it was in when they were right: its home.

    From another folder a file is looked for first where it lies as it lay from home, then where it was: whoever made a
    new folder in the old one's place, or a copy, has other files there.
    """

    def __init__(self, here: Path, home: str | None) -> None:
        """An index of an older Cenote names no home."""
        self.here = os.path.abspath(here)
        self.home = self.here if home is None or _same(home, self.here) else home

    def __bool__(self) -> bool:
        """Whether it is away from home."""
        return self.home != self.here

    def now(self, path: str, size: int | None = None) -> str:
        """Of two images the one of its size; where it was, if it is in neither place."""
        if not self or not os.path.isabs(path):
            return path
        beside = _along(path, self.home, self.here)
        try:
            found = os.stat(beside)
        except (OSError, ValueError):
            return path
        return beside if size in (None, found.st_size) or not os.path.exists(path) else path

    def entry(self, entry: Entry) -> Entry:
        if not self:
            return entry
        return entry._replace(path=self.now(entry.path, entry.size), source=self.now(entry.source))

    def description(self, made: Description) -> Description:
        if not self:
            return made
        before, file = split_model(made.model)
        words = {**made.words, "name": self.now(str(made.words["name"]))} if made.words else made.words
        return replace(made, model=before + self.now(file), words=words)

    def filter(self, filter: Filter) -> Filter:
        """Folders also by the names that their images are kept under."""
        if not self or not filter.folders:
            return filter
        before = [_along(folder, self.here, self.home) for folder in filter.folders if os.path.isabs(folder)]
        return replace(filter, folders=(*filter.folders, *before))


def _along(path: str, old: str, new: str) -> str:
    """What lies from the new folder as the path lies from the old one."""
    return os.path.normpath(os.path.join(new, os.path.relpath(path, old)))


def _same(home: str, here: str) -> bool:
    """Also through a link."""
    try:
        return os.path.samefile(home, here)
    except (OSError, ValueError):
        return home == here


def split_model(name: str) -> tuple[str, str]:
    """A model's name up to its file or folder, if it has one, and that: "open_clip/ViT-B-32/" and "weights.pt"."""
    kind, _, rest = name.partition("/")
    if kind == "text-space" or rest.startswith("hf-hub:"):
        return name, ""
    if kind != "open_clip":
        return "", name
    mark = ":" if rest.startswith("local-dir:") else "/"
    model, mark, weights = rest.partition(mark)
    return f"{kind}/{model}{mark}", weights


def whole_model(name: str) -> str:
    """Files and folders by their whole path: the index is asked from anywhere."""
    before, file = split_model(name)
    path = Path(file).expanduser()
    return before + os.path.abspath(path) if file and path.exists() else name
