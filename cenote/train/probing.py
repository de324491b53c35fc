"""k-NN, linear and efficient probing of frozen backbones, as the EP benchmark compares them."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from ..backbones import create_backbone
from ..data import Dataset
from ..data.splits import Splits, refuse_several_classes, split
from ..metrics.retrieval import knn_accuracy
from ..models.frozen import FrozenBackbone
from ..models.own import own_tokens
from ..pooling.own import OwnPool
from ..predict.cache_folder import weights_digest
from ..predict.distributed import rank
from ..report.probing import (
    EP,
    EP_ALL,
    KNN,
    KNN_OWN,
    LINEAR,
    LINEAR_OWN,
    BackboneResult,
    ProbeReport,
    ProbeResult,
)
from .checkpoint import run_processes
from .config import OptimizationConfig
from .extraction import Extraction, SplitFeatures
from .log import write_results
from .recipes import Recipe
from .tournament.candidates import Candidate
from .tournament.run import TournamentConfig, create_plan, train_candidates, write_plan
from .tournament.training import CandidateTrainer

PLAN = "probe.json"
# Of k-NN: those that the benchmark searches.
NEIGHBOURS, TEMPERATURES = (5, 10, 15, 20, 50, 100, 200), (0.07, 0.1, 0.2)
KNN_OF = {LINEAR: KNN, LINEAR_OWN: KNN_OWN}  # k-NN of the vectors that a linear probe reads
MIN_STEPS = 16  # of an epoch: few images have a smaller batch than the recipe
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Encoder:
    """A backbone by name, with its own weights or those of a file."""

    backbone: str
    weights: Path | None = None

    @property
    def folder(self) -> str:
        """The name of a folder for it; weights of several runs may all be model.safetensors."""
        name = self.backbone
        if self.weights is not None:
            name += f"-{self.weights.resolve().parent.name}-{self.weights.stem}"
        return "".join(c if c.isalnum() or c in ".-" else "_" for c in name)


@dataclass(frozen=True)
class ProbeConfig:
    """Which backbones are probed, and how."""

    encoders: tuple[Encoder, ...]
    recipe: Recipe
    settings: OptimizationConfig  # the recipe's, with other values where they are given
    seeds: int = 3
    batch: int | None = None  # None: the recipe's, or less for few images
    rates: tuple[float, ...] = ()  # learning rates to choose from; by default the recipe's

    def training(self, encoder: Encoder, images: int) -> TournamentConfig:
        """Return how the probes of an encoder are trained on this number of images.

        A small batch keeps the recipe's learning rates: steps of LARS are relative to the weights.
        """
        recipe = self.recipe.config
        batch = self.batch or min(recipe.train.batch, max(images // MIN_STEPS, 2))
        return TournamentConfig(
            encoder.backbone,
            encoder.weights,
            kind="probe",
            seeds=self.seeds,
            rates=self.rates or recipe.options.rates,
            pool_lr_factors=(recipe.train.pool_lr_factor,),
            settings=replace(self.settings, batch=batch),
        )


def run_probe(
    data: Dataset, folder: Path, config: ProbeConfig, resume: bool = False
) -> ProbeReport:
    """Probe every backbone on the same images; write results.json in `folder`.

    Each backbone has a folder of its own in `folder`: a resumed run may add backbones.
    """
    refuse_several_classes(data, "probing")
    if not resume and any(folder.glob(f"*/{PLAN}")):
        raise ValueError(f"{folder} already has probes: use --resume or another folder")
    if resume and not folder.is_dir():
        raise ValueError(f"{folder} does not exist: there are no probes to resume")
    splits = probe_splits(data, config.settings.seed)
    encoders = config.encoders
    for encoder in encoders[1:]:  # reports a typo before hours of work
        create_backbone(encoder.backbone, pretrained=True, weights=encoder.weights)
    with run_processes(folder, resume, splits.train, splits.val) as device:
        rows = []
        for number, encoder in enumerate(encoders, 1):
            if len(encoders) > 1:
                logger.info("backbone %d of %d: %s", number, len(encoders), encoder.backbone)
            training = config.training(encoder, len(splits.train))
            rows.append(probe_backbone(splits, folder / encoder.folder, training, device))
        classes = len(splits.train.classes)
        report = ProbeReport(data.name, config.recipe.name, classes, config.seeds, rows)
        if rank() == 0:
            write_results(folder, report.to_json())
    return report


def probe_splits(data: Dataset, seed: int) -> Splits:
    """Return the splits; nothing is selected on the test images.

    Without a test split, the validation split is the test, and another one is held out.
    """
    splits = split(data, seed=seed)
    if splits.test is None:
        logger.info("no test split: the %d validation images are the test", len(splits.val))
        splits = split(splits.train, seed=seed)._replace(test=splits.val)
    return splits


def probe_candidates(frozen: FrozenBackbone) -> list[Candidate]:
    """Return the probes that are trained on a backbone, by the name of their column.

    LP reads the CLS token; without one, or if the encoder pools with attention of its own, the
    average of the patches [README of the EP benchmark].
    """
    backbone, own = frozen.backbone, frozen.own
    attends = isinstance(own, OwnPool) and not own.no_attention
    candidates = [Candidate(LINEAR, "gap"), Candidate(EP, "ep")]
    if backbone.has_cls and not attends:
        candidates[0] = Candidate(LINEAR, "cls", "cls")
    if backbone.has_cls:
        candidates.append(Candidate(EP_ALL, "ep", "all"))
    if isinstance(own, OwnPool):
        candidates.append(Candidate(LINEAR_OWN, "own", own_tokens(own), {"frozen": True}))
    return candidates


def probe_backbone(
    splits: Splits, folder: Path, config: TournamentConfig, device: torch.device
) -> BackboneResult:
    """Probe one backbone; resume if it was started in `folder` before."""
    resume, settings = (folder / PLAN).is_file(), config.settings
    started = time.monotonic()
    backbone = create_backbone(config.backbone, pretrained=True, weights=config.weights)
    frozen = FrozenBackbone(backbone.to(device))
    candidates = probe_candidates(frozen)
    folder.mkdir(parents=True, exist_ok=True)
    features = SplitFeatures(Extraction(frozen, None, settings, folder), splits)
    plan = create_plan(
        config,
        candidates,
        splits,
        settings,
        backbone=config.backbone,
        weights=weights_digest(frozen.backbone),
        rates=list(config.rates),
    )
    write_plan(folder / PLAN, plan, config.seeds, resume)
    trainer = CandidateTrainer(frozen, features, len(splits.train.classes), settings, device)
    extracted = time.monotonic()
    probes = {
        KNN_OF[candidate.name]: nearest_neighbours(trainer, candidate)
        for candidate in candidates
        if candidate.name in KNN_OF
    }
    for name, result in train_candidates(config, trainer, candidates, folder, resume)[0].items():
        probes[name] = ProbeResult(
            result.accuracy, result.val, {"lr": result.lr}, result.trained, result.failed
        )
    assert features.test is not None
    return BackboneResult(
        backbone=config.backbone,
        weights=None if config.weights is None else "/".join(config.weights.parts[-2:]),
        size=frozen.backbone.preprocessing.size,
        grid=list(features.train.store.layout.grid),
        dim=frozen.backbone.dim,
        reads={"cls": "CLS", "gap": "average"}[candidates[0].pool],
        probes=probes,
        images={split: len(getattr(features, split)) for split in Splits._fields},
        rates=list(config.rates),
        settings=asdict(settings),
        seconds={"features": extracted - started, "training": time.monotonic() - extracted},
    )


def nearest_neighbours(trainer: CandidateTrainer, candidate: Candidate) -> ProbeResult:
    """Classify by the votes of training images; validation selects their number and temperature."""
    head, features = candidate.create_head(trainer.frozen, 0).to(trainer.device), trainer.features
    memory, val, test = (
        trainer.vectors(head.eval(), cached)
        for cached in (features.train, features.val, features.evaluated)
    )
    shares = {
        (k, temperature): share
        for temperature in TEMPERATURES
        for k, share in knn_accuracy(*memory, *val, NEIGHBOURS, temperature).items()
    }
    k, temperature = min(shares, key=lambda choice: (-shares[choice], choice))  # ties: fewest
    accuracy = knn_accuracy(*memory, *test, (k,), temperature)[k]
    selected = {"k": k, "temperature": temperature}
    return ProbeResult([100 * accuracy], [100 * shares[k, temperature]], selected)
