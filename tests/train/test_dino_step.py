"""Steps of DINO that are computed together: clipping of all gradients, the teacher's spread once per epoch."""

from pathlib import Path

import pytest
import torch
from torch import nn

from cenote.losses import answer_spread
from cenote.losses.self_supervised import teacher_probabilities
from cenote.train.augment import build_augmentation
from cenote.train.build import build_model
from cenote.train.config import DinoConfig, OptimizationConfig
from cenote.train.configure import configure
from cenote.train.engine import Engine
from cenote.train.self_supervised import Dino, clip_each
from tests.synthetic import squares

OPTIONS = DinoConfig(out=32, hidden=16, bottleneck=8, freeze_last=0.0)


def test_clipped_as_torch_clips_each_tensor_alone() -> None:
    torch.manual_seed(0)
    scales = (1e-3, 0.1, 1.0, 50.0, 0.0)
    tensors = [nn.Parameter(torch.zeros(4, 5)) for _ in scales]
    for p, scale in zip(tensors, scales, strict=True):
        p.grad = scale * torch.randn(4, 5)
    found = [p.grad.clone() for p in tensors if p.grad is not None]
    clip_each(found, 0.5)
    for p, gradient in zip(tensors, found, strict=True):
        nn.utils.clip_grad_norm_(p, 0.5)
        torch.testing.assert_close(gradient, p.grad)
    assert float(found[3].norm()) == pytest.approx(0.5, abs=1e-5) and torch.equal(
        found[4], torch.zeros(4, 5)
    )
    clip_each([], 0.5)


def test_the_spread_is_of_the_last_step_with_the_centre_that_it_had(tmp_path: Path) -> None:
    settings = OptimizationConfig(epochs=2, batch=8, lr=1e-3)
    config = configure("dino", backbone="test_vit", size=32, local_size=16, local=1)
    model, train = build_model(config), squares(16).split("train")
    dino = Dino(model, train, None, settings, build_augmentation(config, model), OPTIONS)
    assert dino.training_metrics() == {} and dino.warning() is None
    engine, batch = Engine(dino, settings, tmp_path), next(iter(dino.loader))
    for _ in range(2):
        (part,) = dino.prepare(batch, 1)
        with torch.no_grad():
            teacher = dino.module.train()(part)[1]
        centre = dino.module.centre.clone()
        engine.train_step(batch)
        assert not torch.equal(centre, dino.module.centre)
        each, together = answer_spread(
            teacher_probabilities(teacher, centre, dino.module.temperature)
        )
        assert dino.training_metrics() == pytest.approx(
            {"entropy": each, "diversity": together}, rel=1e-4
        )
