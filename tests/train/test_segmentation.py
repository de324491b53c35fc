"""A linear layer on frozen features learns the classes of pixels; ignored pixels are neither learned nor scored."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.backbones import Backbone, Features
from cenote.metrics import segmentation_scores
from cenote.models import create_model
from cenote.models.surgery import create_finer_backbone
from cenote.train.config import OptimizationConfig
from cenote.train.engine import Examples
from cenote.train.segmentation import (
    IGNORE,
    LinearSegmenter,
    PixelLabels,
    SegmentationReport,
    SegmentationTask,
    segment,
)
from tests.synthetic import split_rectangles

from .running import stopped_after

QUICK = OptimizationConfig(
    epochs=10, batch=8, lr=1.0, weight_decay=1e-4, schedule="poly", checkpoint_minutes=0.0
)


def small() -> Backbone:
    torch.manual_seed(0)
    return create_finer_backbone("resnet18", 4, layers=(1, 1, 1, 1), channels=(8, 8, 16, 16))


def run(
    folder: Path, settings: OptimizationConfig = QUICK, data: Any = None, **options: Any
) -> SegmentationReport:
    data = split_rectangles(48, test=True) if data is None else data
    options = {"size": 64} | options
    return segment(small(), data.split("train"), data.split("test"), folder, settings, **options)


def upsampled(logits: Tensor, size: int) -> Tensor:
    """Bilinear with half-pixel centres, one pixel at a time: (C, H, W) -> (C, size, size)."""
    _, h, w = logits.shape
    out = torch.zeros(len(logits), size, size)
    for y in range(size):
        for x in range(size):
            v, u = max((y + 0.5) * h / size - 0.5, 0), max((x + 0.5) * w / size - 0.5, 0)
            top, left = min(int(v), h - 1), min(int(u), w - 1)
            bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
            b, r = v - top, u - left
            upper = logits[:, top, left] * (1 - r) + logits[:, top, right] * r
            lower = logits[:, bottom, left] * (1 - r) + logits[:, bottom, right] * r
            out[:, y, x] = upper * (1 - b) + lower * b
    return out


def test_the_loss_is_cross_entropy_over_the_pixels_that_count() -> None:
    torch.manual_seed(0)
    size = 7
    module = LinearSegmenter(6, 4, size)
    tokens, labels = torch.randn(2, 6, 6), torch.randint(0, 4, (2, size, size))
    labels[:, 2:4] = IGNORE
    task = SegmentationTask.__new__(SegmentationTask)
    found = task.loss(module, Examples(Features(tokens, (2, 3)), labels))
    total, count = 0.0, 0
    for x, y in zip(tokens, labels, strict=True):
        w, b = module.layer.weight[:, :, 0, 0], module.layer.bias
        logits = upsampled((x @ w.T + b).T.reshape(4, 2, 3), size).detach()
        for i in range(size):
            for j in range(size):
                if y[i, j] != IGNORE:
                    total -= float(logits[:, i, j].log_softmax(0)[y[i, j]])
                    count += 1
    assert found.item() == pytest.approx(total / count, rel=1e-4)
    nothing = task.loss(module, Examples(Features(tokens, (2, 3)), torch.full_like(labels, IGNORE)))
    assert nothing.item() == 0


def test_it_learns_and_is_scored_on_test(tmp_path: Path) -> None:
    data = split_rectangles(48, test=True)
    test = data.split("test")
    result = run(tmp_path)
    assert list(result.iou) == ["background", "object"]
    assert result.images == 12 == len(result.image_miou)
    labels = PixelLabels(test, 64)
    truths = [labels.of(test, i).numpy() for i in range(len(test))]
    background = segmentation_scores([np.zeros_like(t) for t in truths], truths, 2, IGNORE).miou
    assert result.miou > 100 * background + 10
    guesses = result.predict(test, range(len(test)))
    expected = segmentation_scores(guesses.values(), truths, 2, IGNORE)
    assert result.miou == pytest.approx(100 * expected.miou, abs=0.2)  # the cache holds float16
    assert result.aacc == pytest.approx(100 * expected.aacc, abs=0.2)
    for i in (0, 5):
        alone = segmentation_scores([guesses[i]], [truths[i]], 2, IGNORE).miou
        assert result.image_miou[i] == pytest.approx(100 * alone, abs=1.0)


def test_with_and_without_a_cache(tmp_path: Path) -> None:
    cached, straight = run(tmp_path / "a"), run(tmp_path / "b", max_cache=0)
    assert (cached.cached, straight.cached) == (True, False)
    assert straight.miou == pytest.approx(cached.miou, abs=3.0)  # half floats


def test_processes_cache_features_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the disk of another process were full."""
    monkeypatch.setattr("cenote.train.segmentation.any_process", lambda flag: True)
    settings = OptimizationConfig(epochs=1, batch=8)
    assert not run(tmp_path, settings, split_rectangles(8, test=True)).cached


def test_a_model_s_backbone_is_used(tmp_path: Path) -> None:
    model = create_model(
        "resnet18", "gap", 3, stride=4, layers=(1, 1, 1, 1), channels=(8, 8, 16, 16)
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = split_rectangles(16)
    result = segment(model, data.split("train"), data.split("val"), tmp_path, QUICK, size=32)
    assert math.isfinite(result.miou)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_resumed_run_ends_the_same(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    with stopped_after(8):
        run(tmp_path / "parts")
    again = run(tmp_path / "parts", resume=True)
    assert again.image_miou == whole.image_miou and again.iou == whole.iou
    with pytest.raises(ValueError, match=r"\bsize\b.*\b64\b.*\b32\b"):
        run(tmp_path / "parts", size=32, resume=True)


def test_broken_masks_are_named_and_the_rest_is_learned(tmp_path: Path) -> None:
    result = run(
        tmp_path, data=split_rectangles(48, bad_masks=(1, 2), test=True)
    )  # 1 is trained on, 2 tested
    assert result.unreadable == ["1.mask.png: damaged", "2.mask.png: damaged"]
    assert len(result.image_miou) == 11 and 0 not in result.image_miou


def test_what_masks_cannot_say_is_refused(tmp_path: Path) -> None:
    data = split_rectangles(16)
    data.mask_codes = "classes"  # of which 1 is the last
    data.classes = ["background"]
    labels = PixelLabels(data, 32)
    assert (labels.of(data, 0) == IGNORE).all()
    assert str(data.path(0)) in labels.unreadable
    data.pixels = None
    with pytest.raises(ValueError, match=r"\brectangles\b"):
        PixelLabels(data, 32).usable(data)
