"""Training a whole model on labelled images: from scratch, or fine-tuning."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers.split_batchnorm import SplitBatchNorm2d, convert_splitbn_model
from torch import Tensor, nn
from torchvision.transforms import v2

from ...data import Dataset
from ...data.loading import Batch, load
from ...models import PooledModel
from ...predict.distributed import rank, summed, world
from ..config import OptimizationConfig
from ..engine import Task, files_of
from ..located import Located
from ..sar import SarLoss
from ..state import TrainState


class LabelledImages(NamedTuple):
    images: Tensor
    labels: Tensor  # (B,), or (B, classes) where images are mixed

    def __len__(self) -> int:  # of images, not of fields
        return self.labels.shape[0]


class Supervised(Task):
    """A task: cross-entropy on labels, judged on `val` by top-1 accuracy or, as `settings.select` says, by its maps."""

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
            raise ValueError(
                "a model without a head cannot learn classes: num_classes must be at least 1"
            )
        self.settings, self.device, self.train = settings, device or torch.device("cpu"), train
        share = max(min(settings.batch, len(train)) // world(), 1)
        several: dict[str, Any] = {"workers": settings.workers, "rank": rank(), "world": world()}
        self.loader = load(
            train,
            transform,
            share,
            shuffle=True,
            seed=settings.seed,
            drop_last=world() > 1,
            **several,
        )
        self.judge = load(
            val, eval_transform or model.backbone.preprocessing.transform(), share, **several
        )
        self.located = (
            None if settings.select == "accuracy" else Located(val, settings, self.device)
        )
        self.sar = SarLoss(model, settings) if settings.sar else None
        classes = model.head.classes
        mixes = [v2.MixUp(alpha=settings.mixup, num_classes=classes)] if settings.mixup else []
        mixes += [v2.CutMix(alpha=settings.cutmix, num_classes=classes)] if settings.cutmix else []
        self.mix = v2.RandomChoice(mixes) if mixes else None
        self.states = [TrainState("model", model.to(self.device), settings)]

    def prepare(self, batch: Batch, parts: int) -> list[LabelledImages]:
        if not len(batch.labels):
            return []
        images, labels = (
            batch.images.to(self.device, non_blocking=True),
            batch.labels.to(self.device),
        )
        if self.mix is not None and len(labels) > 1:
            images, labels = self.mix(images, labels)
        return [
            LabelledImages(x, y)
            for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True)
        ]

    def begin_step(self, epoch: float) -> None:
        if self.sar is not None:
            self.sar.begin_step(epoch)

    def loss(self, module: nn.Module, part: LabelledImages) -> Tensor:
        if self.sar is None:
            return self.loss_of_answers(module, part)
        with self.sar.watch() as seen:
            loss = self.loss_of_answers(module, part)
        return loss + self.sar(seen)

    def loss_of_answers(self, module: nn.Module, part: LabelledImages) -> Tensor:
        return F.cross_entropy(
            module(part.images), part.labels, label_smoothing=self.settings.smoothing
        )

    @torch.inference_mode()
    def validate(self) -> dict[str, dict[str, float]]:
        (contender,) = self.states
        model = contender.judged.eval()
        counts = torch.zeros(3, dtype=torch.float64)  # right, right among five, seen
        for batch in self.judge:
            for images, labels in self.prepare_plain(batch):
                logits = model(images)
                top = logits.topk(min(5, logits.shape[1]), 1).indices == labels[:, None]
                counts += torch.tensor(
                    [top[:, 0].sum(), top.any(1).sum(), len(labels)], dtype=torch.float64
                )
        right, among, seen = summed(counts).tolist()
        found = {"accuracy": 100 * right / max(seen, 1), "top5": 100 * among / max(seen, 1)}
        if self.located is not None:
            assert isinstance(model, PooledModel)
            found[self.settings.select] = self.located(model)
        return {contender.name: {"score": found[self.settings.select], **found}}

    def prepare_plain(self, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        return (
            [(batch.images.to(self.device), batch.labels.to(self.device))]
            if len(batch.labels)
            else []
        )

    def describe(self, batch: Batch) -> str:
        return files_of(self.train, batch.indices.tolist())


VIEWS = 3
WEIGHT = 12.0  # of the divergence beside the cross-entropy, AugMix's and timm's


class Jsd(Supervised):
    """Cross-entropy of the clean view, and the Jensen-Shannon divergence of all views' answers.

    Each view has BatchNorm layers of its own while it trains; `joined` leaves those of the clean one.
    """

    def __init__(
        self,
        model: PooledModel,
        train: Dataset,
        val: Dataset,
        settings: OptimizationConfig,
        *rest: Any,
        **named: Any,
    ) -> None:
        if settings.mixup or settings.cutmix:
            raise ValueError(
                "views of one image are not mixed with others: mixup and cutmix must be 0 with jsd"
            )
        # Before the optimizer sees the parameters.
        convert_splitbn_model(model.backbone.model, VIEWS)
        super().__init__(model, train, val, settings, *rest, **named)

    def prepare(self, batch: Batch, parts: int) -> list[LabelledImages]:
        if not len(batch.labels):
            return []
        views = [view.to(self.device, non_blocking=True).chunk(parts) for view in batch.images]
        labels = batch.labels.to(self.device).chunk(parts)
        # (VIEWS * B, 3, H, W): all clean ones first, as the split BatchNorm expects
        return [
            LabelledImages(torch.cat(part), y)
            for part, y in zip(zip(*views, strict=True), labels, strict=True)
        ]

    def loss_of_answers(self, module: nn.Module, part: LabelledImages) -> Tensor:
        # From logarithms: timm's own loss takes log p of a p that can be 0, and its gradient is then NaN.
        answers = module(part.images).log_softmax(1).chunk(VIEWS)
        mean = torch.stack(answers).exp().mean(0).clamp_min(1e-7).log()
        divergence = torch.stack(
            [(log_p.exp() * (log_p - mean)).sum(1).mean() for log_p in answers]
        ).mean()
        clean: Tensor = F.cross_entropy(
            answers[0], part.labels, label_smoothing=self.settings.smoothing
        )
        return clean + WEIGHT * divergence


def joined(module: nn.Module) -> None:
    """Put plain BatchNorm layers, the clean view's, in the place of the split ones."""
    for name, child in module.named_children():
        if isinstance(child, SplitBatchNorm2d):
            plain = nn.BatchNorm2d(
                child.num_features,
                child.eps,
                child.momentum,
                child.affine,
                child.track_running_stats,
            )
            own = {
                key: value
                for key, value in child.state_dict().items()
                if not key.startswith("aux_bn.")
            }
            plain.load_state_dict(own)
            setattr(module, name, plain.to(child.weight.device).train(child.training))
        else:
            joined(child)
