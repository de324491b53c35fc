"""The tournament: which pooling suits these images? Every pool on the same frozen features."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...backbones import create_backbone
from ...data import Dataset
from ...data.files import write_atomically
from ...data.ground_truth import one_class_each, with_boxes
from ...data.splits import split
from ...models import save_model
from ...models.frozen import FrozenBackbone
from ...predict.cache_folder import weights_digest
from ...predict.distributed import processes, rank
from ...predict.object_map import store_object_map
from ...predict.timing import best_times
from ...report.tournament import CandidateMaps, CandidateResult, TournamentReport
from ..config import PROBE, RESUMABLE_CHANGES, OptimizationConfig
from ..extraction import Extraction, SplitFeatures
from ..log import write_results
from ..tasks.probe import LearningRates
from . import ranking
from .candidates import Candidate, create_candidates, usable_candidates
from .maps import BoxScorer, UncroppedFeatures, example_photos
from .progress import RemainingTime, selection_epochs
from .training import CandidateTrainer, SeedResult, Trial, load_head

PLAN, SPEED = "plan.json", "speed.json"
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

    def choices(self, has_matrices: bool) -> list[LearningRates]:
        """Return the learning rates that a candidate tries.

        The matrices of a pool never learn faster than the slowest head: with larger learning rates
        attention collapses to a point on few images.
        """
        if not has_matrices:
            return [LearningRates(lr) for lr in self.rates]
        return [
            LearningRates(lr, factor)
            for lr in self.rates
            for factor in self.pool_lr_factors
            if lr * factor < min(self.rates) or (factor == 1 and lr == min(self.rates))
        ]


@dataclass
class TournamentResult:
    report: TournamentReport  # as in results.json
    photos: Dataset  # uncropped images that the maps belong to
    maps: dict[str, CandidateMaps]


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
    with processes() as device:
        started = time.monotonic()
        backbone = create_backbone(config.backbone, pretrained=True, weights=config.weights)
        frozen = FrozenBackbone(backbone.to(device))
        # Reports a typo before the images are read.
        candidates = create_candidates(config.kind, backbone, config.pools, config.gammas)
        folder.mkdir(parents=True, exist_ok=True)
        features = SplitFeatures(Extraction(frozen, None, settings, folder), splits)
        grid = features.train.store.layout.grid
        strict = bool(config.pools or config.gammas)
        candidates = usable_candidates(candidates, frozen.backbone.dim, grid, strict)
        write_plan(folder / PLAN, _plan(config, frozen, candidates, features), config.seeds, resume)
        test = one_class_each(splits.val if splits.test is None else splits.test)
        boxed = with_boxes(test, config.boxes)
        box_scorer = None
        if len(boxed):
            box_scorer = BoxScorer(UncroppedFeatures(frozen, boxed, settings.readers))
        examples = example_photos(boxed if len(boxed) else test)
        photos = UncroppedFeatures(frozen, examples, settings.readers)
        classes = splits.train.classes
        trainer = CandidateTrainer(
            frozen, features, len(classes), settings, device, box_scorer, photos
        )
        extracted = time.monotonic()
        results, maps = train_candidates(config, trainer, candidates, folder, resume)
        seconds = {"features": extracted - started, "training": time.monotonic() - extracted}
        report = _create_report(data.name, config, trainer, candidates, results, seconds)
        if rank() == 0:
            by_name = {candidate.name: candidate for candidate in candidates}
            if report.recommended is not None:
                if measure_speed:
                    timed = [by_name[result.name] for result in report.ranked]
                    images = min(16, len(features.train))
                    calls = partial(_calls, timed, trainer, images)
                    add_speed(report.ranked, folder / SPEED, images, calls)
                passes = sorted((folder / f"seed-{settings.seed}").glob("heat-*"))
                head = load_head(passes, by_name[report.recommended], frozen)
                model = frozen.create_model(head.to(device), classes)
                model.multi_label = data.multi_label
                save_model(model, folder)
                store_object_map(model, splits.train, folder, settings.readers)
            write_results(folder, report.to_json())
        return TournamentResult(report, photos.dataset, maps)


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
) -> tuple[list[CandidateResult], dict[str, CandidateMaps]]:
    """Select a learning rate for each candidate, then train it with every seed.

    Learning rates are selected on validation in a third of the epochs, before the seeds: so no
    seed is special. Results are ranked; the maps are those of the first seed.
    """
    grid = trainer.features.train.store.layout.grid
    results = {}
    for candidate in candidates:
        trained = trainer.number_of_parameters(candidate)
        empty = candidate.empty_result(trainer.frozen.backbone.dim, grid, trained)
        results[candidate.name] = replace(empty, knn=trainer.knn(candidate))
    with_matrices = {c.name for c in candidates if trainer.has_matrices(c)}
    choices = {c.name: config.choices(c.name in with_matrices) for c in candidates}
    trials: list[Trial] = [(c, choices[c.name]) for c in candidates if len(choices[c.name]) > 1]
    remaining = RemainingTime(_stages(config, trainer, candidates, trials))
    if trials:
        logger.info(remaining.of_next_stage())
        for name, selected in _select_rates(trials, trainer, folder / "rates", resume).items():
            results[name].failed = selected.failed
            if selected.lr is not None and selected.pool_lr_factor is not None:
                choices[name] = [LearningRates(selected.lr, selected.pool_lr_factor)]
    maps: dict[str, CandidateMaps] = {}
    settings = trainer.settings
    for seed in range(settings.seed, settings.seed + config.seeds):
        number, images = seed - settings.seed + 1, len(trainer.features.train)
        message = "seed %d of %d: %d training images; %s"
        logger.info(message, number, config.seeds, images, remaining.of_next_stage())
        seeded = replace(trainer, settings=replace(settings, seed=seed))
        if seed > settings.seed:
            seeded.photos = None
        trials = [(c, choices[c.name]) for c in candidates if results[c.name].failed is None]
        seed_results, seed_maps = seeded.train(trials, folder / f"seed-{seed}", resume)
        maps |= seed_maps
        for name, result in seed_results.items():
            add_seed(results[name], result)
            if name in with_matrices:
                results[name].pool_lr_factor = result.pool_lr_factor
    return ranking.rank(list(results.values())), maps


def _stages(
    config: TournamentConfig,
    trainer: CandidateTrainer,
    candidates: Sequence[Candidate],
    trials: Sequence[Trial],
) -> list[float]:
    """Estimate the seconds of the selection of learning rates, if there is one, and of each seed."""
    settings, images = trainer.settings, len(trainer.features.train)
    steps = math.ceil(images / settings.batch)
    epoch = {c.name: steps * trainer.seconds_of_step(c) for c in candidates}
    selection = sum(epoch[c.name] * len(rates) for c, rates in trials)
    stages = [sum(epoch.values()) * settings.epochs] * config.seeds
    return [selection * selection_epochs(settings.epochs), *stages] if trials else stages


def _select_rates(
    trials: Sequence[Trial], trainer: CandidateTrainer, folder: Path, resume: bool
) -> dict[str, SeedResult]:
    settings = trainer.settings
    epochs, runs = selection_epochs(settings.epochs), sum(len(rates) for _, rates in trials)
    message = "selecting learning rates: %d runs of %d candidates for %d epochs"
    logger.info(message, runs, len(trials), epochs)
    short = replace(settings, epochs=epochs, warmup=min(settings.warmup, epochs / 4))
    selector = replace(trainer, settings=short, box_scorer=None, photos=None, only_select_lr=True)
    return selector.train(trials, folder, resume)[0]


def add_seed(result: CandidateResult, seed: SeedResult) -> None:
    if seed.failed is not None:
        result.failed = seed.failed
        return
    assert seed.accuracy is not None and seed.val is not None
    result.lr, result.map = seed.lr, seed.map
    result.accuracy.append(seed.accuracy)
    result.val.append(seed.val)
    if seed.boxes is not None:
        result.boxes.append(seed.boxes)
        if result.threshold is None:
            result.threshold = seed.threshold


def _plan(
    config: TournamentConfig,
    frozen: FrozenBackbone,
    candidates: Sequence[Candidate],
    features: SplitFeatures,
) -> dict[str, Any]:
    """Return everything that changes the results; more seeds only add to them."""
    return {
        "backbone": config.backbone,
        "weights": weights_digest(frozen.backbone),
        "kind": config.kind,
        "contenders": [candidate.name for candidate in candidates],
        "groups": {candidate.name: candidate.group for candidate in candidates},
        "rates": list(config.rates),
        "pool_lr_factors": list(config.pool_lr_factors),
        "boxes": config.boxes,
        "images": {
            "train": len(features.train),
            "val": len(features.val),
            "test": 0 if features.test is None else len(features.test),
        },
        **{
            f"settings.{k}": v
            for k, v in asdict(config.settings).items()
            if k not in RESUMABLE_CHANGES
        },
    }


def write_plan(path: Path, plan: dict[str, Any], seeds: int, resume: bool) -> None:
    """Save the plan; raise ValueError if a resumed tournament has another one."""
    if resume:
        saved = json.loads(path.read_text())
        changes = [
            f"{key.removeprefix('settings.')} was {saved.get(key)!r} and is now {value!r}"
            for key, value in plan.items()
            if saved.get(key) != value
        ]
        if changes:
            raise ValueError(f"a resumed tournament must not change: {'; '.join(changes)}")
    if rank() == 0:
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps({**plan, "seeds": seeds}, indent=2) + "\n")


def _create_report(
    name: str,
    config: TournamentConfig,
    trainer: CandidateTrainer,
    candidates: Sequence[Candidate],
    results: list[CandidateResult],
    seconds: dict[str, float],
) -> TournamentReport:
    features, box_scorer = trainer.features, trainer.box_scorer
    report = TournamentReport(
        data=name,
        backbone=config.backbone,
        kind=config.kind,
        classes=trainer.classes,
        metric=trainer.metric,
        judged=features.evaluated_split,
        images=len(features.evaluated),
        train_images=len(features.train),
        box_images=len(box_scorer.features) if box_scorer else 0,
        centred_box=box_scorer.centred_box() if box_scorer else None,
        dim=trainer.frozen.backbone.dim,
        grid=list(features.train.store.layout.grid),
        seeds=config.seeds,
        rates=list(config.rates),
        standings=results,
        seconds=seconds,
        settings=asdict(config.settings),
    )
    ranking.conclude(report, [candidate.group for candidate in candidates])
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
