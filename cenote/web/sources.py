"""What is served: the folders of models, tournaments and an index."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..search.inputs import is_milvus

INDEX_FILES = ("index.json", "images.sqlite", "images.sqlite-wal")
CONFIG, PLAN, REPORT, INDEX = "config.json", "plan.json", "index.html", "index.json"

logger = logging.getLogger(__name__)


@dataclass
class Sources:
    """All paths come from the command line, none from a request."""

    models: list[Path] = field(default_factory=list)  # saved models
    tournaments: list[Path] = field(default_factory=list)
    index: str | None = None
    world: Path | None = None  # a demo's data set, whose test images are examples
    report: Path | None = None  # an index.html, which may be written later
    title: str = "Cenote"
    restarted: bool = False  # then what has disappeared is left out, and the rest is served

    def add(self, folder: Path) -> bool:
        """Add a folder of `cenote fit` or `cenote tournament`; return whether it is one."""
        if (folder / PLAN).is_file():
            self.tournaments.append(folder)
        elif (folder / CONFIG).is_file():
            self.models.append(folder)
        else:
            return False
        return True

    @contextmanager
    def leave_out(self, name: object) -> Iterator[None]:
        """Log what cannot be opened any more, after a restart; otherwise it is an error."""
        try:
            yield
        except (ValueError, OSError) as error:
            if not self.restarted:
                raise
            logger.warning("%s is not served any more: %s", name, error)

    def index_version(self) -> tuple[tuple[int, int], ...]:
        """Return values that change when the index in a folder is written."""
        versions = list[tuple[int, int]]()
        if self.index is None:
            return ()
        for name in INDEX_FILES:
            with suppress(OSError):
                status = (Path(self.index).expanduser() / name).stat()
                if status.st_size:
                    versions.append((status.st_size, status.st_mtime_ns))
        return tuple(versions)

    def add_demo(self, folder: Path) -> bool:
        """Add what a demo has written so far; return whether there was anything."""
        index, world = folder / "index", folder / "world"
        has_index = (index / INDEX).is_file()
        if has_index:
            self.index = self.index or str(index)
        if (world / "annotations.jsonl").is_file():
            self.world = world
        return any([self.add(folder / "run"), self.add(folder / "tournament"), has_index])


def find_sources(folders: Sequence[Path], index: str | None = None) -> Sources:
    """Find out what each folder contains; raise ValueError for a folder that cannot be served."""
    if not folders and index is None:
        raise ValueError(
            "nothing to serve: give a folder of cenote fit, tournament or demo, or --index"
        )
    is_folder = index is not None and not is_milvus(index)
    if index is not None and is_folder and not (Path(index).expanduser() / INDEX).is_file():
        raise ValueError(f"{index} is not an index: `cenote index IMAGES -o {index}` creates one")
    sources = Sources(index=index)
    for folder in folders:
        if (folder / INDEX).is_file():
            raise ValueError(f"{folder} is an index: use cenote serve --index {folder}")
        if not (sources.add(folder) or sources.add_demo(folder)):
            problem = "is not a run" if folder.exists() else "does not exist"
            raise ValueError(f"{folder} {problem}: give a folder of cenote fit, tournament or demo")
        if folder not in sources.models or (folder / REPORT).is_file():
            sources.report = sources.report or folder / REPORT
    if folders:
        sources.title = folders[0].resolve().name
    return sources


def strip_directories(message: str) -> str:
    """Reduce paths to file names: clients must not learn where files are stored."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/'\"]+/)+", "", message)
