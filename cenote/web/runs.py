"""What is served: which folders hold models, a tournament, an index, photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CONFIG, PLAN, REPORT, INDEX = "config.json", "plan.json", "index.html", "index.json"


@dataclass(frozen=True)
class Served:
    """All paths come from the command line; none comes from a request."""

    models: tuple[Path, ...] = ()  # saved ones
    tournaments: tuple[Path, ...] = ()
    index: str | None = None
    worlds: tuple[Path, ...] = ()  # data sets that examples may come from
    report: Path | None = None  # an index.html, which may be written later
    title: str = "Cenote"


def find_served(runs: Sequence[Path], index: str | None = None) -> Served:
    """What these folders are; what is none of them is refused."""
    models, tournaments, worlds, reports = list[Path](), list[Path](), list[Path](), list[Path]()
    for run in runs:
        whole = [run / name for name in ("run", "tournament", "index")]
        if (run / PLAN).is_file():
            tournaments.append(run)
            reports.append(run)
        elif (run / CONFIG).is_file():
            models.append(run)
            reports += [run] if (run / REPORT).is_file() else []
        elif any(_is_something(part) for part in whole):  # a demo's folder
            models += [whole[0]] if (whole[0] / CONFIG).is_file() else []
            tournaments += [whole[1]] if (whole[1] / PLAN).is_file() else []
            index = index or (str(whole[2]) if (whole[2] / INDEX).is_file() else None)
            worlds += [run / "world"] if (run / "world").is_dir() else []
            reports.append(run)
        elif not run.exists():
            raise ValueError(f"{run} is not there: name a run of cenote fit, tournament or demo")
        else:
            raise ValueError(
                f"{run} is no run: name a folder that cenote fit, tournament or demo wrote"
            )
    if not runs and index is None:
        raise ValueError(
            "nothing to serve: name a run of cenote fit, tournament or demo, or an --index"
        )
    if index is not None and not _may_be_index(index):
        raise ValueError(f"{index} is no index: `cenote index PHOTOGRAPHS -o {index}` makes one")
    report = next((folder / REPORT for folder in reports), None)
    title = runs[0].resolve().name if runs else "Cenote"
    return Served(tuple(models), tuple(tournaments), index, tuple(worlds), report, title)


def _is_something(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (CONFIG, PLAN, INDEX))


def _may_be_index(address: str) -> bool:
    """Milvus is asked by the worker."""
    return (
        "://" in address
        or address.endswith(".db")
        or (Path(address).expanduser() / INDEX).is_file()
    )
