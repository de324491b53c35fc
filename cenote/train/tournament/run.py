"""Which pooling suits these images? Every pool on the same frozen features, several seeds, together in one pass."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...backbones import create_backbone
from ...data import Dataset
from ...data.files import write_atomically
from ...data.truth import with_boxes
from ...models import save_model
from ...models.frozen import FrozenBackbone, PooledHead
from ...predict.distributed import processes, rank
from ...predict.feature_cache import FeatureCache, weights_digest
from ..choices import PROBE
from ..config import HARMLESS, OptimizationConfig
from ..extraction import Extraction, SplitFeatures
from ..log import write_results
from ..splits import split
from .candidates import Entry, ablation_entries, able, gamma_entries, pool_entries
from .maps import BoxJudge, Looks, photographs
from .ranking import Standing, group_winners, noise, ranked, recommendation, recommended, ties
from .training import Arena, heats, play, read_top

RATES = (1e-3, 3e-3, 1e-2)
PLAN = "plan.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Game:
    """What is played."""

    backbone: str = "lite0"
    weights: Path | None = None
    kind: str = "pools"  # or ablation, gamma
    pools: tuple[str, ...] = ()  # all, where none is named
    gammas: tuple[float, ...] = ()
    seeds: int = 3
    rates: tuple[float, ...] = RATES
    boxes: int = 400  # images on which maps are judged, at most
    settings: OptimizationConfig = PROBE

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"a tournament has at least one seed, got {self.seeds}")
        if self.boxes < 0:
            raise ValueError(f"boxes is a number of images from 0, got {self.boxes}")
        if not self.rates or min(self.rates) <= 0 or len(set(self.rates)) < len(self.rates):
            raise ValueError(
                f"rates are different numbers above 0, got {' '.join(map(str, self.rates)) or 'none'}"
            )

    def entries(self, frozen: FrozenBackbone) -> list[Entry]:
        if self.kind == "ablation":
            return ablation_entries(frozen)
        return (
            gamma_entries(self.gammas) if self.kind == "gamma" else pool_entries(frozen, self.pools)
        )


@dataclass
class Outcome:
    report: dict[str, Any]  # as in results.json
    photos: Dataset  # whole, as the pictures show them
    maps: dict[
        str, tuple[str, np.ndarray[Any, Any]]
    ]  # by contender: the kind of map, and (photographs, H, W)


def tournament(
    data: Dataset,
    folder: Path,
    game: Game,
    cache: FeatureCache | None = None,
    resume: bool = False,
    clock: Clock | None = None,
    say: Say = print,
) -> Outcome:
    """Play it, save the recommended model in `folder`, and report. `clock` measures what an image costs."""
    if not resume and (folder / PLAN).exists():
        raise ValueError(
            f"{folder} holds a tournament already: resume it, or choose another folder"
        )
    if resume and not folder.is_dir():
        raise ValueError(f"{folder} is not there: there is no tournament to resume")
    resume = resume and (folder / PLAN).is_file()  # killed before it began, it begins
    settings = game.settings
    splits = split(data, seed=settings.seed, say=say)
    with processes() as device:
        started = time.monotonic()
        frozen = FrozenBackbone(
            create_backbone(game.backbone, pretrained=True, weights=game.weights).to(device)
        )
        entries = game.entries(frozen)  # a typo is told before the images are read
        folder.mkdir(parents=True, exist_ok=True)
        features = SplitFeatures(Extraction(frozen, cache, settings, folder), splits)
        grid = features.train.store.layout.grid
        entries = able(entries, frozen, grid, bool(game.pools or game.gammas), say)
        _agree(folder / PLAN, _plan(game, frozen, entries, features), game.seeds, resume)
        tested = splits.val if splits.test is None else splits.test
        boxed = with_boxes(tested, game.boxes)
        judge = BoxJudge(Looks(frozen, boxed, cache, settings.workers)) if len(boxed) else None
        photos = Looks(
            frozen, photographs(boxed if len(boxed) else tested), cache, settings.workers
        )
        classes = splits.train.classes
        arena = Arena(frozen, features, len(classes), settings, judge, photos, False, device, say)
        extracted = time.monotonic()
        standings, maps = _play_all(game, arena, entries, folder, resume)
        seconds = {"features": extracted - started, "training": time.monotonic() - extracted}
        report = _report(data.name, game, arena, standings, [e.group for e in entries], seconds)
        if rank() == 0:
            if clock is not None and report["recommended"] is not None:
                add_speed(report, measured(arena, standings, folder, clock))
            if report["recommended"] is not None:
                entry = next(e for e in entries if e.name == report["recommended"])
                save_model(
                    frozen.create_model(_trained(arena, entry, game, folder), classes), folder
                )
            write_results(folder, report)
        return Outcome(report, photos.dataset, maps)


def _play_all(
    game: Game, arena: Arena, entries: Sequence[Entry], folder: Path, resume: bool
) -> tuple[list[Standing], dict[str, tuple[str, np.ndarray[Any, Any]]]]:
    """Rates are chosen on validation in a rehearsal of a third of the epochs; then every seed trains all of them.

    So all seeds are alike: none of them has also chosen a rate.
    """
    standings = {entry.name: Standing(entry) for entry in entries}
    sizes = {entry.name: _trained_size(entry, arena) for entry in entries}
    maps: dict[str, tuple[str, np.ndarray[Any, Any]]] = {}
    rates = {entry.name: list(game.rates) for entry in entries}

    def round_of(arena: Arena, seed: int, where: Path) -> dict[str, dict[str, Any]]:
        playing = [(s.entry, rates[name]) for name, s in standings.items() if s.failed is None]
        found: dict[str, dict[str, Any]] = {}
        several = list(heats(playing, sizes))
        for number, heat in enumerate(several, 1):
            if len(several) > 1:
                arena.say(
                    f"heat {number} of {len(several)}: {', '.join(entry.name for entry, _ in heat)}"
                )
            found |= play(arena, heat, seed, where / f"heat-{number}", resume)
            if (kept := where / f"heat-{number}" / "maps.npz").is_file():
                maps.update(_read_maps(kept))
        return found

    if len(game.rates) > 1:
        third = max(1, round(arena.settings.epochs / 3))
        short = replace(arena.settings, epochs=third, warmup=min(arena.settings.warmup, third / 4))
        arena.say(f"rates: {len(entries)} contenders at {len(game.rates)} rates for {third} epochs")
        rehearsal = replace(arena, settings=short, judge=None, photos=None, rehearsal=True)
        for name, found in round_of(rehearsal, 0, folder / "rates").items():
            standings[name].failed, rates[name] = found["failed"], [found.get("lr", game.rates[0])]
    for seed in range(game.seeds):
        arena.say(f"seed {seed + 1} of {game.seeds}: {len(arena.features.train)} training images")
        for name, found in round_of(
            arena, seed, folder / f"seed-{arena.settings.seed + seed}"
        ).items():
            _add(standings[name], found)
    return ranked(list(standings.values())), maps


def _add(standing: Standing, found: Mapping[str, Any]) -> None:
    if found["failed"] is not None:
        standing.failed = str(found["failed"])
        return
    standing.lr, standing.map = found["lr"], found["map"]
    standing.accuracy.append(found["accuracy"])
    standing.val.append(found["val"])
    if found["boxes"] is not None:
        standing.boxes.append(found["boxes"])
        standing.threshold = (
            found.get("threshold") if standing.threshold is None else standing.threshold
        )


def _trained_size(entry: Entry, arena: Arena) -> int:
    return sum(p.numel() for p in entry.top(arena.frozen, arena.classes).parameters())


def _plan(
    game: Game, frozen: FrozenBackbone, entries: Sequence[Entry], features: SplitFeatures
) -> dict[str, Any]:
    """Whatever a change of which would change the numbers; more seeds only add to them."""
    test = 0 if features.test is None else len(features.test)
    return {
        "backbone": game.backbone,
        "weights": weights_digest(frozen.backbone),
        "kind": game.kind,
        "contenders": [entry.name for entry in entries],
        "rates": list(game.rates),
        "boxes": game.boxes,
        "images": {"train": len(features.train), "val": len(features.val), "test": test},
        **{f"settings.{k}": v for k, v in asdict(game.settings).items() if k not in HARMLESS},
    }


def _agree(path: Path, plan: dict[str, Any], seeds: int, resume: bool) -> None:
    """Write the plan down, for who follows the tournament; refuse what is not the one that was begun."""
    if resume:
        before = json.loads(path.read_text())
        changed = [
            f"{key.removeprefix('settings.')} was {before.get(key)!r} and is now {value!r}"
            for key, value in plan.items()
            if before.get(key) != value
        ]
        if changed:
            raise ValueError(
                f"a resumed tournament must be the one that was begun: {'; '.join(changed)}"
            )
    if rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps({**plan, "seeds": seeds}, indent=2) + "\n")


def _read_maps(path: Path) -> dict[str, tuple[str, np.ndarray[Any, Any]]]:
    with np.load(path) as found:
        return {key.partition("/")[2]: (key.partition("/")[0], found[key]) for key in found.files}


def _trained(arena: Arena, entry: Entry, game: Game, folder: Path) -> PooledHead:
    """As the first seed left it."""
    seed = folder / f"seed-{game.settings.seed}"
    where = next(heat for heat in sorted(seed.iterdir()) if entry.name in _names(heat))
    return read_top(where, entry, arena.frozen, arena.classes).to(arena.device)


def _names(heat: Path) -> Sequence[str]:
    results = heat / "results.json"
    return list(json.loads(results.read_text())["entries"]) if results.is_file() else []


def _report(
    name: str,
    game: Game,
    arena: Arena,
    standings: Sequence[Standing],
    order: list[str],
    seconds: dict[str, float],
) -> dict[str, Any]:
    features, frozen = arena.features, arena.frozen
    grid = features.train.store.layout.grid
    judged = features.val if features.test is None else features.test
    costs = {s.name: s.entry.cost(frozen, grid) for s in standings}
    parameters = {name: cost[0] for name, cost in costs.items()}
    tied = {s.name for s in ties(standings, len(judged))}
    winners = group_winners(sorted(standings, key=lambda s: order.index(s.entry.group)))
    taken = recommended(standings, parameters, len(judged))
    rows = [
        {
            "name": s.name,
            "pool": s.entry.pool,
            "tokens": s.entry.tokens,
            "options": dict(s.entry.options),
            "group": s.entry.group,
            "lr": s.lr,
            "accuracy": s.accuracy,
            "val": s.val,
            "boxes": s.boxes,
            "map": s.map,
            "threshold": s.threshold,
            "mean": s.mean if s.accuracy else None,
            "deviation": s.deviation if s.accuracy else None,
            "failed": s.failed,
            "paper": s.entry.paper,
            "tie": len(tied) > 1 and s.name in tied,
            "group_winner": winners.get(s.entry.group) == s.name,
            "parameters": costs[s.name][0],
            "trained": _trained_size(s.entry, arena),
            "flops": costs[s.name][1],
        }
        for s in standings
    ]
    return {
        "data": name,
        "backbone": game.backbone,
        "kind": game.kind,
        "classes": arena.classes,
        "judged": "val" if features.test is None else "test",
        "images": len(judged),
        "train_images": len(features.train),
        "box_images": 0 if arena.judge is None else len(arena.judge.looks),
        "centred_box": None if arena.judge is None else arena.judge.centred(),
        "dim": frozen.backbone.dim,
        "grid": list(grid),
        "seeds": game.seeds,
        "rates": list(game.rates),
        "recommendation": recommendation(standings, parameters, len(judged)),
        "recommended": None if taken is None else taken.name,
        "noise": noise(standings, len(judged)),
        "groups": winners,
        "standings": rows,
        "seconds": seconds,
        "settings": asdict(game.settings),
    }


Clock = Callable[
    [dict[str, Callable[[], object]], int], dict[str, float]
]  # calls, rounds -> best seconds of each


@torch.inference_mode()
def measured(
    arena: Arena, standings: Sequence[Standing], folder: Path, clock: Clock
) -> dict[str, Any]:
    """Milliseconds an image of the backbone, and of each pool and head, all in turn. Measured once, then kept."""
    path = folder / "speed.json"
    names = [s.name for s in standings if s.accuracy]
    if path.is_file() and set((kept := json.loads(path.read_text()))["tops"]) == set(names):
        return dict(kept)
    train, frozen = arena.features.train, arena.frozen
    several = train.features(range(min(16, len(train)))).to(arena.device)
    side, count = frozen.backbone.preprocessing.size, len(several.tokens)
    images = torch.zeros(1, 3, side, side, device=arena.device)
    calls: dict[str, Callable[[], object]] = {"": lambda: frozen.backbone(images)}
    for s in standings:
        if s.accuracy:
            top = s.entry.top(frozen, arena.classes).to(arena.device).eval()
            calls[s.name] = lambda top=top: top(several)  # type: ignore[misc]
    seconds = clock(calls, 5)
    found = {
        "backbone": 1000 * seconds.pop(""),
        "tops": {name: 1000 * value / count for name, value in seconds.items()},
    }
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(found, indent=2) + "\n")
    return found


def add_speed(report: dict[str, Any], speed: Mapping[str, Any]) -> None:
    for row in report["standings"]:
        if row["name"] in speed["tops"]:
            row["ms"], row["backbone_ms"] = speed["tops"][row["name"]], speed["backbone"]
