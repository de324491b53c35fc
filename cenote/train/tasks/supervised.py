"""Supervised training of a whole model: cross-entropy, or AugMix's loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers.split_batchnorm import SplitBatchNorm2d, convert_splitbn_model
from torch import Tensor, nn
from torchvision.transforms import v2

from ...data import Dataset
from ...data.loading import Batch, load
from ...evaluate.validators import LocalizationValidator
from ...models import PooledModel
from ...predict.distributed import rank, summed, world
from ..config import OptimizationConfig
from ..engine import Task, file_names
from ..sar import SarLoss
from ..state import TrainState

JSD_VIEWS = 3
JSD_WEIGHT = 12.0  # of the divergence beside the cross-entropy, as in AugMix and timm


class LabelledImages(NamedTuple):
    images: Tensor
    labels: Tensor  # (B,), or (B, classes) if images are mixed

    def __len__(self) -> int:  # of images, not of fields
        return self.labels.shape[0]


class Supervised(Task):
    """Cross-entropy, validated by top-1 accuracy or, as `settings.select` says, by the maps."""

    def __init__(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset,
        settings: OptimizationConfig,
        transform: Any,
        eval_transform: Any | None = None,
        device: torch.device | None = None,
    ) -> None:
        if model.head is None:
            raise ValueError("supervised training needs a model with a head: num_classes > 0")
        self.settings, self.device, self.train = settings, device or torch.device("cpu"), train
        batch = max(min(settings.batch, len(train)) // world(), 1)
        options: dict[str, Any] = {"workers": settings.workers, "rank": rank(), "world": world()}
        self.loader = load(
            train,
            transform,
            batch,
            shuffle=True,
            seed=settings.seed,
            drop_last=world() > 1,
            **options,
        )
        eval_transform = eval_transform or model.backbone.preprocessing.transform()
        self.val_loader = load(val, eval_transform, batch, **options)
        self.located = None
        if settings.select != "accuracy":
            self.located = LocalizationValidator(
                val, settings.select, settings.batch, settings.workers
            )
        self.sar = SarLoss(model, settings) if settings.sar else None
        self.mix = _mixing(settings, model.head.classes)
        self.states = [TrainState("model", model.to(self.device), settings)]

    def prepare(self, batch: Batch, chunks: int) -> list[LabelledImages]:
        if not len(batch.labels):
            return []
        images, labels = self._to_device(batch)
        if self.mix is not None and len(labels) > 1:
            images, labels = self.mix(images, labels)
        micro_batches = zip(images.chunk(chunks), labels.chunk(chunks), strict=True)
        return [LabelledImages(x, y) for x, y in micro_batches]

    def begin_step(self, epoch: float) -> None:
        if self.sar is not None:
            self.sar.begin_step(epoch)

    def loss(self, module: nn.Module, inputs: LabelledImages) -> Tensor:
        if self.sar is None:
            return self.classification_loss(module, inputs)
        with self.sar.watch() as scores:
            loss = self.classification_loss(module, inputs)
        return loss + self.sar(scores)

    def classification_loss(self, module: nn.Module, inputs: LabelledImages) -> Tensor:
        smoothing = self.settings.smoothing
        return F.cross_entropy(module(inputs.images), inputs.labels, label_smoothing=smoothing)

    @torch.inference_mode()
    def validate(self) -> dict[str, dict[str, float]]:
        (state,) = self.states
        model = state.evaluated.eval()
        counts = torch.zeros(3, dtype=torch.float64)  # correct, correct among five, images
        for batch in self.val_loader:
            if len(batch.labels):
                images, labels = self._to_device(batch)
                logits = model(images)
                hits = logits.topk(min(5, logits.shape[1]), 1).indices == labels[:, None]
                counts += torch.tensor([hits[:, 0].sum(), hits.any(1).sum(), len(labels)])
        top1, top5, images = summed(counts).tolist()
        metrics = {"accuracy": 100 * top1 / max(images, 1), "top5": 100 * top5 / max(images, 1)}
        if self.located is not None:
            assert isinstance(model, PooledModel)
            metrics[self.settings.select] = self.located(model)
        return {state.name: {"score": metrics[self.settings.select], **metrics}}

    def _to_device(self, batch: Batch) -> tuple[Tensor, Tensor]:
        images = batch.images.to(self.device, non_blocking=True)
        return images, batch.labels.to(self.device)

    def describe(self, batch: Batch) -> str:
        return file_names(self.train, batch.indices.tolist())


class Jsd(Supervised):
    """AugMix's loss, as in timm's ResNet recipes, on a clean and two augmented views of each image.

    Cross-entropy of the clean view and Jensen-Shannon divergence of the predictions of all views.
    While it trains each view has its own BatchNorm; `join_batch_norms` keeps the clean view's.
    """

    def __init__(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset,
        settings: OptimizationConfig,
        *arguments: Any,
        **options: Any,
    ) -> None:
        if settings.mixup or settings.cutmix:
            raise ValueError(
                "mixup and cutmix must be 0 with jsd, which compares views of one image"
            )
        convert_splitbn_model(model.backbone.model, JSD_VIEWS)  # before the optimizer is created
        super().__init__(model, train, val, settings, *arguments, **options)

    def prepare(self, batch: Batch, chunks: int) -> list[LabelledImages]:
        if not len(batch.labels):
            return []
        views = [view.to(self.device, non_blocking=True).chunk(chunks) for view in batch.images]
        labels = batch.labels.to(self.device).chunk(chunks)
        # (JSD_VIEWS * B, 3, H, W): all clean views first, as the split BatchNorm expects
        return [
            LabelledImages(torch.cat(images), y)
            for images, y in zip(zip(*views, strict=True), labels, strict=True)
        ]

    def classification_loss(self, module: nn.Module, inputs: LabelledImages) -> Tensor:
        # In logarithms: timm's loss takes log p of a p that can be 0, where its gradient is NaN.
        log_p = module(inputs.images).log_softmax(1).chunk(JSD_VIEWS)
        log_mean = torch.stack(log_p).exp().mean(0).clamp_min(1e-7).log()
        divergences = [(view.exp() * (view - log_mean)).sum(1).mean() for view in log_p]
        smoothing = self.settings.smoothing
        clean: Tensor = F.cross_entropy(log_p[0], inputs.labels, label_smoothing=smoothing)
        return clean + JSD_WEIGHT * torch.stack(divergences).mean()


def join_batch_norms(module: nn.Module) -> None:
    """Replace split BatchNorm layers by plain ones with the statistics of the clean view."""
    for name, child in module.named_children():
        if not isinstance(child, SplitBatchNorm2d):
            join_batch_norms(child)
            continue
        tracked = child.track_running_stats
        plain = nn.BatchNorm2d(child.num_features, child.eps, child.momentum, child.affine, tracked)
        weights = child.state_dict()
        plain.load_state_dict({k: v for k, v in weights.items() if not k.startswith("aux_bn.")})
        setattr(module, name, plain.to(child.weight.device).train(child.training))


def _mixing(settings: OptimizationConfig, classes: int) -> Any:
    """Return MixUp, CutMix, a random choice of them, or None."""
    transforms: list[Any] = []
    if settings.mixup:
        transforms.append(v2.MixUp(alpha=settings.mixup, num_classes=classes))
    if settings.cutmix:
        transforms.append(v2.CutMix(alpha=settings.cutmix, num_classes=classes))
    return v2.RandomChoice(transforms) if transforms else None
