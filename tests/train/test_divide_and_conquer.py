"""D&C: slices of the embedding that learn from clusters of the images, and what they are good at."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cenote.data.samplers import BalancedBatchSampler, SeededBatchSampler
from cenote.losses import create_metric_loss
from cenote.losses.metric import MetricLoss
from cenote.metrics import retrieval_scores
from cenote.models import load
from cenote.train.divide_and_conquer import ClusterBatchSampler, Learners
from cenote.train.metric_run import train_metric
from tests.synthetic import discs

from .running import stopped_after
from .test_metric import configured


def margin(dim: int) -> MetricLoss:
    return create_metric_loss("multi-similarity", 8, dim, beta=2.0, gamma=40.0, m=0.5)


def learners(images: int = 12, count: int = 2, dim: int = 6) -> Learners:
    return Learners(margin, dim, count, images)


def test_a_batch_trains_the_slice_of_its_cluster() -> None:
    loss, labels = learners(), torch.arange(12) % 3
    z = torch.randn(12, 6, requires_grad=True)
    loss.clusters[:] = torch.arange(12) // 6
    for first, dimensions in ((0, slice(0, 3)), (6, slice(3, 6))):
        loss.choose(torch.arange(first, first + 6))
        value = loss(z, labels)
        torch.testing.assert_close(value, margin(3)(z[:, dimensions], labels))
        (gradient,) = torch.autograd.grad(value, z)
        assert gradient[:, dimensions].any() and not (gradient != 0)[:, other(dimensions)].any()
    loss.join()
    loss.choose(torch.arange(6))
    torch.testing.assert_close(loss(z, labels), margin(6)(z, labels))


def other(dimensions: slice) -> slice:
    return slice(3, 6) if dimensions.start == 0 else slice(0, 3)


def test_clusters_keep_their_learners_and_lone_images_have_none() -> None:
    loss = learners(images=14)
    centres = torch.tensor([[5.0, 0.0], [0.0, 5.0]])
    torch.manual_seed(0)
    x = centres[torch.arange(13) // 6 % 2] + 0.1 * torch.randn(13, 2)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 4, 0])  # image 5 is alone of its class
    positions = torch.arange(1, 14)  # the first image could not be read
    seen = set()
    for seed in range(8):  # k-means numbers the clusters otherwise
        loss.join()
        loss.divide(x, positions, labels, seed)
        assert loss.clusters[0] == -1 and loss.clusters[6] == -1
        first, second = loss.clusters[1:6], loss.clusters[7:13]
        assert len({*first.tolist()}) == len({*second.tolist()}) == 1 and first[0] != second[0]
        seen.add(int(first[0]))
        before = loss.clusters.clone()
        loss.divide(x, positions, labels, seed + 100)
        assert torch.equal(before, loss.clusters)
    assert seen == {0, 1}


@pytest.mark.parametrize("images", [0, 2])
def test_every_step_is_of_one_cluster_and_all_clusters_take_turns(images: int) -> None:
    labels = np.arange(60) % 6
    loss = learners(images=60, count=3)
    whole: SeededBatchSampler = SeededBatchSampler(60, 6, True, 0, True)
    if images:
        whole = BalancedBatchSampler(labels, 3, images, 0)
    sampler = ClusterBatchSampler(whole, loss, labels, images)
    assert list(sampler.iterate(0, 3)) == list(whole.iterate(0, 3))
    loss.clusters[:] = torch.arange(60) // 20
    loss.clusters[:2] = -1
    steps = list(sampler.iterate(1, 0))
    assert len(steps) == len(sampler) == 10
    turns = []
    for step in steps:
        rows = [row for _, row in step]
        (cluster,) = {int(loss.clusters[row]) for row in rows}
        turns.append(cluster)
        assert cluster >= 0 and len(set(rows)) == len(rows) == 6
        if images:
            assert np.unique(labels[rows], return_counts=True)[1].max() == 2
    assert {len({*turns[i : i + 3]}) for i in range(0, 9, 3)} == {3}
    assert steps == list(sampler.iterate(1, 0)) != list(sampler.iterate(2, 0))
    assert steps[4:] == list(sampler.iterate(1, 4))
    loss.clusters[40:] = -1  # one image is left: no batch
    loss.clusters[40] = 2
    assert {int(loss.clusters[step[0][1]]) for step in sampler.iterate(1, 0)} == {0, 1}


def test_a_slice_ranks_its_own_cluster_better_than_the_other_slice() -> None:
    """Classes of two kinds differ in directions of their own; a slice has room for one kind."""
    torch.manual_seed(0)
    kind = torch.arange(320) % 2
    labels = (torch.arange(320) // 2) % 4 + 4 * kind  # four classes of each kind
    centres = torch.randn(4, 8)
    x = torch.randn(320, 17)
    for k in (0, 1):
        x[kind == k, 8 * k : 8 * k + 8] = 3 * centres[labels[kind == k] % 4] + 0.6 * torch.randn(
            160, 8
        )
    x[:, 16] = 12.0 * (2 * kind - 1)  # what the clusters are made of
    linear, loss = nn.Linear(17, 4), learners(images=320, dim=4)
    loss.divide(x, torch.arange(320), labels, 0)
    own = [int(loss.clusters[kind == k][0]) for k in (0, 1)]
    assert sorted(own) == [0, 1] and (loss.clusters == torch.tensor(own)[kind]).all()
    whole = BalancedBatchSampler(labels.numpy(), 4, 10, 0)
    sampler = ClusterBatchSampler(whole, loss, labels.numpy(), 10)
    optimizer = torch.optim.Adam(linear.parameters(), 0.01)
    for epoch in range(30):
        for step in sampler.iterate(epoch, 0):
            rows = torch.tensor([row for _, row in step])
            loss.choose(rows)
            optimizer.zero_grad()
            loss(linear(x[rows]), labels[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        z = linear(x)

    def precision(learner: int, k: int) -> float:
        vectors: Tensor = loss.slice_of(z, learner)[kind == k]
        return retrieval_scores(vectors, labels[kind == k], (1,))["map@r"]

    for k in (0, 1):
        assert precision(own[k], k) > precision(own[1 - k], k) + 0.2


def test_a_run_clusters_again_trains_the_whole_at_the_end_and_resumes_to_the_same(
    tmp_path: Path,
) -> None:
    config = configured(
        {"learners": 2, "recluster": 1, "joint_epochs": 1},
        {"epochs": 3, "checkpoint_minutes": 0.0},
        pool="gap",
    )
    whole = train_metric(discs(), tmp_path / "whole", config)
    for stop in (2, 5):
        folder = tmp_path / str(stop)
        with stopped_after(stop):
            train_metric(discs(), folder, config)
        resumed = train_metric(discs(), folder, config, resume=True)
        assert resumed.test == whole.test
        one, two = (load(path).state_dict() for path in (tmp_path / "whole", folder))
        assert all(torch.equal(one[name], two[name]) for name in one)
    saved = torch.load(tmp_path / "whole/checkpoint.pt", weights_only=True)
    clusters = saved["contenders"]["metric"]["module"]["loss.clusters"]
    assert len(clusters) and (clusters == -1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learners": 3}, "--learners must divide --dim, got 3 learners of 16"),
        ({"learners": 2, "xbm": 8}, "--learners excludes"),
        ({"learners": 2, "metrix": ("embed",)}, "--learners excludes"),
        ({"joint_epochs": 2}, "they need --learners"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        configured(options, pool="gap")
