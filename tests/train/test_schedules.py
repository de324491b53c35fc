"""The learning rate against its definition, and the settings that a run may not change."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from cenote.train.checkpoint import refuse_changes
from cenote.train.config import OptimizationConfig
from cenote.train.optimizer import lr_factor, out_of_patience
from cenote.train.recipes import read_fields


def test_cosine_with_warm_up() -> None:
    settings = OptimizationConfig(epochs=20, lr=0.1, warmup=5, min_lr=0.01)
    assert [lr_factor(settings, e) for e in (0, 1, 2.5, 5)] == pytest.approx([0, 0.2, 0.5, 1])
    for epoch in (5, 7.25, 12.5, 20):
        cosine = 0.01 + (0.1 - 0.01) * 0.5 * (1 + math.cos(math.pi * (epoch - 5) / 15))
        assert 0.1 * lr_factor(settings, epoch) == pytest.approx(cosine)


def test_steps_count_from_the_beginning() -> None:
    """The learning rate falls to a tenth every 15 epochs of 50."""
    settings = OptimizationConfig(schedule="step", epochs=50, step_every=15)
    factors = [lr_factor(settings, e) for e in (0, 14.99, 15, 29.99, 30, 45)]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.001])


def test_poly_and_constant() -> None:
    poly = OptimizationConfig(schedule="poly", epochs=10, power=0.9)
    assert [lr_factor(poly, e) for e in (0, 5, 10)] == pytest.approx([1, 0.5**0.9, 0])
    assert lr_factor(OptimizationConfig(schedule="constant", epochs=10), 7) == 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("patience", [1, 2, 4])
def test_a_plateau_is_torchs(seed: int, patience: int) -> None:
    """PyTorch's scheduler waits one epoch longer than its patience."""
    scores = np.random.default_rng(seed).integers(0, 6, 40).astype(float)  # ties too
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        "max",
        factor=0.5,
        patience=patience - 1,
        threshold=0.0,
        threshold_mode="abs",
        eps=0.0,
    )
    settings = OptimizationConfig(schedule="plateau", epochs=40, plateau=patience, step_factor=0.5)
    for epoch, score in enumerate(scores):
        assert lr_factor(settings, epoch + 0.5, scores[:epoch]) == optimizer.param_groups[0]["lr"]
        theirs.step(score)


@pytest.mark.parametrize("patience", [1, 3, None])
def test_a_run_gives_up_when_nothing_was_better_for_so_long(patience: int | None) -> None:
    scores = [1.0, 2.0, 2.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 9.0]
    waits = [0, 0, 1, 2, 3, 0, 1, 2, 3, 0]  # epochs since the last gain
    for done, waited in enumerate(waits, 1):
        assert out_of_patience(scores[:done], patience) == (
            patience is not None and waited >= patience
        )
    assert not out_of_patience([], patience)
    assert out_of_patience([math.nan, 1.0, 1.0, 1.0, 1.0], patience) == (patience is not None)


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"patience": 0}, r"\bpatience\b.*\b0\b"),
        ({"step_factor": 2}, r"\bstep_factor\b.*\b2\b"),
        ({"epochs": 0}, r"\bepochs\b.*\b0\b"),
        ({"batch": 10, "accumulate": 3}, r"\bbatch\b.*\b10\b.*\b3\b"),
    ],
)
def test_settings_are_checked(values: dict[str, float], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        read_fields(OptimizationConfig(), values)


def test_a_changed_setting_is_named() -> None:
    before = dataclasses.asdict(OptimizationConfig())
    refuse_changes(before, dataclasses.asdict(OptimizationConfig(workers=7, checkpoint_minutes=1)))
    with pytest.raises(ValueError, match=r"\blr\b.*\b0\.001\b.*\b0\.1\b.*\bseed\b.*\b0\b.*\b3\b"):
        refuse_changes(before, dataclasses.asdict(OptimizationConfig(lr=0.1, seed=3)))
