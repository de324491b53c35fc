"""Train candidates on the same cached features, as many in one pass as fit into memory."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...data.files import write_atomically
from ...metrics.arrays import Array
from ...metrics.intervals import wilson_interval
from ...metrics.retrieval import knn_accuracy
from ...models.frozen import FrozenBackbone, PooledHead
from ...pooling import Pool
from ...pooling.own import OwnPool
from ...predict.distributed import rank
from ...predict.feature_cache import CachedFeatures, FeatureBatches
from ...predict.timing import best_times
from ...report.tournament import CandidateMaps
from ..checkpoint import NAME as CHECKPOINT
from ..config import OptimizationConfig
from ..engine import Engine
from ..extraction import SplitFeatures
from ..log import Stopped, write_results
from ..optimizer import pool_matrices
from ..state import TrainState, active_states
from ..tasks.probe import LearningRates, Probe
from ..tasks.supervised import metric_and_loss
from .candidates import Candidate
from .maps import UncroppedFeatures

# Parameters that train at the same time: weights, gradients, two moments and the best weights so
# far are 20 bytes each.
MAX_PARAMETERS = 100_000_000
KNN, KNN_BATCH = 20, 256  # neighbours, as in DINO
Maps = dict[str, CandidateMaps]
ARRAYS = ("outcomes", "box_outcomes")  # of a SeedResult
logger = logging.getLogger(__name__)


class Trial(NamedTuple):
    """A candidate with the learning rates to try."""

    candidate: Candidate
    choices: Sequence[LearningRates]
    parameters: int


class CandidateInfo(NamedTuple):
    """What is known of a candidate before it is trained."""

    pool: Pool | None
    parameters: int  # that are trained
    has_matrices: bool  # whether its pool has a learning rate besides the head's
    knn: float | None
    step_seconds: float  # of an optimizer step of one batch


@dataclass
class SeedResult:
    """Result of a candidate with one seed, at the learning rate that is best on validation."""

    failed: str | None = None
    lr: float | None = None
    pool_lr_factor: float | None = None  # if the pool has matrices
    epoch: int | None = None
    val: float | None = None
    accuracy: float | None = None  # on the test split if there is one
    boxes: float | None = None
    map: str | None = None
    map_size: int | None = None
    threshold: float | None = None
    rates: dict[str, float | str] = field(default_factory=dict)  # score or failure of each rate
    # Whose means are `accuracy` and `boxes`; stored in arrays.npz, for paired comparisons.
    outcomes: Array | None = None  # (images,): 1 for right, 0 for wrong
    box_outcomes: Array | None = None


@dataclass
class CandidateTrainer:
    """Everything that training candidates needs besides the candidates."""

    frozen: FrozenBackbone
    features: SplitFeatures
    classes: int
    settings: OptimizationConfig
    device: torch.device
    uncropped: UncroppedFeatures | None = None  # to evaluate maps on
    save_heads: bool = False  # also save all heads, and maps of photographs
    only_select_lr: bool = False  # do not evaluate on the test split

    @property
    def metric(self) -> str:
        """What `accuracy` is: the mAP if images have several classes."""
        return metric_and_loss(self.features.train.dataset.multi_label)[0]

    def inspect(self, candidate: Candidate) -> CandidateInfo:
        head = candidate.create_head(self.frozen, self.classes).to(self.device)
        parameters = sum(p.numel() for p in head.parameters() if p.requires_grad)
        knn, matrices = self._knn(head.eval()), bool(pool_matrices(head))
        seconds = self._seconds_of_step(head.train())
        return CandidateInfo(head.pool, parameters, matrices, knn, seconds)

    @torch.inference_mode()
    def _knn(self, head: PooledHead) -> float | None:
        """Return the accuracy of nearest neighbours in percent, if the pool has no random weights.

        An exponent has its first value. Images with several classes have no such accuracy.
        """
        if self.features.train.dataset.multi_label:
            return None
        pool = head.pool
        if not isinstance(pool, OwnPool | None) and any(p.ndim for p in pool.parameters()):
            return None
        memory, queries = self.features.train, self.features.evaluated
        shares = knn_accuracy(*self.vectors(head, memory), *self.vectors(head, queries), (KNN,))
        return 100 * shares[KNN]

    @torch.inference_mode()
    def vectors(self, head: PooledHead, cached: CachedFeatures) -> tuple[Tensor, Tensor]:
        """Return what the head classifies, (images, D), and the labels."""
        starts = range(0, len(cached), KNN_BATCH)
        batches = (range(i, min(i + KNN_BATCH, len(cached))) for i in starts)
        vectors = [
            head.embed_features(cached.features(batch).to(self.device)).flatten(1)
            for batch in batches
        ]
        return torch.cat(vectors), cached.labels.to(self.device)

    def _seconds_of_step(self, head: PooledHead) -> float:
        positions = range(min(self.settings.batch, len(self.features.train)))
        features = self.features.train.features(positions).to(self.device)
        labels = self.features.train.labels[list(positions)].to(self.device)
        state = TrainState("", head, self.settings)
        criterion = metric_and_loss(self.features.train.dataset.multi_label)[1]

        def step() -> None:
            criterion(head(features), labels).backward()
            state.step(0.0, None, lambda module: None)

        return best_times({"": step}, 1)[""]

    def train(
        self, trials: Sequence[Trial], folder: Path, resume: bool
    ) -> tuple[dict[str, SeedResult], Maps]:
        """Train every candidate at each of its learning rates; return results and maps by name."""
        passes = list(split_into_passes(trials))
        results: dict[str, SeedResult] = {}
        maps: Maps = {}
        for number, trials_of_pass in enumerate(passes, 1):
            if len(passes) > 1:
                names = ", ".join(trial.candidate.name for trial in trials_of_pass)
                logger.info("pass %d of %d: %s", number, len(passes), names)
            pass_folder = folder / f"heat-{number}"
            pass_results, pass_maps = self._train_pass(trials_of_pass, pass_folder, resume)
            results |= pass_results
            maps |= pass_maps
        return results, maps

    def _train_pass(
        self, trials: Sequence[Trial], folder: Path, resume: bool
    ) -> tuple[dict[str, SeedResult], Maps]:
        if resume and (folder / "results.json").is_file():
            return read_pass(folder)
        runs = []  # name, function that creates the head, learning rates
        for candidate, choices, _ in trials:
            create = partial(candidate.create_head, self.frozen, self.classes)
            runs += [(f"{candidate.name}@{rates}", create, rates) for rates in choices]
        train, val = self.features.train, self.features.val
        probe = Probe(train, val, self.settings, runs, self.device)
        try:
            Engine(probe, self.settings, folder).run(resume and (folder / CHECKPOINT).is_file())
        except Stopped:
            if active_states(probe.states):  # interrupted, not diverged
                raise
        states = {state.name: state for state in probe.states}
        results: dict[str, SeedResult] = {}
        heads: dict[str, PooledHead] = {}
        for candidate, choices, _ in trials:
            name = candidate.name
            attempts = {rates: states[f"{name}@{rates}"] for rates in choices}
            outcomes = {str(rates): s.failed or s.best_score for rates, s in attempts.items()}
            rates = select_rates(attempts, len(val))
            if rates is None:
                failed = next(state.failed for state in attempts.values())
                results[name] = SeedResult(failed=failed, rates=outcomes)
                continue
            state = attempts[rates]
            results[name] = SeedResult(
                **rates._asdict(),
                epoch=state.best_epoch + 1,
                val=state.best_score,
                rates=outcomes,
            )
            if not self.only_select_lr:
                heads[name] = probe.best_head(state)
        maps = self._evaluate(probe, heads, results)
        if rank() == 0:
            if self.save_heads:
                _write_heads(folder, heads)
            write_pass(folder, results, maps)
            (folder / CHECKPOINT).unlink(missing_ok=True)
        return results, maps

    def _evaluate(
        self, probe: Probe, heads: dict[str, PooledHead], results: dict[str, SeedResult]
    ) -> Maps:
        """Add scores of test images and of maps to the results; return the maps to save."""
        maps: Maps = {}
        if not heads:
            return maps
        batches = FeatureBatches(self.features.evaluated, 256)
        all_outcomes = probe.outcomes(list(heads.values()), batches)
        for name, outcomes in zip(heads, all_outcomes, strict=True):
            results[name].outcomes, results[name].accuracy = outcomes, 100 * float(outcomes.mean())
        if self.uncropped is None or rank() > 0:
            return maps
        for name, head in heads.items():
            maps_of = partial(self.uncropped.maps, head)
            score, shown = self.uncropped.images.score(self.uncropped.kinds(head), maps_of)
            results[name] = replace(results[name], **score._asdict())
            if shown is not None and self.save_heads:
                maps[name] = shown
        return maps


def split_into_passes(
    trials: Sequence[Trial], max_parameters: int = MAX_PARAMETERS
) -> Iterator[list[Trial]]:
    """Group trials, in order, so that the parameters of a group fit; large ones train alone."""
    group: list[Trial] = []
    parameters = 0
    for trial in trials:
        size = trial.parameters * len(trial.choices)
        if group and parameters + size > max_parameters:
            yield group
            group, parameters = [], 0
        group.append(trial)
        parameters += size
    if group:
        yield group


def write_pass(folder: Path, results: Mapping[str, SeedResult], maps: Maps) -> None:
    """Write results.json, and arrays beside it, for `read_pass`."""
    arrays: dict[str, Any] = {f"{kind}/{name}": values for name, (kind, values) in maps.items()}
    entries = {}
    for name, result in results.items():
        entries[name] = dict(vars(result))
        for key in ARRAYS:
            values = entries[name].pop(key)
            if values is not None:
                arrays[f"{key}/{name}"] = values
    with write_atomically(folder / "arrays.npz") as temporary:
        np.savez_compressed(temporary, **arrays)
    write_results(folder, {"entries": entries})  # last: this file says that the pass is complete


def read_results(folder: Path) -> dict[str, SeedResult]:
    """Read the results of a pass that is complete, without arrays."""
    entries = json.loads((folder / "results.json").read_text())["entries"]
    return {name: SeedResult(**values) for name, values in entries.items()}


def read_pass(folder: Path) -> tuple[dict[str, SeedResult], Maps]:
    """Read results and maps of a pass that is complete."""
    results, maps = read_results(folder), Maps()
    with np.load(folder / "arrays.npz") as arrays:
        for key in arrays.files:
            kind, _, name = key.partition("/")
            if kind in ARRAYS:
                setattr(results[name], kind, arrays[key])
            else:
                maps[name] = (kind, arrays[key])
    return results, maps


def head_path(pass_folder: Path, name: str) -> Path:
    """Return the file with the weights of a candidate."""
    safe = "".join(c if c.isalnum() or c in "@.+-" else "_" for c in name)
    return pass_folder / "tops" / f"{safe}.safetensors"


def load_head(passes: Sequence[Path], candidate: Candidate, frozen: FrozenBackbone) -> PooledHead:
    """Load the weights that one of the passes saved for a candidate."""
    from safetensors.torch import load_file

    paths = (head_path(folder, candidate.name) for folder in passes)
    weights = load_file(next(path for path in paths if path.is_file()))
    head = candidate.create_head(frozen, len(weights["head.linear.weight"]))
    head.load_state_dict(weights)
    return head.eval()


def select_rates(attempts: Mapping[LearningRates, TrainState], images: int) -> LearningRates | None:
    """Return the smallest learning rate within one standard error of the best on validation, and
    the smallest factor for the pool within one of the best at that learning rate.

    A short training prefers larger learning rates than a long one, and SimPool has better maps if
    it learns slowly. `images` are those of validation; a score is the mean over the last third of
    the epochs: the best epoch of a few images is luck.
    """
    scores = {
        rates: fmean(state.scores[-math.ceil(len(state.scores) / 3) :])
        for rates, state in attempts.items()
        if state.best
    }
    scores = {r: s for r, s in scores.items() if attempts[r].failed is None} or scores
    if not scores:
        return None
    lr = min(rates.lr for rates in _within_one_error(scores, images))
    factors = {rates: score for rates, score in scores.items() if rates.lr == lr}
    return min(_within_one_error(factors, images), key=lambda rates: rates.pool_lr_factor)


def _within_one_error(scores: Mapping[LearningRates, float], images: int) -> list[LearningRates]:
    lowest = 100 * wilson_interval(max(scores.values()) / 100, images, z=1.0)[0]
    return [rates for rates, score in scores.items() if score >= lowest]


def _write_heads(folder: Path, heads: dict[str, PooledHead]) -> None:
    from safetensors.torch import save_file

    for name, head in heads.items():
        weights = {key: value.contiguous().cpu() for key, value in head.state_dict().items()}
        with write_atomically(head_path(folder, name)) as temporary:
            save_file(weights, temporary)
