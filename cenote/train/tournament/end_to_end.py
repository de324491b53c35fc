"""The tournament of whole networks: `fit` with every pool and seed, with a recipe's settings."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...data import Dataset
from ...data.ground_truth import boxes_of, with_boxes
from ...data.splits import Splits, refuse_several_classes, split
from ...evaluate.validators import LocalizationValidator
from ...metrics import BoxAccuracy
from ...metrics.box_accuracy import CentredBox
from ...models import PooledModel, load, save_model
from ...models.frozen import PooledHead
from ...models.saving import CONFIG, WEIGHTS
from ...models.surgery import create_finer_backbone
from ...predict.distributed import gathered, processes, rank
from ...predict.maps import MapPredictor
from ...predict.object_map import store_object_map
from ...report.tournament import MAP_NAMES, CandidateResult, TournamentReport
from ..build import build_model
from ..checkpoint import NAME as CHECKPOINT
from ..config import RESUMABLE_CHANGES, Options, RunConfig
from ..engine import Diverged
from ..fit import fit
from ..log import Stopped, write_results
from . import ranking
from .candidates import Candidate, create_candidates, usable_candidates
from .maps import MapScore, example_photos
from .run import (
    PLAN,
    SPEED,
    Calls,
    TournamentConfig,
    TournamentResult,
    add_seed,
    add_speed,
    can_resume,
    write_plan,
)
from .training import Maps, SeedResult, read_pass, write_maps

FIT = "fit"  # the folder of a run, in the folder of its candidate and seed
logger = logging.getLogger(__name__)


def run_end_to_end(
    data: Dataset,
    folder: Path,
    config: TournamentConfig,
    recipe: str,
    network: RunConfig,
    resume: bool = False,
) -> TournamentResult:
    """Train a network with every pool, rank them, save the recommended one and results.json.

    `network` is the configuration that the recipe and the options of the command make.
    """
    if network.task == "head" or network.model.freeze:
        raise ValueError(f"{recipe} does not train the backbone: leave out --recipe")
    resume = can_resume(folder, resume)
    refuse_several_classes(data, "a tournament of whole networks")
    splits = split(data, seed=network.train.seed)
    test, classes = splits.val if splits.test is None else splits.test, splits.train.classes
    boxed = with_boxes(test, config.boxes)
    with processes() as device:
        started = time.monotonic()
        shape = _feature_shape(network)
        candidates = _candidates(config, network, shape)
        results = {}
        for candidate in candidates:
            model = build_model(with_pool(network, candidate), len(classes))
            parameters = sum(p.numel() for p in model.parameters())
            results[candidate.name] = candidate.empty_result(shape.dim, shape.grid, parameters)
        folder.mkdir(parents=True, exist_ok=True)
        plan = _plan(config, recipe, network, candidates, splits)
        write_plan(folder / PLAN, plan, config.seeds, resume)
        photos = example_photos(boxed if len(boxed) else test)
        trainer = NetworkTrainer(splits, network, boxed, photos, folder, device)
        maps = trainer.train(candidates, results, config.seeds)
        baseline = _centred_box(boxed, shape.side)
        report = TournamentReport(
            data=data.name,
            backbone=network.model.backbone,
            kind=config.kind,
            classes=len(classes),
            judged="val" if splits.test is None else "test",
            images=len(test),
            train_images=len(splits.train),
            box_images=baseline.count,
            centred_box=100 * baseline.result().score if baseline.count else None,
            dim=shape.dim,
            grid=list(shape.grid),
            seeds=config.seeds,
            rates=[network.train.lr],
            standings=ranking.rank(list(results.values())),
            seconds={"training": time.monotonic() - started},
            settings=asdict(network.train),
            recipe=recipe,
        )
        ranking.conclude(report, [candidate.group for candidate in candidates])
        if rank() == 0:
            if report.recommended is not None:
                numbers = {candidate.name: n for n, candidate in enumerate(candidates, 1)}
                runs = {
                    result.name: trainer.folder_of(numbers[result.name], network.train.seed) / FIT
                    for result in report.ranked
                }
                images = torch.rand(16, 3, shape.side, shape.side, device=device)
                calls = partial(_calls, runs, images)
                add_speed(report.ranked, folder / SPEED, len(images), calls)
                model = load(runs[report.recommended]).to(device)
                save_model(model, folder)
                store_object_map(model, splits.train, folder, network.train.readers)
            write_results(folder, report.to_json())
        return TournamentResult(report, photos, maps)


def with_pool(network: RunConfig, candidate: Candidate) -> RunConfig:
    """Return the configuration with the candidate's pool."""
    changes: Options = {name: getattr(candidate, name) for name in ("pool", "tokens", "combine")}
    model = replace(network.model, pool_options=dict(candidate.options), **changes)
    return replace(network, model=model)


class FeatureShape(NamedTuple):
    dim: int
    grid: tuple[int, int]
    side: int  # of an image


def _with_options(candidate: Candidate, options: Options) -> Candidate:
    """Return the candidate with the recipe's options of its pool, the exponent in its name."""
    options = {**candidate.options, **options}
    gamma = options.get("gamma")
    label = "no gamma" if gamma is None else f"gamma {gamma:g}"
    name = re.sub(r"gamma [\d.]+", label, candidate.name)
    return candidate._replace(name=name, options=options)


@torch.no_grad()
def _feature_shape(network: RunConfig) -> FeatureShape:
    model = build_model(with_pool(network, Candidate("gap", "gap"))).eval()
    side = model.backbone.preprocessing.size
    features = model.features(torch.zeros(1, 3, side, side))
    return FeatureShape(features.tokens.shape[-1], features.grid, side)


def _candidates(
    config: TournamentConfig, network: RunConfig, shape: FeatureShape
) -> list[Candidate]:
    model = network.model
    backbone = create_finer_backbone(
        model.backbone, model.stride, img_size=model.img_size, **model.backbone_options
    )
    candidates = create_candidates(config.kind, backbone, config.pools, config.gammas)
    if config.kind == "pools":
        candidates = [
            _with_options(c, model.pool_options) if c.pool == model.pool else c for c in candidates
        ]
    strict = bool(config.pools or config.gammas)
    return usable_candidates(candidates, shape.dim, shape.grid, strict)


def _plan(
    config: TournamentConfig,
    recipe: str,
    network: RunConfig,
    candidates: Sequence[Candidate],
    splits: Splits,
) -> Options:
    """Return everything that changes the results; more seeds only add to them."""
    plan: Options = {
        "backbone": network.model.backbone,
        "recipe": recipe,
        "kind": config.kind,
        "contenders": [candidate.name for candidate in candidates],
        "groups": {candidate.name: candidate.group for candidate in candidates},
        "boxes": config.boxes,
        "data": splits.fingerprint(),
    }
    sections = {**network.identity(), "settings": asdict(network.train)}
    for section in ("model", "augment", "preprocessing", "settings"):
        values = {k: v for k, v in sections[section].items() if k not in RESUMABLE_CHANGES}
        plan |= {f"{section}.{key}": value for key, value in values.items()}
    as_saved: Options = json.loads(json.dumps(plan))
    return as_saved


@dataclass(frozen=True)
class NetworkTrainer:
    """Trains networks one after the other, each in its own folder."""

    splits: Splits
    network: RunConfig
    boxed: Dataset  # images with boxes, to evaluate maps on
    photos: Dataset  # to show maps of
    folder: Path  # of the tournament
    device: torch.device

    def folder_of(self, number: int, seed: int) -> Path:
        return self.folder / f"seed-{seed}" / f"heat-{number}"

    def train(
        self, candidates: Sequence[Candidate], results: Mapping[str, CandidateResult], seeds: int
    ) -> Maps:
        """Add the outcomes of all seeds to `results`; return the maps of the first seed."""
        maps: Maps = {}
        first = self.network.train.seed
        for seed in range(first, first + seeds):
            for number, candidate in enumerate(candidates, 1):
                if results[candidate.name].failed is not None:
                    continue
                where = (seed - first + 1, seeds, number, len(candidates), candidate.name)
                logger.info("seed %d of %d, network %d of %d: %s", *where)
                folder = self.folder_of(number, seed)
                if not (folder / "results.json").is_file():
                    self._train_network(candidate, seed, folder)
                obsolete = [CHECKPOINT] if seed == first else [CHECKPOINT, CONFIG, WEIGHTS]
                for name in obsolete:
                    (folder / FIT / name).unlink(missing_ok=True)
                seed_results, seed_maps = read_pass(folder)
                add_seed(results[candidate.name], seed_results[candidate.name])
                maps = seed_maps | maps
        return maps

    def _train_network(self, candidate: Candidate, seed: int, folder: Path) -> None:
        """Train and evaluate a network; results.json says that this is done."""
        config = with_pool(self.network, candidate)
        config, run = replace(config, train=replace(config.train, seed=seed)), folder / FIT
        maps: Maps = {}
        try:
            report = fit(self.splits, run, config, resume=run.is_dir(), object_map=False)
        except Diverged as failure:
            result = SeedResult(failed=str(failure).split(", with ")[0])
        except Stopped as stop:
            raise Stopped(str(stop).replace(str(run), str(self.folder))) from stop
        else:
            gathered(None)  # wait until the model is saved
            model = load(run).to(self.device).eval()
            kind, boxes = _map_kind(model), MapScore()
            if kind is not None:
                maps[candidate.name] = kind, self._maps(model, kind)
                if len(self.boxed):
                    boxes = self._box_score(model, kind)
            accuracy = (report.test or report.val)["accuracy"]
            val = report.val["accuracy"]
            result = SeedResult(epoch=report.epoch, val=val, accuracy=accuracy, **boxes._asdict())
        if rank() == 0:
            write_maps(folder, maps)
            write_results(folder, {"entries": {candidate.name: asdict(result)}})
        gathered(None)  # wait until they are written

    def _box_score(self, model: PooledModel, kind: str) -> MapScore:
        train = self.network.train
        validator = LocalizationValidator(self.boxed, "boxes", train.batch, train.readers)
        validator.kind = kind
        accuracy = validator.evaluate(model)
        assert isinstance(accuracy, BoxAccuracy)
        best = accuracy.result()
        return MapScore(100 * best.score, kind, best.thresholds[accuracy.deltas.index(0.5)])

    def _maps(self, model: PooledModel, kind: str) -> np.ndarray[Any, Any]:
        """Return maps of the photographs for their true classes."""
        predictor = MapPredictor.create(model, kind)
        maps: dict[int, np.ndarray[Any, Any]] = {}
        for batch in predictor.iterate(self.photos, torch.from_numpy(self.photos.labels)):
            maps |= dict(zip(batch.positions, batch.maps.numpy(), strict=True))
        for share in gathered(maps):
            maps |= share
        blank = np.zeros(next(iter(maps.values())).shape, np.float32)  # of an unreadable one
        return np.stack([maps.get(i, blank) for i in range(len(self.photos))])


def _calls(runs: Mapping[str, Path], images: Tensor) -> Calls:
    """Return calls of pool and head of trained networks, without keeping their backbones."""
    calls: Calls = {}
    for name, folder in runs.items():
        model = load(folder).to(images.device).eval()
        head = PooledHead(model.pool, model.tokens)
        head.after, head.head = model.after, model.head
        calls[name] = partial(head.eval(), model.features(images))
        calls[""] = partial(model.backbone, images[:1])
    return calls


def _map_kind(model: PooledModel) -> str | None:
    """Return the kind of map that is evaluated; None if the model has none."""
    for kind in model.map_kinds():
        if kind in MAP_NAMES:
            with suppress(ValueError):  # an encoder whose attention cannot be read
                return MapPredictor.create(model, kind).kind
    return None


def _centred_box(boxed: Dataset, side: int) -> BoxAccuracy:
    """Return the accuracy of a fixed box in the middle, as a baseline."""
    accuracy, blank = CentredBox(), np.zeros((1, side, side), np.float32)
    for i in range(len(boxed)):
        with suppress(ValueError):  # an unreadable image or a wrong box
            size = boxed.image(i).size
            accuracy.add(blank, [boxes_of(boxed, i, size)], [size])
    return accuracy
