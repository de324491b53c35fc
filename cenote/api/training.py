"""Train a model, probe backbones, or run a tournament of poolings, in one call."""

from __future__ import annotations

import html
import inspect
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..allocator import keep_memory
from ..data import Dataset, open_dataset
from ..device import use_device
from ..options import check_names, errors_name_arguments
from ..predict.distributed import is_main_process
from ..report.html import write_page
from ..report.probing import ProbeReport, probe_columns, probe_page, probe_table, write_probe
from ..report.table import Column, Row
from ..report.tournament import (
    TournamentReport,
    tournament_columns,
    tournament_page,
    tournament_table,
    write_tournament,
)
from ..train.callbacks import Callback, use_callbacks
from ..train.config import PROBE
from ..train.configure import configure
from ..train.fit import fit as run_fit
from ..train.probing import Encoder, ProbeConfig, run_probe
from ..train.recipes import load_recipe, read_fields
from ..train.tournament.end_to_end import run_end_to_end
from ..train.tournament.run import TournamentConfig, TournamentResult, run_tournament
from .model import Model

RUNS = Path("runs")  # of output folders that are not named


@errors_name_arguments
def fit(
    data: str | Path | Dataset,
    out: str | Path | None = None,
    *,
    recipe: str | None = None,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Model:
    """Train a model on labelled images, save it in the folder `out`, and return it.

    `data` is a folder of class folders, a list, or another name that `open_dataset` accepts;
    `options` are those of `cenote fit`: freeze=True, pool="simpool", epochs=30, ... Without `out`
    the folder is runs/fit, or runs/fit-2 and so on if that exists.
    """
    use_device(device)
    keep_memory()
    named = None if recipe is None else load_recipe(recipe)
    if isinstance(options.get("lr"), int | float):
        options["lr"] = (options["lr"],)
    config = configure("fit", named, _name_of(data), **options)
    folder = _output_folder(out, "fit")
    with use_callbacks(callbacks):
        run_fit(_open(data), folder, config, resume=resume)
    return Model(folder)


@dataclass(frozen=True)
class Tournament:
    """The result of a tournament; `folder` has the report, the plots and the recommended model."""

    folder: Path
    report: TournamentReport = field(repr=False)
    files: tuple[str, ...] = ()  # that were written for people to look at

    @property
    def verdict(self) -> str:
        """Which pooling suits these images, in one sentence, and what ties with it."""
        return self.report.recommendation

    @property
    def winner(self) -> str | None:
        """The recommended candidate, whose model is saved; None if all failed."""
        return self.report.recommended

    @property
    def model(self) -> Model:
        return Model(self.folder)

    @property
    def table(self) -> Any:
        """One row per candidate, best first: a pandas DataFrame, or a list without pandas."""
        return _data_frame(tournament_columns(self.report), self.report.standings)

    def show(self) -> None:
        """Open the report in a browser."""
        webbrowser.open((self.folder / "index.html").resolve().as_uri())

    def __str__(self) -> str:
        return tournament_table(self.report)

    def _repr_html_(self) -> str:
        table = html.escape(tournament_table(self.report))
        return f"<p><b>{html.escape(self.verdict)}</b></p><pre>{table}</pre>"


@errors_name_arguments
def tournament(
    data: str | Path | Dataset,
    out: str | Path | None = None,
    *,
    pools: str | Sequence[str] = (),
    backbone: str | None = None,
    weights: str | Path | None = None,
    recipe: str | None = None,
    ablation: bool = False,
    gamma: Sequence[float] | None = None,
    lr: Sequence[float] = (),
    seeds: int = 3,
    boxes: int = 400,
    size: int | None = None,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    command: str = "",
    **settings: Any,
) -> Tournament:
    """Find the pooling that suits these images: train every pool on the same frozen features.

    Arguments are the options of `cenote tournament`; `settings` are epochs, batch, seed and
    workers. Without `out` the folder is runs/tournament, or runs/tournament-2 and so on if that
    exists. `command` is shown in the report.
    """
    _check_settings(tournament, settings)
    kinds = {"pools": bool(pools), "ablation": ablation, "gamma": gamma is not None}
    requested = [kind for kind, value in kinds.items() if value]
    if len(requested) > 1:
        names = " and ".join(f"--{kind}" for kind in requested)
        raise ValueError(f"{names} are different tournaments: choose one")
    if recipe is None and size is not None:
        raise ValueError("--size is an option of networks that are trained: give a --recipe")
    if recipe is not None and len(lr) > 1:
        raise ValueError(f"whole networks are trained with one --lr, got {len(lr)}")
    if gamma and min(gamma) <= 0:
        raise ValueError(f"--gamma must be positive, got {min(gamma):g}")
    use_device(device)
    keep_memory()
    settings = {name: value for name, value in settings.items() if value is not None}
    config = TournamentConfig(
        kind=next(iter(requested), "pools"),
        pools=(pools,) if isinstance(pools, str) else tuple(pools),
        gammas=tuple(gamma or ()),
        seeds=seeds,
        boxes=boxes,
    )
    folder, weights = _output_folder(out, "tournament"), None if weights is None else Path(weights)
    with use_callbacks(callbacks):
        if recipe is not None:
            changes = {"backbone": backbone, "weights": weights, "size": size, "lr": lr or None}
            network = configure("fit", load_recipe(recipe), "", **changes, **settings)
            result = run_end_to_end(_open(data), folder, config, recipe, network, resume)
        else:
            probe = read_fields(PROBE, settings, "--")
            probe = replace(probe, warmup=min(probe.warmup, probe.epochs / 5))
            config = replace(
                config,
                weights=weights,
                settings=probe,
                backbone=backbone or config.backbone,
                rates=tuple(lr) or config.rates,
            )
            result = run_tournament(_open(data), folder, config, resume, measure_speed=True)
    files = _write_report(result, folder, command) if is_main_process() else ()
    return Tournament(folder, result.report, files)


def _write_report(result: TournamentResult, folder: Path, command: str) -> tuple[str, ...]:
    report, photos, maps = result.report, result.photos, result.maps
    page = tournament_page(report, photos, maps, command, sum(report.seconds.values()))
    return (*write_tournament(report, folder, photos, maps), *write_page(folder, page))


@dataclass(frozen=True)
class Probes:
    """The result of `probe`; `folder` has results.json, the tables and the page."""

    folder: Path
    report: ProbeReport
    files: tuple[str, ...] = ()  # that were written for people to look at

    @property
    def table(self) -> Any:
        """One row per backbone: a pandas DataFrame, or a list without pandas."""
        return _data_frame(probe_columns(self.report.rows), self.report.rows)

    def __str__(self) -> str:
        return probe_table(self.report)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(probe_table(self.report))}</pre>"


@errors_name_arguments
def probe(
    data: str | Path | Dataset,
    out: str | Path | None = None,
    *,
    backbone: str | Sequence[str] = "lite0",
    weights: str | Path | Sequence[str | Path | None] | None = None,
    recipe: str = "probing/ep",
    lr: Sequence[float] = (),
    seeds: int = 3,
    resume: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    command: str = "",
    batch: int | None = None,
    **settings: Any,
) -> Probes:
    """Compare frozen backbones by k-NN, linear probing and efficient probing of the same features.

    Arguments are the options of `cenote probe`; `weights` has a file, or None, for each backbone,
    and `settings` are epochs, seed and workers. Without `out` the folder is runs/probe, or
    runs/probe-2 and so on if that exists. `command` is shown in the report.
    """
    _check_settings(probe, settings)
    names = [backbone] if isinstance(backbone, str) else list(backbone)
    paths = [weights] if isinstance(weights, str | Path) else list(weights or [None] * len(names))
    if len(paths) != len(names):
        raise ValueError(
            f"--weights needs a file, or own, for each of {len(names)} backbones, got {len(paths)}"
        )
    if batch is not None and batch < 2:
        raise ValueError(f"--batch must be at least 2, got {batch}")
    use_device(device)
    keep_memory()
    named = load_recipe(recipe)
    train = read_fields(
        named.config.train, {k: v for k, v in settings.items() if v is not None}, "--"
    )
    config = ProbeConfig(
        tuple(
            Encoder(name, None if path is None else Path(path))
            for name, path in zip(names, paths, strict=True)
        ),
        named,
        replace(train, warmup=min(train.warmup, train.epochs / 5)),
        seeds,
        batch,
        tuple(lr),
    )
    folder = _output_folder(out, "probe")
    with use_callbacks(callbacks):
        report = run_probe(_open(data), folder, config, resume)
    files: tuple[str, ...] = ()
    if is_main_process():
        page = probe_page(report, command)
        files = (*write_probe(report, folder), *write_page(folder, page))
    return Probes(folder, report, files)


def _check_settings(function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise ValueError for an argument that is neither one of the function nor of training."""
    known = [*inspect.signature(function).parameters, *vars(PROBE)]
    check_names(f"cenote.{function.__name__}", settings, known)


def _data_frame(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Any:
    values = [{column.name: column.value(row) for column in columns} for row in rows]
    if find_spec("pandas") is None:
        return values
    return import_module("pandas").DataFrame(values)


def _open(data: str | Path | Dataset) -> Dataset:
    return data if isinstance(data, Dataset) else open_dataset(data)


def _name_of(data: str | Path | Dataset) -> str:
    """Return the name of a published data set: sop:FOLDER is "sop"."""
    return data.name if isinstance(data, Dataset) else str(data).partition(":")[0]


def _output_folder(out: str | Path | None, name: str) -> Path:
    """Return the folder, by default runs/NAME, or the next of runs/NAME-2, ... that is free."""
    if out is not None:
        return Path(out)
    number, folder = 1, RUNS / name
    while folder.exists():
        number += 1
        folder = RUNS / f"{name}-{number}"
    return folder
