"""What is served: the folders of models, tournaments and an index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CONFIG, PLAN, REPORT, INDEX = "config.json", "plan.json", "index.html", "index.json"


@dataclass
class Sources:
    """All paths come from the command line, none from a request."""

    models: list[Path] = field(default_factory=list)  # saved models
    tournaments: list[Path] = field(default_factory=list)
    index: str | None = None
    world: Path | None = None  # a demo's data set, whose test images are examples
    report: Path | None = None  # an index.html, which may be written later
    title: str = "Cenote"

    def add(self, folder: Path) -> bool:
        """Add a folder of `cenote fit` or `cenote tournament`; return whether it is one."""
        if (folder / PLAN).is_file():
            self.tournaments.append(folder)
        elif (folder / CONFIG).is_file():
            self.models.append(folder)
        else:
            return False
        return True

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
    is_milvus = index is not None and ("://" in index or index.endswith(".db"))
    if index is not None and not is_milvus and not (Path(index).expanduser() / INDEX).is_file():
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
