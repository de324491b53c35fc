"""Linear segmentation: a 1x1 layer learns the class of every pixel from frozen patch features.

It is a protocol of `cenote evaluate`, but lives in `train` because the layer is trained by the
engine, with its schedule, checkpoints and processes.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from ..backbones import Backbone, Features, Preprocessing
from ..data import BadImage, Dataset, write_atomically
from ..data.images import MASK_IGNORE
from ..data.loading import load
from ..data.splits import Splits
from ..evaluate.protocol import (
    Evaluation,
    Figure,
    Picture,
    Protocol,
    Report,
    count_images,
    left_out,
    without_nan,
)
from ..metrics import Confusion, resize_mask
from ..models import PooledModel
from ..predict.distributed import device_of, gathered, processes, rank, world
from ..predict.feature_cache import (
    CachedFeatures,
    FeatureBatch,
    FeatureBatches,
    FeatureCache,
    cached_features,
    weights_digest,
)
from ..predict.progress_file import files_digest
from ..report.blocks import Block, picture_blocks
from ..report.segmentation import segmentation_page
from .config import OptimizationConfig
from .engine import Engine, Stopped, Task, file_names
from .state import TrainState

SEGMENT = OptimizationConfig(
    epochs=20, batch=16, lr=1e-3, weight_decay=1e-4, schedule="poly", warmup=1
)
MAX_CACHE = 10 << 30  # bytes; also at most half of the free disk space
MAX_SHOWN = 8  # images: the worst four and the best four
IGNORE = -1  # label of pixels that do not count
LabelKind = Literal["auto", "classes", "object", "labels"]
ClassMaps = dict[int, npt.NDArray[np.int64]]  # (size, size) for each position


@dataclass
class SegmentationReport(Report):
    """Scores in percent, and mIoU of each test image by its position in the test split."""

    miou: float
    macc: float
    aacc: float
    iou: dict[str, float | None]
    classes: int
    images: int  # without those whose mask could not be read
    trained_on: int
    size: int
    unreadable: list[str]
    cached: bool
    settings: dict[str, Any]
    seconds: float
    image_miou: dict[int, float]  # not in results.json
    predict: Callable[[Dataset, Sequence[int]], ClassMaps]  # class maps of further images

    def to_json(self) -> dict[str, Any]:
        values = dict(vars(self))
        del values["image_miou"], values["predict"]
        return dict(without_nan(values))

    def table(self, split: str) -> str:
        scores = f"mIoU {self.miou:.2f}, mAcc {self.macc:.2f}, aAcc {self.aacc:.2f}"
        line = f"linear segmentation: {scores} ({count_images(self.images)})"
        return "\n".join([*left_out(self.unreadable), line])

    def figures(self) -> list[Figure]:
        unit = f"% of {self.images} images"
        return [Figure("mIoU", self.miou, unit), Figure("pixel accuracy", self.aacc, "%")]


class Segment(Protocol[SegmentationReport], name="segment"):
    resumable = True

    def run(self, evaluation: Evaluation) -> SegmentationReport:
        train = evaluation.training_images("linear segmentation")
        try:
            if evaluation.out is None:
                with TemporaryDirectory() as temporary:
                    return segment(evaluation.model, train, evaluation.test, Path(temporary))
            folder = evaluation.out / "segment"
            resume = _can_resume(evaluation, train, folder)
            return segment(evaluation.model, train, evaluation.test, folder, resume=resume)
        except Stopped as stop:
            if "interrupted" in str(stop):
                raise KeyboardInterrupt from None
            raise

    def pictures(self, evaluation: Evaluation, report: SegmentationReport) -> Iterable[Picture]:
        def draw() -> Any:
            order = sorted(report.image_miou, key=lambda position: report.image_miou[position])
            half = MAX_SHOWN // 2
            shown = order if len(order) <= MAX_SHOWN else [*order[:half], *order[-half:]]
            heading = f"{evaluation.title} · the worst four and the best four of {len(order)}"
            predicted = report.predict(evaluation.test, shown)
            return segmentation_page(evaluation.test, predicted, report.image_miou, heading)

        return [("segmentation.jpg", draw)]

    def blocks(self, evaluation: Evaluation, report: SegmentationReport) -> list[Block]:
        assert evaluation.out is not None
        alt = "Photographs, their true and their predicted segments, the worst and the best"
        return picture_blocks(evaluation.out / "segmentation.jpg", "Segmentation", alt)


def _can_resume(evaluation: Evaluation, train: Dataset, folder: Path) -> bool:
    """Return whether there is a checkpoint of this model and these images; remove any other."""
    checkpoint, identity_file = folder / "checkpoint.pt", folder / ".of.json"
    identity = json.dumps([*evaluation.identity(masks=True), files_digest(train, masks=True)])
    evaluation.progress_files += [checkpoint, identity_file]
    if checkpoint.exists() and identity_file.is_file() and identity_file.read_text() == identity:
        return True
    checkpoint.unlink(missing_ok=True)
    with write_atomically(identity_file) as temporary:
        temporary.write_text(identity)
    return False


def segment(
    model: Backbone | PooledModel,
    train: Dataset,
    test: Dataset,
    folder: Path,
    settings: OptimizationConfig = SEGMENT,
    size: int = 512,
    kind: LabelKind = "auto",
    norm: bool = False,
    cache: FeatureCache | None = None,
    max_cache: int = MAX_CACHE,
    resume: bool = False,
) -> SegmentationReport:
    """Train on `train` and evaluate on `test`, all at size x size; the run is saved in `folder`."""
    backbone = model.backbone if isinstance(model, PooledModel) else model
    started = time.monotonic()
    with processes() as device:
        backbone = backbone.to(device).eval()
        labels = PixelLabels(train, size, kind)
        train_images, test_images = (
            _load(backbone, labels.usable(images), settings, size, cache, max_cache, shuffle)
            for images, shuffle in ((train, True), (test, False))
        )
        task = SegmentationTask(backbone, labels, train_images, settings, norm, device)
        identity = {
            "size": size,
            "kind": labels.kind,
            "norm": norm,
            "data": Splits(train, test, None).fingerprint(),
            "backbone": backbone.name,
            "weights": weights_digest(backbone),
        }
        with _quiet():
            Engine(task, settings, folder, identity).run(resume)
        layer = task.states[0].module.eval()
        confusion, image_miou = _evaluate(task, layer, test_images)
    positions = np.flatnonzero(np.isin(test.rows, test_images.dataset.rows))
    score = confusion.result()
    unreadable = {*train_images.bad, *test_images.bad, *labels.unreadable.values()}
    return SegmentationReport(
        miou=100 * score.miou,
        macc=100 * score.macc,
        aacc=100 * score.aacc,
        iou=without_nan({n: 100 * v for n, v in zip(labels.names, score.iou, strict=True)}),
        classes=len(labels.names),
        images=len(image_miou),
        trained_on=len(train_images.dataset),
        size=size,
        unreadable=sorted(unreadable),
        cached=train_images.cached,
        settings=dataclasses.asdict(settings),
        seconds=time.monotonic() - started,
        image_miou={int(positions[i]): miou for i, miou in image_miou.items()},
        predict=lambda dataset, which: _predict(backbone, layer, size, dataset, which),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the engine's message about every epoch."""
    logger = logging.getLogger("cenote.train")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class PixelLabels:
    """Class indices (size, size) of the pixels of an image, IGNORE for those that do not count.

    `kind`: the "classes" in the masks; "object" against background; "labels", the object as the
    image's class. "auto" is the first that the masks allow. `names` are the names of the classes.
    """

    def __init__(self, dataset: Dataset, size: int, kind: LabelKind = "auto") -> None:
        if kind not in get_args(LabelKind):
            raise ValueError(f"kind must be one of {', '.join(get_args(LabelKind))}, got '{kind}'")
        has_classes = dataset.mask_codes.startswith("classes")
        content = "classes" if has_classes else "objects"
        if kind == "auto":
            kind = "classes" if has_classes else "object"
        if (kind == "classes") != has_classes:
            raise ValueError(f"the masks of {dataset.name} have {content}, not {kind}")
        self.kind, self.size = kind, size
        self.names = list(dataset.classes)
        if not has_classes:
            self.names = ["background", *(self.names if kind == "labels" else ["object"])]
        self.unreadable: dict[str, str] = {}  # masks and their error messages

    def usable(self, dataset: Dataset) -> Dataset:
        """Select the images that have a mask, and a class if it is needed."""
        selected, needed = dataset.has_masks, "a mask"
        if self.kind == "labels":
            selected, needed = selected & (dataset.labels >= 0), "a mask and a class"
        if not selected.any():
            raise ValueError(f"{dataset.name} has no image with {needed}")
        return dataset.select(selected)

    def of(self, dataset: Dataset, i: int) -> Tensor:
        """Return int64 labels; all IGNORE if there is no readable mask."""
        name, nothing = str(dataset.path(i)), torch.full((self.size, self.size), IGNORE)
        try:
            mask = dataset.mask(i)
        except BadImage as error:
            self.unreadable[name] = str(error)
            return nothing
        if mask is None:
            return nothing
        pixels = resize_mask(mask, self.size).astype(np.int64)
        pixels[pixels == MASK_IGNORE] = IGNORE
        if self.kind == "labels":
            pixels[pixels == 1] = 1 + int(dataset.labels[i])
        if pixels.max() >= len(self.names):
            self.unreadable[name] = (
                f"{name}: its mask has class {pixels.max()} of {len(self.names)} classes, from 0"
            )
            return nothing
        return torch.from_numpy(pixels)


class LinearSegmenter(nn.Module):
    """Features -> (B, classes, size, size): optional BatchNorm, 1x1 layer, bilinear upsampling."""

    def __init__(self, dim: int, classes: int, norm: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(dim) if norm else nn.Identity()
        self.layer = nn.Conv2d(dim, classes, 1)

    def forward(self, features: Features, size: int) -> Tensor:
        x = features.tokens.transpose(1, 2).unflatten(2, features.grid)  # (B, D, H, W)
        logits = self.layer(self.norm(x))  # (B, classes, H, W)
        return F.interpolate(logits, (size, size), mode="bilinear", align_corners=False)


class SegmentationBatch(NamedTuple):
    features: Features
    labels: Tensor  # (B, size, size)

    def __len__(self) -> int:
        return len(self.labels)


class SegmentationImages:
    """The images of a split and a loader of their features, or of the images for the backbone.

    `source` are the cached features, or the transform of the images.
    """

    def __init__(
        self, dataset: Dataset, source: Any, settings: OptimizationConfig, shuffle: bool
    ) -> None:
        self.loader: Any
        self.cached = isinstance(source, CachedFeatures)
        if isinstance(source, CachedFeatures):
            self.dataset, self.bad = source.dataset, list(source.bad)
            self.loader = FeatureBatches(source, settings.batch, shuffle, settings.seed)
            return
        self.dataset, self.bad = dataset, []
        self.loader = load(
            dataset,
            source,
            max(min(settings.batch, len(dataset)) // world(), 1),
            settings.workers,
            shuffle,
            settings.seed,
            drop_last=shuffle and world() > 1,
            rank=rank(),
            world=world(),
        )


def _load(
    backbone: Backbone,
    dataset: Dataset,
    settings: OptimizationConfig,
    size: int,
    cache: FeatureCache | None,
    max_cache: int,
    shuffle: bool,
) -> SegmentationImages:
    """Load cached features if the disk has space for them, else images."""
    cache = cache or FeatureCache()
    preprocessing = dataclasses.replace(backbone.preprocessing, size=size)
    with torch.inference_mode():
        empty = torch.zeros(1, 3, size, size, device=device_of(backbone))
        tokens, _, cls = backbone(empty)
    values = (tokens.shape[1] + (cls is not None)) * tokens.shape[2]
    needed = 2 * len(dataset) * values  # bytes, as float16
    cache.folder.mkdir(parents=True, exist_ok=True)
    source: Any = preprocessing.whole()
    if needed <= min(max_cache, shutil.disk_usage(cache.folder).free // 2):
        source = _cached(backbone, dataset, preprocessing, cache, settings.workers)
    return SegmentationImages(dataset, source, settings, shuffle)


def _cached(
    backbone: Backbone,
    dataset: Dataset,
    preprocessing: Preprocessing,
    cache: FeatureCache,
    workers: int,
) -> CachedFeatures:
    with tqdm(unit="image", desc=f"features of {dataset.name}", disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return cached_features(
            backbone, dataset, preprocessing, cache, "whole", workers=workers, progress=progress
        )


class SegmentationTask(Task):
    """Cross-entropy over the pixels that count, without validation."""

    def __init__(
        self,
        backbone: Backbone,
        labels: PixelLabels,
        images: SegmentationImages,
        settings: OptimizationConfig,
        norm: bool,
        device: torch.device,
    ) -> None:
        self.backbone, self.labels, self.images, self.device = backbone, labels, images, device
        self.loader = images.loader
        torch.manual_seed(settings.seed)
        module = LinearSegmenter(backbone.dim, len(labels.names), norm).to(device)
        self.states = [TrainState("linear", module, settings)]

    def prepare(self, batch: Any, chunks: int) -> list[SegmentationBatch]:
        prepared = self.prepare_batch(batch, self.images.dataset)
        if prepared is None:
            return []
        tokens, grid, _ = prepared.features
        pairs = zip(tokens.chunk(chunks), prepared.labels.chunk(chunks), strict=True)
        return [SegmentationBatch(Features(x, grid), y) for x, y in pairs]

    @torch.no_grad()
    def prepare_batch(self, batch: Any, dataset: Dataset) -> SegmentationBatch | None:
        """Return features and labels on the device, None if no image could be read."""
        indices = [int(i) for i in batch.indices]
        if not indices:
            return None
        if isinstance(batch, FeatureBatch):
            tokens, grid, _ = batch.features
        else:
            tokens, grid, _ = self.backbone(batch.images.to(self.device))
        labels = torch.stack([self.labels.of(dataset, i) for i in indices])
        return SegmentationBatch(Features(tokens.to(self.device), grid), labels.to(self.device))

    def loss(self, module: nn.Module, inputs: SegmentationBatch) -> Tensor:
        logits = module(inputs.features, self.labels.size)
        # Not the mean: it is NaN if no pixel counts.
        total = F.cross_entropy(logits, inputs.labels, ignore_index=IGNORE, reduction="sum")
        return total / (inputs.labels != IGNORE).sum().clamp_min(1)

    def validate(self) -> dict[str, dict[str, float]]:
        return {}

    def describe(self, batch: Any) -> str:
        return file_names(self.images.dataset, [int(i) for i in batch.indices])


@torch.inference_mode()
def _evaluate(
    task: SegmentationTask, layer: nn.Module, images: SegmentationImages
) -> tuple[Confusion, dict[int, float]]:
    """Return the confusion of all processes' images, and mIoU in percent of each image."""
    classes = len(task.labels.names)
    confusion, image_miou = Confusion(classes, IGNORE), dict[int, float]()
    for batch in images.loader:
        images.bad += [message for _, message in getattr(batch, "bad", ())]
        prepared = task.prepare_batch(batch, images.dataset)
        if prepared is None:
            continue
        predictions = layer(prepared.features, task.labels.size).argmax(1).cpu()
        rows = zip(batch.indices, predictions, prepared.labels.cpu(), strict=True)
        for i, prediction, truth in rows:
            image_confusion = Confusion(classes, IGNORE)
            image_confusion.add(prediction, truth, str(images.dataset.path(int(i))))
            confusion.merge(image_confusion)
            if image_confusion.pixels.any():
                image_miou[int(i)] = 100 * image_confusion.result().miou
    for process, share in enumerate(gathered((confusion, image_miou))):
        if process != rank():
            confusion.merge(share[0])
            image_miou |= share[1]
    return confusion, image_miou


@torch.inference_mode()
def _predict(
    backbone: Backbone, layer: nn.Module, size: int, dataset: Dataset, positions: Sequence[int]
) -> ClassMaps:
    transform = dataclasses.replace(backbone.preprocessing, size=size).whole()
    device, class_maps = device_of(backbone), ClassMaps()
    for i in positions:
        features = backbone(transform(dataset.image(i))[None].to(device))
        class_maps[i] = layer(features, size).argmax(1)[0].cpu().numpy()
    return class_maps
