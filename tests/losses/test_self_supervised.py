"""DINO's and MoCo's losses equal loops over views and images, with their gradients; a collapse is
recognised.
"""

import pytest
import torch
import torch.nn.functional as F

from cenote.losses import answer_spread, dino_loss, moco_loss
from cenote.losses.self_supervised import teacher_probabilities


@pytest.mark.parametrize(("views", "large"), [(2, 2), (8, 2), (4, 1)])
def test_dino_is_the_mean_over_pairs_of_different_views(views: int, large: int) -> None:
    torch.manual_seed(0)
    student = torch.randn(views, 5, 11, dtype=torch.float64, requires_grad=True)
    teacher, centre = (
        torch.randn(large, 5, 11, dtype=torch.float64),
        torch.randn(11, dtype=torch.float64),
    )
    terms = []
    for i in range(large):
        target = ((teacher[i] - centre) / 0.05).softmax(-1)
        for j in range(views):
            if j != i:
                terms.append(-(target * (student[j] / 0.1).log_softmax(-1)).sum(-1).mean())
    expected = torch.stack(terms).mean()
    found = dino_loss(student, teacher, centre, 0.1, 0.05)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
    (slow,) = torch.autograd.grad(expected, student)
    (fast,) = torch.autograd.grad(found, student)
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-6)


def test_dino_is_half_float_safe() -> None:
    student, teacher = 50 * torch.randn(8, 4, 256).half(), 50 * torch.randn(2, 4, 256).half()
    assert dino_loss(student, teacher, torch.zeros(256)).isfinite()


def test_collapse_to_one_answer_and_to_none() -> None:
    torch.manual_seed(0)
    healthy = answer_spread(teacher_probabilities(torch.randn(2, 64, 100), torch.zeros(100), 0.1))
    assert healthy.collapsed is None
    one = torch.zeros(32, 100)
    one[:, 7] = 1
    to_one, to_none = (
        answer_spread(one).collapsed,
        answer_spread(torch.full((32, 100), 0.01)).collapsed,
    )
    assert isinstance(to_one, str) and isinstance(to_none, str) and to_one != to_none


def test_moco_is_cross_entropy_of_cosines_over_all_keys() -> None:
    torch.manual_seed(0)
    q = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(7, 8, dtype=torch.float64, requires_grad=True)
    terms = []
    for i in range(3):
        cosines = torch.stack([F.cosine_similarity(q[i], k, dim=0) for k in keys]) / 0.2
        terms.append(cosines.logsumexp(0) - cosines[4 + i])
    found = moco_loss(q, keys, 0.2, first=4)
    torch.testing.assert_close(
        found.double(), 2 * 0.2 * torch.stack(terms).mean(), rtol=1e-5, atol=0
    )
    found.backward()
    assert keys.grad is None and q.grad is not None
