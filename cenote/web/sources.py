"""What is served: the folders of models, tournaments, an index and example photographs."""

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
    datasets: list[Path] = field(default_factory=list)  # example photographs are taken from these
    report: Path | None = None  # an index.html, which may be written later
    title: str = "Cenote"

    def add(self, folder: Path) -> None:
        """Add a folder of `cenote fit`, `cenote tournament` or `cenote demo`."""
        if (folder / PLAN).is_file():
            self.tournaments.append(folder)
        elif (folder / CONFIG).is_file():
            self.models.append(folder)
            if not (folder / REPORT).is_file():
                return
        elif not self._add_demo(folder):
            problem = "is not a run" if folder.exists() else "does not exist"
            raise ValueError(f"{folder} {problem}: give a folder of cenote fit, tournament or demo")
        self.report = self.report or folder / REPORT

    def _add_demo(self, folder: Path) -> bool:
        """Add what a demo has written so far; return whether there was anything."""
        run, tournament, index = (folder / name for name in ("run", "tournament", "index"))
        has_model = (run / CONFIG).is_file()
        has_tournament = (tournament / PLAN).is_file()
        has_index = (index / INDEX).is_file()
        if has_model:
            self.models.append(run)
        if has_tournament:
            self.tournaments.append(tournament)
        if has_index:
            self.index = self.index or str(index)
        if (folder / "world").is_dir():
            self.datasets.append(folder / "world")
        return has_model or has_tournament or has_index


def find_sources(folders: Sequence[Path], index: str | None = None) -> Sources:
    """Find out what each folder contains; raise ValueError for a folder that cannot be served."""
    if not folders and index is None:
        raise ValueError(
            "nothing to serve: give a folder of cenote fit, tournament or demo, or --index"
        )
    sources = Sources(index=index)
    for folder in folders:
        if (folder / INDEX).is_file():
            raise ValueError(f"{folder} is an index: use cenote serve --index {folder}")
        sources.add(folder)
    if folders:
        sources.title = folders[0].resolve().name
    if index is not None and not _may_be_index(index):
        raise ValueError(
            f"{index} is not an index: `cenote index PHOTOGRAPHS -o {index}` creates one"
        )
    return sources


def _may_be_index(address: str) -> bool:
    """Milvus is contacted by the worker, not here."""
    is_milvus = "://" in address or address.endswith(".db")
    return is_milvus or (Path(address).expanduser() / INDEX).is_file()


def strip_directories(message: str) -> str:
    """Reduce paths to file names: clients must not learn where files are stored."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/'\"]+/)+", "", message)
