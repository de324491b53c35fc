"""Supervised training of a whole model: cross-entropy, AugMix's loss, or BCE for several classes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.split_batchnorm import SplitBatchNorm2d, convert_splitbn_model
from torch import Tensor, nn
from torchvision.transforms import v2

from ...data import Dataset
from ...data.loading import Batch
from ...evaluate.validators import LocalizationValidator, MultiLabelScore
from ...losses import DRLoc, binary_cross_entropy
from ...models import PooledModel
from ...predict.distributed import summed
from ..config import OptimizationConfig
from ..engine import CPU, Examples, Metrics, load_batches
from ..sar import SarLoss, SarTask
from ..state import TrainState
from ..wsol import classification_loss, step_seed

JSD_VIEWS = 3
JSD_WEIGHT = 12.0  # of the divergence beside the cross-entropy, as in AugMix and timm


def metric_and_loss(multi_label: bool) -> tuple[str, Callable[..., Tensor]]:
    """Return the metric of validation and the loss: mAP and BCE if images have several classes."""
    return ("mAP", binary_cross_entropy) if multi_label else ("accuracy", F.cross_entropy)


class Supervised(SarTask):
    """Cross-entropy, validated by top-1 accuracy or, as `settings.select` says, by the maps.

    Of images with several classes: binary cross-entropy, validated by mAP.
    """

    def __init__(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset,
        settings: OptimizationConfig,
        transform: Any,
        device: torch.device = CPU,
    ) -> None:
        assert model.head is not None
        self.settings, self.device, self.source = settings, device, train
        self.multi_label = train.multi_label
        self.metric, self.criterion = metric_and_loss(self.multi_label)
        self.loader = load_batches(train, transform, settings)
        preprocessing = model.backbone.preprocessing.transform()
        self.val_loader = load_batches(val, preprocessing, settings, shuffle=False)
        self.located = None
        if settings.select != "accuracy":
            self.located = LocalizationValidator(
                val, settings.select, settings.batch, settings.readers
            )
        self.sar = SarLoss(model, settings) if settings.sar else None
        self.seed = settings.seed
        self.mix = _mixing(settings, model.head.classes)
        self.drloc = None
        if settings.drloc:  # a part of the model until `finish`
            self.drloc = DRLoc(model.backbone.dim, settings.drloc, settings.drloc_pairs)
            model.add_module("drloc", self.drloc)
        self.states = [TrainState("model", model.to(self.device), settings)]

    def examples(self, batch: Batch) -> Examples:
        images, labels = super().examples(batch)
        if self.mix is not None and len(labels) > 1:
            return Examples(*self.mix(images, labels))
        return Examples(images, labels)

    def saved_model(self) -> PooledModel:
        model = copy.deepcopy(self.states[0].evaluated)
        assert isinstance(model, PooledModel)
        finish(model)
        return model

    def begin_step(self, epoch: float) -> None:
        super().begin_step(epoch)
        self.seed = step_seed(self.settings, epoch, len(self.loader))

    def main_loss(self, module: nn.Module, inputs: Examples) -> Tensor:
        criterion = partial(self.criterion, label_smoothing=self.settings.smoothing)
        return classification_loss(module, inputs, criterion, self.seed, self.drloc)

    @torch.inference_mode()
    def validate(self) -> Metrics:
        (state,) = self.states
        model = state.evaluated.eval()
        metrics = self._average_precision(model) if self.multi_label else self._accuracy(model)
        selected = metrics[self.metric]
        if self.located is not None:
            assert isinstance(model, PooledModel)
            selected = metrics[self.settings.select] = self.located(model)
        return {state.name: {"score": selected, **metrics}}

    def _average_precision(self, model: nn.Module) -> dict[str, float]:
        score = MultiLabelScore()
        for batch in self.val_loader:
            if len(batch.labels):
                images, targets = super().examples(batch)
                score.add(model(images), targets)
        return {"mAP": score.result()}

    def _accuracy(self, model: nn.Module) -> dict[str, float]:
        counts = torch.zeros(3, dtype=torch.float64)  # correct, correct among five, images
        for batch in self.val_loader:
            if len(batch.labels):
                images, labels = super().examples(batch)
                logits = model(images)
                hits = logits.topk(min(5, logits.shape[1]), 1).indices == labels[:, None]
                counts += torch.tensor([hits[:, 0].sum(), hits.any(1).sum(), len(labels)])
        top1, top5, images = summed(counts).tolist()
        return {"accuracy": 100 * top1 / max(images, 1), "top5": 100 * top5 / max(images, 1)}


class Jsd(Supervised):
    """AugMix's loss, as in timm's ResNet recipes, on a clean and two augmented views of each image.

    Cross-entropy of the clean view and Jensen-Shannon divergence of the predictions of all views.
    While it trains each view has its own BatchNorm; `join_batch_norms` keeps the clean view's.
    """

    def __init__(self, model: PooledModel, *arguments: Any) -> None:
        convert_splitbn_model(model.backbone.model, JSD_VIEWS)  # before the optimizer is created
        super().__init__(model, *arguments)
        if self.multi_label:
            raise ValueError("jsd needs one class per image: use the task supervised")
        if self.mix is not None:
            raise ValueError(
                "mixup and cutmix must be 0 with jsd, which compares views of one image"
            )

    def prepare(self, batch: Batch, chunks: int) -> list[Examples]:
        if not len(batch.labels):
            return []
        views = [view.to(self.device, non_blocking=True).chunk(chunks) for view in batch.images]
        labels = batch.labels.to(self.device).chunk(chunks)
        # (JSD_VIEWS * B, 3, H, W): all clean views first, as the split BatchNorm expects
        return [
            Examples(torch.cat(images), y)
            for images, y in zip(zip(*views, strict=True), labels, strict=True)
        ]

    def main_loss(self, module: nn.Module, inputs: Examples) -> Tensor:
        # In logarithms: timm's loss takes log p of a p that can be 0, where its gradient is NaN.
        log_p = module(inputs.inputs).log_softmax(1).chunk(JSD_VIEWS)
        log_mean = torch.stack(log_p).exp().mean(0).clamp_min(1e-7).log()
        divergences = [(view.exp() * (view - log_mean)).sum(1).mean() for view in log_p]
        smoothing = self.settings.smoothing
        clean: Tensor = F.cross_entropy(log_p[0], inputs.labels, label_smoothing=smoothing)
        return clean + JSD_WEIGHT * torch.stack(divergences).mean()


def finish(model: PooledModel) -> None:
    """Remove what only training needs: split BatchNorm layers, and the head of DRLoc."""
    join_batch_norms(model)
    if hasattr(model, "drloc"):
        del model.drloc


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
