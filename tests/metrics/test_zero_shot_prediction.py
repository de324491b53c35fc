"""The zero-shot prediction study is a loop: fit on half of the classes, foretell the others,
rank.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from cenote.losses.zero_shot import ridge_map
from cenote.metrics import zero_shot_prediction


def images(
    classes: int, prototypes: int, dim: int, linear: bool, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Histograms and embeddings of 5 images a class; `linear`: the one foretells the other, in all
    classes alike.
    """
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(5)[torch.randperm(5 * classes, generator=draw)]
    own = torch.randn(classes, prototypes, generator=draw).mul(3).softmax(1)
    z = own[labels] * (1 + 0.1 * torch.rand(len(labels), prototypes, generator=draw))
    z = z / z.sum(1, keepdim=True)
    if linear:
        return z, z @ torch.randn(prototypes, dim, generator=draw) * 4, labels
    return z, torch.randn(classes, dim, generator=draw)[labels], labels


def slow(
    z: Tensor, x: Tensor, labels: Tensor, ridge: float, rounds: int, seed: int
) -> dict[str, float]:
    """One round, one class, one candidate at a time; the fit is that of the loss."""
    present = labels.unique().tolist()
    means_z = torch.stack([z[labels == label].double().mean(0) for label in present])
    means_x = torch.stack([x[labels == label].double().mean(0) for label in present])
    generator, known = torch.Generator().manual_seed(seed), len(present) // 2
    found: dict[str, list[float]] = {"l2": [], "cosine": []}
    for _ in range(rounds):
        order = torch.randperm(len(present), generator=generator).tolist()
        a = ridge_map(means_z[order[:known]], means_x[order[:known]], ridge)
        for i in order[known:]:
            told = means_z[i] @ a
            apart = {
                "l2": [float((told - means_x[j]).norm()) for j in order[known:]],
                "cosine": [
                    -float(torch.cosine_similarity(told, means_x[j], dim=0)) for j in order[known:]
                ],
            }
            for name, values in apart.items():
                own = values[order[known:].index(i)]
                found[name].append(1 + sum(value < own for value in values))
    scores = {
        f"accuracy_{name}": float(np.mean([rank == 1 for rank in ranks]))
        for name, ranks in found.items()
    }
    return scores | {
        f"map_{name}": float(np.mean([1 / rank for rank in ranks])) for name, ranks in found.items()
    }


@pytest.mark.parametrize("classes", [3, 10, 21])
@pytest.mark.parametrize("prototypes", [4, 16])  # more than the classes of a half, and fewer
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("budget", [1, 1 << 28])
def test_as_a_loop(classes: int, prototypes: int, linear: bool, budget: int) -> None:
    given = images(classes, prototypes, 6, linear)
    found = zero_shot_prediction(*given, rounds=12, seed=3, budget=budget)
    wanted = slow(*given, 0.05, 12, 3)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=1e-12)


def test_what_transfers_is_told_from_what_does_not() -> None:
    right, wrong = (
        zero_shot_prediction(*images(20, 8, 6, linear), ridge=1e-4, rounds=200)
        for linear in (True, False)
    )
    assert right["accuracy_l2"] > 0.9 and right["map_cosine"] > 0.9
    for name in ("l2", "cosine"):
        assert abs(wrong[f"accuracy_{name}"] - wrong["chance_accuracy"]) < 0.1
        assert abs(wrong[f"map_{name}"] - wrong["chance_map"]) < 0.1
    assert wrong["chance_accuracy"] == 0.1 and wrong["chance_map"] == pytest.approx(0.29289682)


def test_prototypes_that_all_classes_share_alike_foretell_nothing() -> None:
    """All predictions are equal: in each round one class is nearest to all of them, and only it is
    right.
    """
    _, x, labels = images(10, 8, 6, True)
    found = zero_shot_prediction(torch.full((50, 8), 1 / 8), x, labels)
    assert found["accuracy_l2"] == pytest.approx(0.2) == found["accuracy_cosine"]
    assert found["map_l2"] == pytest.approx(found["chance_map"])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"labels": [0, 0, 1, 1]}, r"\b3 classes\b.*\b2\b"),
        ({"labels": [0, 1]}, r"labels\b.*\b4\b.*\(2,\)"),
        ({"histograms": torch.full((4, 2), float("nan"))}, r"histograms\b.*NaN"),
    ],
)
def test_wrong_input_is_refused(wrong: dict, named: str) -> None:
    usual = {"histograms": torch.rand(4, 2), "embeddings": torch.rand(4, 3), "labels": [0, 1, 2, 3]}
    with pytest.raises(ValueError, match=named):
        zero_shot_prediction(**(usual | wrong))
