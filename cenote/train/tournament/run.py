"""The tournament: which pooling suits these images? Every pool on the same frozen features."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...backbones import create_backbone
from ...data import Dataset
from ...data.files import write_atomically
from ...data.splits import Splits, split
from ...models import save_model
from ...models.frozen import FrozenBackbone
from ...predict.cache_folder import weights_digest
from ...predict.distributed import rank
from ...predict.novelty import store_class_means
from ...predict.object_map import store_object_map
from ...predict.timing import best_times
from ...report.tournament import CandidateResult, TournamentReport
from ..checkpoint import run_processes
from ..config import PROBE, RESUMABLE_CHANGES, OptimizationConfig, Options
from ..extraction import Extraction, SplitFeatures
from ..log import write_results
from ..tasks.probe import LearningRates
from . import ranking
from .candidates import Candidate, create_candidates, usable_candidates
from .maps import MapImages, UncroppedFeatures
from .progress import RemainingTime, selection_epochs
from .training import CandidateTrainer, Maps, SeedResult, Trial, load_head

PLAN, SPEED = "plan.json", "speed.json"
MAX_POOL_LR = 1e-3  # of the matrices of a pool: attention collapses to a point above it
Calls = dict[str, Callable[[], object]]  # to measure the time of
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TournamentConfig:
    """Which candidates are trained, and how."""

    backbone: str = "lite0"
    weights: Path | None = None
    kind: str = "pools"  # or ablation, gamma
    pools: tuple[str, ...] = ()  # all if empty
    gammas: tuple[float, ...] = ()
    seeds: int = 3
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)  # learning rates to choose from
    pool_lr_factors: tuple[float, ...] = (1.0, 0.1, 0.03)  # for the matrices of a pool
    boxes: int = 400  # maximal number of images to evaluate maps on
    settings: OptimizationConfig = PROBE

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}")
        if self.boxes < 0:
            raise ValueError(f"--boxes must not be negative, got {self.boxes}")
        if not self.rates or min(self.rates) <= 0 or len(set(self.rates)) < len(self.rates):
            rates = " ".join(map(str, self.rates)) or "none"
            raise ValueError(f"--lr needs different positive numbers, got {rates}")
        if not self.pool_lr_factors or min(self.pool_lr_factors) <= 0:
            raise ValueError(f"pool_lr_factors must be positive, got {self.pool_lr_factors}")

    def choices(self, has_matrices: bool) -> list[LearningRates]:
        """Return the learning rates that a candidate tries: every one of `rates` for the head.

        The matrices of a pool learn at most with MAX_POOL_LR, unless LARS adapts their steps.
        """
        if not has_matrices or self.settings.optimizer == "lars":
            return [LearningRates(lr) for lr in self.rates]
        choices = []
        for lr in self.rates:
            limit = MAX_POOL_LR / lr
            factors = [f for f in self.pool_lr_factors if f <= limit * (1 + 1e-9)] or [limit]
            choices += [LearningRates(lr, factor) for factor in factors]
        return choices


@dataclass
class TournamentResult:
    report: TournamentReport  # as in results.json
    photos: Dataset  # uncropped images that the maps belong to
    maps: Maps


def run_tournament(
    data: Dataset,
    folder: Path,
    config: TournamentConfig,
    resume: bool = False,
    measure_speed: bool = False,
) -> TournamentResult:
    """Train and rank all candidates; save the recommended model and results.json in `folder`."""
    resume = can_resume(folder, resume)
    settings = config.settings
    splits = split(data, seed=settings.seed)
    with run_processes(folder, resume, splits.train, splits.val) as device:
        started = time.monotonic()
        backbone = create_backbone(config.backbone, pretrained=True, weights=config.weights)
        frozen = FrozenBackbone(backbone.to(device))
        # Reports a typo before the images are read.
        candidates = create_candidates(
            config.kind, backbone, frozen.own, config.pools, config.gammas
        )
        folder.mkdir(parents=True, exist_ok=True)
        features = SplitFeatures(Extraction(frozen, None, settings, folder), splits)
        grid = features.train.store.layout.grid
        strict = bool(config.pools or config.gammas)
        candidates = usable_candidates(candidates, frozen.backbone.dim, grid, strict)
        images = MapImages.select(splits, config.boxes, frozen.backbone)
        plan = create_plan(
            config,
            candidates,
            splits,
            settings,
            backbone=config.backbone,
            weights=weights_digest(frozen.backbone),
            rates=list(config.rates),
            pool_lr_factors=list(config.pool_lr_factors),
        )
        write_plan(folder / PLAN, plan, config.seeds, resume)
        uncropped = UncroppedFeatures(frozen, images, settings.readers, data.multi_label)
        classes = splits.train.classes
        trainer = CandidateTrainer(frozen, features, len(classes), settings, device, uncropped)
        extracted = time.monotonic()
        results, maps = train_candidates(config, trainer, candidates, folder, resume)
        report = create_report(
            data.name,
            config,
            features.readable,
            images,
            results,
            backbone=config.backbone,
            dim=frozen.backbone.dim,
            grid=list(grid),
            rates=list(config.rates),
            metric=trainer.metric,
            seconds={"features": extracted - started, "training": time.monotonic() - extracted},
            settings=asdict(settings),
        )
        if rank() == 0:
            by_name = {candidate.name: candidate for candidate in candidates}
            if report.recommended is not None:
                if measure_speed:
                    timed = [by_name[result.name] for result in report.ranked]
                    count = min(16, len(features.train))
                    calls = partial(_calls, timed, trainer, count)
                    add_speed(report.ranked, folder / SPEED, count, calls)
                passes = sorted((folder / f"seed-{settings.seed}").glob("heat-*"))
                head = load_head(passes, by_name[report.recommended], frozen)
                model = frozen.create_model(head.to(device), classes)
                model.multi_label = data.multi_label
                model.map_kind = results[report.recommended].map
                model.map_size = results[report.recommended].map_size
                save_model(model, folder)
                store_class_means(model, features.train, features.val, folder)
                store_object_map(model, splits.train, folder, settings.readers)
            write_results(folder, report.to_json())
        return TournamentResult(report, images.photos, maps)


def can_resume(folder: Path, resume: bool) -> bool:
    """Return whether to resume; raise if a new tournament would replace one, or there is none."""
    if not resume and (folder / PLAN).exists():
        raise ValueError(f"{folder} already has a tournament: use --resume or another folder")
    if resume and not folder.is_dir():
        raise ValueError(f"{folder} does not exist: there is no tournament to resume")
    return resume and (folder / PLAN).is_file()


def train_candidates(
    config: TournamentConfig,
    trainer: CandidateTrainer,
    candidates: Sequence[Candidate],
    folder: Path,
    resume: bool,
) -> tuple[dict[str, CandidateResult], Maps]:
    """Select a learning rate for each candidate, then train it with every seed.

    Learning rates are selected on validation in a third of the epochs, before the seeds: so no
    seed is special. The maps are those of the first seed.
    """
    grid = trainer.features.train.store.layout.grid
    results, trials, with_matrices = {}, dict[str, Trial](), set[str]()
    settings, epochs = trainer.settings, selection_epochs(trainer.settings.epochs)
    selection = training = 0.0  # seconds of the selection of learning rates, and of one seed
    for candidate in candidates:
        info = trainer.inspect(candidate)
        empty = candidate.empty_result(info.pool, grid, info.parameters)
        results[candidate.name] = replace(empty, knn=info.knn)
        trial = Trial(candidate, config.choices(info.has_matrices), info.parameters)
        trials[candidate.name] = trial
        if info.has_matrices:
            with_matrices.add(candidate.name)
        epoch = math.ceil(len(trainer.features.train) / settings.batch) * info.step_seconds
        if len(trial.choices) > 1:
            selection += epoch * epochs * len(trial.choices)
        training += epoch * settings.epochs
    open_trials = [trial for trial in trials.values() if len(trial.choices) > 1]
    remaining = RemainingTime([selection] * bool(open_trials) + [training] * config.seeds)
    if open_trials:
        logger.info(remaining.of_next_stage())
        for name, selected in _select_rates(open_trials, trainer, folder / "rates", resume).items():
            results[name].failed = selected.failed
            if selected.lr is not None and selected.pool_lr_factor is not None:
                choice = LearningRates(selected.lr, selected.pool_lr_factor)
                trials[name] = trials[name]._replace(choices=[choice])
    maps: Maps = {}
    for seed in range(settings.seed, settings.seed + config.seeds):
        number, images = seed - settings.seed + 1, len(trainer.features.train)
        message = "seed %d of %d: %d training images; %s"
        logger.info(message, number, config.seeds, images, remaining.of_next_stage())
        first = seed == settings.seed
        seeded = replace(trainer, settings=replace(settings, seed=seed), save_heads=first)
        running = [trial for name, trial in trials.items() if results[name].failed is None]
        seed_results, seed_maps = seeded.train(running, folder / f"seed-{seed}", resume)
        maps |= seed_maps
        for name, result in seed_results.items():
            add_seed(results[name], result)
            if name in with_matrices:
                results[name].pool_lr_factor = result.pool_lr_factor
    return results, maps


def _select_rates(
    trials: Sequence[Trial], trainer: CandidateTrainer, folder: Path, resume: bool
) -> dict[str, SeedResult]:
    settings = trainer.settings
    epochs, runs = selection_epochs(settings.epochs), sum(len(trial.choices) for trial in trials)
    message = "selecting learning rates: %d runs of %d candidates for %d epochs"
    logger.info(message, runs, len(trials), epochs)
    short = replace(settings, epochs=epochs, warmup=min(settings.warmup, epochs / 4))
    selector = replace(trainer, settings=short, only_select_lr=True)
    return selector.train(trials, folder, resume)[0]


def add_seed(result: CandidateResult, seed: SeedResult) -> None:
    if seed.failed is not None:
        result.failed = seed.failed
        return
    assert seed.accuracy is not None and seed.val is not None and seed.outcomes is not None
    if not result.accuracy:  # of the first seed, whose model is saved
        result.map, result.map_size, result.threshold = seed.map, seed.map_size, seed.threshold
    result.lr = seed.lr
    result.accuracy.append(seed.accuracy)
    result.val.append(seed.val)
    result.outcomes.append(seed.outcomes)
    if seed.boxes is not None and seed.box_outcomes is not None:
        result.boxes.append(seed.boxes)
        result.box_outcomes.append(seed.box_outcomes)


def create_plan(
    config: TournamentConfig,
    candidates: Sequence[Candidate],
    splits: Splits,
    settings: OptimizationConfig,
    **details: object,
) -> Options:
    """Return everything that changes the results; more seeds only add to them."""
    plan = {
        "kind": config.kind,
        "contenders": [candidate.name for candidate in candidates],
        "groups": {candidate.name: candidate.group for candidate in candidates},
        "boxes": config.boxes,
        "data": splits.fingerprint(),
        "test": len(splits.test or ()),
        **{f"settings.{key}": value for key, value in asdict(settings).items()},
        **details,
    }
    fixed = {k: v for k, v in plan.items() if k.rpartition(".")[2] not in RESUMABLE_CHANGES}
    as_saved: Options = json.loads(json.dumps(fixed))
    return as_saved


def write_plan(path: Path, plan: Options, seeds: int, resume: bool) -> None:
    """Save the plan; raise ValueError if a resumed run has another one."""
    if resume:
        saved = json.loads(path.read_text())
        changes = [
            f"{key.removeprefix('settings.')} was {saved.get(key)!r} and is now {value!r}"
            for key, value in plan.items()
            if saved.get(key) != value
        ]
        if changes:
            raise ValueError(f"a resumed run must not change: {'; '.join(changes)}")
    if rank() == 0:
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps({**plan, "seeds": seeds}, indent=2) + "\n")


def create_report(
    name: str,
    config: TournamentConfig,
    splits: Splits,
    images: MapImages,
    results: Mapping[str, CandidateResult],
    **details: Any,
) -> TournamentReport:
    """Rank the results of readable splits; `details` are further fields of the report."""
    report = TournamentReport(
        data=name,
        kind=config.kind,
        classes=len(splits.train.classes),
        judged="val" if splits.test is None else "test",
        images=len(splits.val if splits.test is None else splits.test),
        train_images=len(splits.train),
        box_images=len(images.test),
        map_images=len(images.val),
        centred_box=images.test.centred_box(images.sizes[0]) if len(images.test) else None,
        seeds=config.seeds,
        standings=ranking.rank(list(results.values())),
        **details,
    )
    ranking.conclude(report, [result.group for result in results.values()])
    return report


@torch.inference_mode()
def add_speed(
    results: Sequence[CandidateResult], path: Path, images: int, create_calls: Callable[[], Calls]
) -> None:
    """Add milliseconds per image of backbone, and of pool and head; measured once, then saved.

    `create_calls` returns a call of each candidate on `images` images, and "", the backbone on one.
    """
    speed = json.loads(path.read_text()) if path.is_file() else {"tops": {}}
    if speed["tops"].keys() != {result.name for result in results}:
        seconds = best_times(create_calls(), 5)
        backbone = 1000 * seconds.pop("")
        tops = {name: 1000 * time / images for name, time in seconds.items()}
        speed = {"backbone": backbone, "tops": tops}
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps(speed, indent=2) + "\n")
    for result in results:
        result.ms, result.backbone_ms = speed["tops"][result.name], speed["backbone"]


def _calls(candidates: Sequence[Candidate], trainer: CandidateTrainer, images: int) -> Calls:
    frozen = trainer.frozen
    batch = trainer.features.train.features(range(images)).to(trainer.device)
    side = frozen.backbone.preprocessing.size
    image = torch.zeros(1, 3, side, side, device=trainer.device)
    calls: Calls = {"": partial(frozen.backbone, image)}
    for candidate in candidates:
        head = candidate.create_head(frozen, trainer.classes).to(trainer.device).eval()
        calls[candidate.name] = partial(head, batch)
    return calls
