"""The tournament of whole networks: `fit` with every pool and seed, with a recipe's settings."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ...data import Dataset
from ...data.splits import Splits, refuse_several_classes, split
from ...metrics.arrays import Array
from ...models import PooledModel, load, save_model
from ...models.frozen import PooledHead
from ...models.own import NoOwnPool, Own, create_own_pool
from ...models.saving import CONFIG, WEIGHTS
from ...models.surgery import create_finer_backbone
from ...predict.distributed import gathered, rank
from ...predict.embedding import Loading, predict_logits
from ...predict.maps import MapPredictor
from ...predict.novelty import store_class_means
from ...predict.object_map import store_object_map
from ...report.tournament import MAP_NAMES, CandidateResult
from ..build import build_model
from ..checkpoint import NAME as CHECKPOINT
from ..checkpoint import run_processes
from ..config import Options, RunConfig
from ..engine import Diverged
from ..fit import fit
from ..log import write_results
from .candidates import Candidate, create_candidates, usable_candidates
from .maps import MapImages
from .run import (
    PLAN,
    SPEED,
    Calls,
    TournamentConfig,
    TournamentResult,
    add_seed,
    add_speed,
    can_resume,
    create_plan,
    create_report,
    write_plan,
)
from .training import Maps, SeedResult, read_pass, write_pass

SECTIONS = ("model", "augment", "preprocessing")  # of the configuration, besides the settings
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
    with run_processes(folder, resume, splits.train, splits.val) as device:
        started = time.monotonic()
        template = build_model(with_pool(network, Candidate("gap", "gap"))).eval()
        dim, grid = _feature_shape(template)
        candidates = _candidates(config, network, dim, grid)
        results = {}
        for candidate in candidates:
            model = build_model(with_pool(network, candidate), len(splits.train.classes))
            parameters = sum(p.numel() for p in model.parameters())
            results[candidate.name] = candidate.empty_result(model.pool, grid, parameters)
        folder.mkdir(parents=True, exist_ok=True)
        sections = {k: v for k, v in network.identity().items() if k in SECTIONS}
        plan = create_plan(
            config,
            candidates,
            splits,
            network.train,
            backbone=network.model.backbone,
            recipe=recipe,
            **{f"{name}.{k}": v for name, values in sections.items() for k, v in values.items()},
        )
        write_plan(folder / PLAN, plan, config.seeds, resume)
        images = MapImages.select(splits, config.boxes, template.backbone)
        trainer = NetworkTrainer(splits, network, images, folder, device)
        maps = trainer.train(candidates, results, config.seeds)
        report = create_report(
            data.name,
            config,
            splits,
            images,
            results,
            backbone=network.model.backbone,
            dim=dim,
            grid=list(grid),
            rates=[network.train.lr],
            seconds={"training": time.monotonic() - started},
            settings=asdict(network.train),
            recipe=recipe,
        )
        if rank() == 0:
            if report.recommended is not None:
                numbers = {candidate.name: n for n, candidate in enumerate(candidates, 1)}
                runs = {
                    result.name: trainer.folder_of(numbers[result.name], network.train.seed) / FIT
                    for result in report.ranked
                }
                batch = torch.rand(16, 3, images.sizes[0], images.sizes[0], device=device)
                calls = partial(_calls, runs, batch)
                add_speed(report.ranked, folder / SPEED, len(batch), calls)
                model = load(runs[report.recommended]).to(device)
                model.map_kind = results[report.recommended].map
                model.map_size = results[report.recommended].map_size
                save_model(model, folder)
                readers = network.train.readers
                store_class_means(model, splits.train, splits.val, folder, readers)
                store_object_map(model, splits.train, folder, readers)
            write_results(folder, report.to_json())
        return TournamentResult(report, images.photos, maps)


def with_pool(network: RunConfig, candidate: Candidate) -> RunConfig:
    """Return the configuration with the candidate's pool."""
    changes: Options = {name: getattr(candidate, name) for name in ("pool", "tokens", "combine")}
    model = replace(network.model, pool_options=dict(candidate.options), **changes)
    return replace(network, model=model)


def _with_options(candidate: Candidate, options: Options) -> Candidate:
    """Return the candidate with the recipe's options of its pool, the exponent in its name."""
    options = {**candidate.options, **options}
    gamma = options.get("gamma")
    label = "no gamma" if gamma is None else f"gamma {gamma:g}"
    name = re.sub(r"gamma [\d.]+", label, candidate.name)
    return candidate._replace(name=name, options=options)


@torch.no_grad()
def _feature_shape(model: PooledModel) -> tuple[int, tuple[int, int]]:
    """Return the number of channels, and the grid."""
    side = model.backbone.preprocessing.size
    features = model.features(torch.zeros(1, 3, side, side))
    return features.tokens.shape[-1], features.grid


def _candidates(
    config: TournamentConfig, network: RunConfig, dim: int, grid: tuple[int, int]
) -> list[Candidate]:
    model = network.model
    backbone = create_finer_backbone(
        model.backbone,
        model.stride,
        model.no_dilation,
        img_size=model.img_size,
        **model.backbone_options,
    )
    try:
        encoder_pool: Own | NoOwnPool = create_own_pool(backbone)
    except NoOwnPool as error:
        encoder_pool = error
    candidates = create_candidates(config.kind, backbone, encoder_pool, config.pools, config.gammas)
    candidates = [c for c in candidates if "frozen" not in c.options]  # all weights are trained
    if config.kind == "pools":
        candidates = [
            _with_options(c, model.pool_options) if c.pool == model.pool else c for c in candidates
        ]
    return usable_candidates(candidates, dim, grid, bool(config.pools or config.gammas))


@dataclass(frozen=True)
class NetworkTrainer:
    """Trains networks one after the other, each in its own folder."""

    splits: Splits
    network: RunConfig
    images: MapImages
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
        else:
            gathered(None)  # wait until the model is saved
            model = load(run).to(self.device).eval()
            outcomes = self._outcomes(model)
            score, shown = self.images.score(_map_kinds(model), partial(self._maps, model))
            result = SeedResult(
                epoch=report.epoch,
                val=report.val["accuracy"],
                accuracy=100 * float(outcomes.mean()),
                outcomes=outcomes,
                **score._asdict(),
            )
            if shown is not None:
                maps[candidate.name] = shown
        if rank() == 0:
            write_pass(folder, {candidate.name: result}, maps)
        gathered(None)  # wait until they are written

    def _outcomes(self, model: PooledModel) -> Array:
        """Return 1 for each test image that is classified correctly, and 0 for the others."""
        test = self.splits.val if self.splits.test is None else self.splits.test
        train = self.network.train
        predictions = predict_logits(model, test, Loading(train.batch, train.readers))
        right = predictions.vectors.argmax(1) == predictions.labels(test)
        return right.double().numpy()

    def _maps(self, model: PooledModel, kind: str, split: str, size: int) -> Tensor:
        """Return maps of the images for their true classes, as `MapSource`."""
        dataset, train = self.images.dataset(split), self.network.train
        predictor = MapPredictor.create(model, kind, size, min(train.batch, 32), train.readers)
        maps: dict[int, Tensor] = {}
        for batch in predictor.iterate(dataset, torch.from_numpy(dataset.labels)):
            maps |= dict(zip(batch.positions, batch.maps, strict=True))
        for share in gathered(maps):
            maps |= share
        return torch.stack([maps[i] for i in range(len(dataset))])


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


def _map_kinds(model: PooledModel) -> list[str]:
    """Return the kinds of maps that are evaluated, the most telling first."""
    kinds = []
    for kind in model.map_kinds():
        if kind in MAP_NAMES:
            with suppress(ValueError):  # an encoder whose attention cannot be read
                kinds.append(MapPredictor.create(model, kind).kind)
    return kinds
