"""Linear segmentation: a 1x1 layer learns the class of every pixel from frozen patch features.

It is a protocol of `cenote evaluate`, but lives in `train` because the layer is trained by the
engine, with its schedule, checkpoints and processes.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones import Backbone, Features
from ..data import BadImage, Dataset
from ..data.files import write_text
from ..data.images import MASK_IGNORE
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
from ..predict.cache_folder import weights_digest
from ..predict.distributed import any_process, device_of, gathered, processes, rank
from ..predict.embedding import EmbeddingSource
from ..predict.feature_cache import CachedFeatures, FeatureCache
from ..predict.openvino_engine import run_frozen
from ..predict.progress_file import files_digest
from ..report.blocks import Block, picture_blocks
from ..report.maps import segmentation_page
from .config import OptimizationConfig, Options
from .engine import Engine, Examples, Task, dataset_of, load_batches
from .extraction import extract
from .log import Interrupted, muted
from .recipes import read_fields
from .state import TrainState

SEGMENT = OptimizationConfig(
    epochs=20, batch=16, lr=1e-3, weight_decay=1e-4, schedule="poly", warmup=1
)
MAX_CACHE = 10 << 30  # bytes; also at most half of the free disk space
EXTREMES = 4  # images with the worst and with the best score that are shown
IGNORE = -1  # label of pixels that do not count
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
    settings: Options
    seconds: float
    image_miou: dict[int, float]  # not in results.json
    predict: Callable[[Dataset, Sequence[int]], ClassMaps]  # class maps of further images

    def to_json(self) -> Options:
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
        settings = read_fields(SEGMENT, evaluation.settings, "--settings ")
        images = train, evaluation.test
        try:
            if evaluation.out is None:
                with TemporaryDirectory() as temporary:
                    return segment(evaluation.model, *images, Path(temporary), settings)
            folder = evaluation.out / "segment"
            resume = _can_resume(evaluation, train, folder)
            return segment(evaluation.model, *images, folder, settings, resume=resume)
        except Interrupted:
            raise KeyboardInterrupt from None

    def pictures(self, evaluation: Evaluation, report: SegmentationReport) -> Iterable[Picture]:
        def draw() -> Any:
            order = sorted(report.image_miou, key=lambda position: report.image_miou[position])
            shown = list(dict.fromkeys([*order[:EXTREMES], *order[-EXTREMES:]]))
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
    files = files_digest(train, masks=True)
    identity = json.dumps([*evaluation.identity(masks=True), files, dict(evaluation.settings)])
    evaluation.progress_files += [checkpoint, identity_file]
    if checkpoint.exists() and identity_file.is_file() and identity_file.read_text() == identity:
        return True
    checkpoint.unlink(missing_ok=True)
    write_text(identity_file, identity)
    return False


def segment(
    model: Backbone | PooledModel,
    train: Dataset,
    test: Dataset,
    folder: Path,
    settings: OptimizationConfig = SEGMENT,
    size: int = 512,
    max_cache: int = MAX_CACHE,
    resume: bool = False,
) -> SegmentationReport:
    """Train on `train` and evaluate on `test`, all at size x size; the run is saved in `folder`."""
    started = time.monotonic()
    with processes() as device:
        backbone = model.backbone if isinstance(model, PooledModel) else model
        backbone = copy.copy(backbone).to(device).eval()
        backbone.preprocessing = dataclasses.replace(backbone.preprocessing, size=size)
        labels = PixelLabels(train, size)
        train_source, test_source = (
            _source(backbone, labels.usable(images), settings, max_cache)
            for images in (train, test)
        )
        task = SegmentationTask(backbone, labels, train_source, settings, device)
        identity = {
            "size": size,
            "kind": labels.kind,
            "data": Splits(train, test, None).fingerprint(),
            "backbone": backbone.name,
            "weights": weights_digest(backbone),
        }
        with muted():
            layer = Engine(task, settings, folder, identity).run(resume).module.eval()
        confusion, image_miou, unreadable = _evaluate(task, layer, test_source)
    used = dataset_of(test_source)
    positions = np.flatnonzero(np.isin(test.rows, used.rows))
    score = confusion.result()
    unreadable += [*getattr(train_source, "bad", ()), *labels.unreadable.values()]
    return SegmentationReport(
        miou=100 * score.miou,
        macc=100 * score.macc,
        aacc=100 * score.aacc,
        iou=without_nan({n: 100 * v for n, v in zip(labels.names, score.iou, strict=True)}),
        classes=len(labels.names),
        images=len(image_miou),
        trained_on=len(train_source),
        size=size,
        unreadable=sorted(set(unreadable)),
        cached=isinstance(train_source, CachedFeatures),
        settings=dataclasses.asdict(settings),
        seconds=time.monotonic() - started,
        image_miou={int(positions[i]): miou for i, miou in image_miou.items()},
        predict=lambda dataset, which: _predict(backbone, layer, dataset, which),
    )


class PixelLabels:
    """Class indices (size, size) of the pixels of an image, IGNORE for those that do not count.

    They are the classes in the masks, or the "object" against the background if the masks have
    none. `names` are the names of the classes.
    """

    def __init__(self, dataset: Dataset, size: int) -> None:
        self.kind, self.size, self.names = "object", size, ["background", "object"]
        if dataset.mask_codes.startswith("classes"):
            self.kind, self.names = "classes", list(dataset.classes)
        self.unreadable: dict[str, str] = {}  # masks and their error messages

    def usable(self, dataset: Dataset) -> Dataset:
        """Select the images that have a mask."""
        if not dataset.has_masks.any():
            raise ValueError(f"{dataset.name} has no image with a mask")
        return dataset.select(dataset.has_masks)

    def of(self, dataset: Dataset, i: int) -> Tensor:
        """Return int64 labels; all IGNORE if no mask can be read."""
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
        if pixels.max() >= len(self.names):
            self.unreadable[name] = (
                f"{name}: its mask has class {pixels.max()} of {len(self.names)} classes, from 0"
            )
            return nothing
        return torch.from_numpy(pixels)


class LinearSegmenter(nn.Module):
    """Features -> (B, classes, size, size): 1x1 layer and bilinear upsampling."""

    def __init__(self, dim: int, classes: int, size: int) -> None:
        super().__init__()
        self.layer, self.size = nn.Conv2d(dim, classes, 1), size

    def forward(self, features: Features) -> Tensor:
        x = features.tokens.transpose(1, 2).unflatten(2, features.grid)  # (B, D, H, W)
        logits = self.layer(x)  # (B, classes, H, W)
        return F.interpolate(logits, (self.size, self.size), mode="bilinear", align_corners=False)


def _source(
    backbone: Backbone, dataset: Dataset, settings: OptimizationConfig, max_cache: int
) -> EmbeddingSource:
    """Return cached features if the disk has space for them, else the images."""
    cache, size = FeatureCache(), backbone.preprocessing.size
    with torch.inference_mode():
        features = backbone(torch.zeros(1, 3, size, size, device=device_of(backbone)))
    values = sum(x.numel() for x in features.tensors().values())
    needed = 2 * len(dataset) * values  # bytes, as float16
    cache.folder.mkdir(parents=True, exist_ok=True)
    too_large = needed > min(max_cache, shutil.disk_usage(cache.folder).free // 2)
    if any_process(too_large):  # they extract together, but may have other disks
        return dataset
    name, workers = dataset.name, settings.readers
    return extract(backbone, dataset, name, cache=cache, view="whole", workers=workers)


class SegmentationTask(Task):
    """Cross-entropy over the pixels that count, without validation."""

    def __init__(
        self,
        backbone: Backbone,
        labels: PixelLabels,
        source: EmbeddingSource,
        settings: OptimizationConfig,
        device: torch.device,
    ) -> None:
        self.backbone, self.labels, self.source, self.device = backbone, labels, source, device
        self.settings = settings
        self.loader = self.batches(source, shuffle=True)
        torch.manual_seed(settings.seed)
        module = LinearSegmenter(backbone.dim, len(labels.names), labels.size).to(device)
        self.states = [TrainState("linear", module, settings)]

    def batches(self, source: EmbeddingSource, shuffle: bool) -> Any:
        return load_batches(source, self.backbone.preprocessing.whole(), self.settings, shuffle)

    def examples(self, batch: Any) -> Examples:
        return self.pixels(batch, dataset_of(self.source))

    @torch.no_grad()
    def pixels(self, batch: Any, dataset: Dataset) -> Examples:
        """Return features and the labels of their pixels on the device."""
        features = super().examples(batch).inputs
        if not isinstance(features, Features):
            features = run_frozen(self.backbone, features)
        labels = torch.stack([self.labels.of(dataset, int(i)) for i in batch.indices])
        return Examples(Features(features.tokens, features.grid), labels.to(self.device))

    def loss(self, module: nn.Module, inputs: Examples) -> Tensor:
        # Not the mean: it is NaN if no pixel counts.
        logits, labels = module(inputs.inputs), inputs.labels
        total = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
        return total / (labels != IGNORE).sum().clamp_min(1)


@torch.inference_mode()
def _evaluate(
    task: SegmentationTask, layer: nn.Module, source: EmbeddingSource
) -> tuple[Confusion, dict[int, float], list[str]]:
    """Return the confusion of all processes' images, mIoU in percent of each, and error messages."""
    classes, dataset = len(task.labels.names), dataset_of(source)
    confusion, image_miou = Confusion(classes, IGNORE), dict[int, float]()
    unreadable = list(getattr(source, "bad", ()))
    for batch in task.batches(source, shuffle=False):
        unreadable += [message for _, message in getattr(batch, "bad", ())]
        if not len(batch.indices):
            continue
        features, labels = task.pixels(batch, dataset)
        predictions = layer(features).argmax(1).cpu()
        for i, prediction, truth in zip(batch.indices, predictions, labels.cpu(), strict=True):
            image_confusion = Confusion(classes, IGNORE)
            image_confusion.add(prediction, truth, str(dataset.path(int(i))))
            confusion.merge(image_confusion)
            if image_confusion.pixels.any():
                image_miou[int(i)] = 100 * image_confusion.result().miou
    for process, share in enumerate(gathered((confusion, image_miou))):
        if process != rank():
            confusion.merge(share[0])
            image_miou |= share[1]
    return confusion, image_miou, unreadable


@torch.inference_mode()
def _predict(
    backbone: Backbone, layer: nn.Module, dataset: Dataset, positions: Sequence[int]
) -> ClassMaps:
    transform, device = backbone.preprocessing.whole(), device_of(backbone)
    class_maps = ClassMaps()
    for i in positions:
        features = backbone(transform(dataset.image(i))[None].to(device))
        class_maps[i] = layer(features).argmax(1)[0].cpu().numpy()
    return class_maps
