"""Contenders that train together in one pass over the cached features, as many as fit into memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...data.files import write_atomically
from ...models.frozen import FrozenBackbone, PooledHead
from ...predict.distributed import rank
from ...predict.feature_batches import FeatureBatches
from ..checkpoint import NAME as CHECKPOINT
from ..config import OptimizationConfig
from ..engine import Engine, Stopped
from ..extraction import SplitFeatures
from ..log import write_results
from ..state import active_states
from ..tasks.probe import Probe
from .candidates import Entry
from .maps import Boxed, BoxJudge, Looks

# Parameters that train at a time. Weights, gradients, two moments and the best weights so far: twenty bytes each.
ROOM = 100_000_000
Say = Callable[[str], None]
Heat = list[tuple[Entry, Sequence[float]]]  # with the rates it tries


@dataclass
class Arena:
    """What every heat needs."""

    frozen: FrozenBackbone
    features: SplitFeatures
    classes: int
    settings: OptimizationConfig
    judge: BoxJudge | None  # where there are boxes
    photos: Looks | None  # the first seed's maps of these are kept
    rehearsal: bool  # only the choice of rates counts
    device: torch.device
    say: Say


def heats(
    entries: Sequence[tuple[Entry, Sequence[float]]], sizes: dict[str, int], room: int = ROOM
) -> Iterator[Heat]:
    """In order, so many as have room; one that is too large for it plays alone."""
    heat: Heat = []
    taken = 0
    for entry, rates in entries:
        size = sizes[entry.name] * len(rates)
        if heat and taken + size > room:
            yield heat
            heat, taken = [], 0
        heat.append((entry, rates))
        taken += size
    if heat:
        yield heat


def play(
    arena: Arena, heat: Heat, seed: int, folder: Path, resume: bool
) -> dict[str, dict[str, Any]]:
    """By entry: the rate that validation chose, its accuracy, its map's. Kept in results.json and not played again."""
    results = folder / "results.json"
    if resume and results.is_file():
        return dict(json.loads(results.read_text())["entries"])
    settings = arena.settings
    own = OptimizationConfig(**{**settings.__dict__, "seed": settings.seed + seed})
    wanted = [
        (f"{entry.name}@{lr:g}", lambda entry=entry: entry.top(arena.frozen, arena.classes), lr)
        for entry, rates in heat
        for lr in rates
    ]
    probe = Probe(arena.features.train, arena.features.val, own, wanted, arena.device)
    try:
        Engine(probe, own, folder).run(resume and (folder / CHECKPOINT).is_file())
    except Stopped:
        if active_states(probe.states):
            raise
    chosen = {entry.name: _choose(probe, entry, rates) for entry, rates in heat}
    tops = {
        name: probe.best_head(found)
        for name, found in chosen.items()
        if found is not None and not arena.rehearsal
    }
    test = arena.features.val if arena.features.test is None else arena.features.test
    right = dict(
        zip(
            tops,
            probe.accuracies(list(tops.values()), FeatureBatches(test, 256)),
            strict=True,
        )
    )
    played: dict[str, dict[str, Any]] = {}
    for entry, rates in heat:
        tried = {f"{lr:g}": _told(probe, entry, lr) for lr in rates}
        found = chosen[entry.name]
        if found is None:
            played[entry.name] = {"failed": next(iter(tried.values())), "rates": tried}
            continue
        boxed = arena.judge(tops[entry.name]) if arena.judge and tops and rank() == 0 else Boxed()
        played[entry.name] = {
            "lr": found.lr, "epoch": found.best_epoch + 1, "val": found.best_score, "accuracy": right.get(entry.name),
            "boxes": boxed.score, "map": boxed.kind, "threshold": boxed.threshold, "failed": None, "rates": tried,
        }  # fmt: skip
    if rank() == 0:
        if seed == 0:  # the one whose models and maps are shown; others would fill the disk
            _write_tops(folder / "tops", tops)
            if arena.photos is not None:
                _write_maps(folder / "maps.npz", arena.photos, tops)
        write_results(folder, {"entries": played})  # from here on the heat is over
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return played


def _choose(probe: Probe, entry: Entry, rates: Sequence[float]) -> Any:
    """The best on validation; of equals the one with the smaller rate."""
    names = {f"{entry.name}@{lr:g}" for lr in rates}
    finished = [c for c in probe.states if c.name in names and c.best]
    return max(finished, key=lambda c: (c.failed is None, c.best_score, -c.lr), default=None)


def _told(probe: Probe, entry: Entry, lr: float) -> float | str:
    contender = next(c for c in probe.states if c.name == f"{entry.name}@{lr:g}")
    return contender.failed or contender.best_score


def file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "@.+-" else "_" for c in name)


def _write_tops(folder: Path, tops: dict[str, PooledHead]) -> None:
    from safetensors.torch import save_file

    for name, top in tops.items():
        with write_atomically(folder / f"{file_name(name)}.safetensors") as temporary:
            save_file(
                {key: value.contiguous().cpu() for key, value in top.state_dict().items()},
                temporary,
            )


def read_top(folder: Path, entry: Entry, frozen: FrozenBackbone, classes: int) -> PooledHead:
    """The weights that the heat in this folder kept for an entry."""
    from safetensors.torch import load_file

    top = entry.top(frozen, classes)
    top.load_state_dict(load_file(folder / "tops" / f"{file_name(entry.name)}.safetensors"))
    return top.eval()


def _write_maps(path: Path, photos: Looks, tops: dict[str, PooledHead]) -> None:
    """Where each looked in the photographs, and of which kind the map is."""
    arrays: dict[str, Any] = {}
    for name, top in tops.items():
        maps, kind = photos.maps(top)
        if maps is not None:
            arrays[f"{kind}/{name}"] = maps.numpy()
    with write_atomically(path) as temporary:
        np.savez_compressed(temporary, **arrays)
