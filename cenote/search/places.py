"""Where an index's images and its model are now, after the folder that holds them all was moved or copied."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .store import ImageEntry, IndexDescription

if TYPE_CHECKING:
    from .filters import Filter


class Places:
    """An index keeps whole paths, and the folder that it was in when they were right: its home.

    A file is where it was, or else lies from here as it lay from home. Of an image the size tells whether it is that
    file: none is read for it.
    """

    def __init__(self, here: Path, home: str | None) -> None:
        """An index of an older Cenote names no home."""
        # Through a link the images are beside the link, or beside what it leads to.
        self.heres = list(dict.fromkeys((os.path.abspath(here), os.path.realpath(here))))
        self.home = self.heres[0] if home is None or _same(home, self.heres[0]) else home

    def __bool__(self) -> bool:
        """Whether it is away from home."""
        return self.home not in self.heres

    def now(self, path: str, size: int | None = None) -> str:
        """Where it was, also if it is in neither place."""
        return self.beside(path, size) or path if self and not _is_there(path, size) else path

    def beside(self, path: str, size: int | None = None) -> str | None:
        """What lies from here as this lay from home."""
        if not self or not os.path.isabs(path):
            return None
        found = (relocate(path, self.home, here) for here in self.heres)
        return next((place for place in found if _is_there(place, size)), None)

    def source(self, source: str) -> str:
        """A folder or file, or NAME:FOLDER."""
        name, mark, folder = ("", "", source) if os.path.isabs(source) else source.partition(":")
        return name + mark + self.now(folder)

    def entry(self, entry: ImageEntry) -> ImageEntry:
        if not self:
            return entry
        return entry._replace(
            path=self.now(entry.path, entry.size), source=self.source(entry.source)
        )

    def settled(self, path: str, size: int, source: str) -> tuple[str, str]:
        """Path and source for good: what is in neither place goes along with its folder, where it will be missed."""
        now, moved = self.now(path, size), self.source(source)
        if now == path and moved != source and f"{path}/".startswith(f"{source}/"):
            now = relocate(path, source, moved)
        return now, moved

    def nearest(self, paths: Iterable[str]) -> str:
        """Of the names of this folder the one that these paths share most with: a home to find them from."""
        whole = [path for path in paths if os.path.isabs(path)] if len(self.heres) > 1 else []
        return max(
            self.heres,
            key=lambda here: sum(len(os.path.commonpath((here, path))) for path in whole),
        )

    def description(self, made: IndexDescription, beside: bool = False) -> IndexDescription:
        """Model and word list where they are now; or beside, where others may have come to their places."""
        if not self:
            return made
        before, file = split_model(made.model)
        file, name = (
            (self.beside(path) or path) if beside else self.now(path)
            for path in (file, made.words.get("name", ""))
        )
        return replace(
            made,
            model=before + file,
            words={**made.words, "name": name} if made.words else made.words,
        )

    def filter(self, filter: Filter) -> Filter:
        """Folders also by the names that their images are kept under, unless those are folders of their own."""
        asked = [folder for folder in filter.folders if os.path.isabs(folder)] if self else []
        before = [relocate(folder, here, self.home) for folder in asked for here in self.heres]
        return replace(
            filter, folders=(*filter.folders, *(old for old in before if not os.path.exists(old)))
        )


def relocate(path: str, old: str, new: str) -> str:
    """What lies from the new folder as the path lies from the old one; the path itself, if that is above the root."""
    way = os.path.relpath(path, old)
    if way.split(os.sep).count(os.pardir) > new.rstrip(os.sep).count(os.sep):
        return path
    return os.path.normpath(os.path.join(new, way))


def _is_there(path: str, size: int | None) -> bool:
    try:
        return size in (None, os.stat(path).st_size)
    except (OSError, ValueError):
        return False


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
