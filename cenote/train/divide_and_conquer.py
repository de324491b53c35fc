"""D&C (Sanakoyeu et al., Divide and conquer the embedding space for metric learning, 2019).

The training images are clustered by their embeddings, and each cluster trains a slice of the
embedding, its learner; in the last epochs all images train the whole. From the paper and the
authors' program (github.com/CompVis/metric-learning-divide-and-conquer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from scipy.cluster.vq import kmeans2
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from ..data.samplers import BalancedBatchSampler, EpochIndex, SeededBatchSampler, mix_seed
from ..losses.metric import Memory, MetricLoss
from ..unit import unit

ITERATIONS = 100  # of k-means
Ints = npt.NDArray[np.int64]


class Learners(MetricLoss):
    """A loss of each slice of the embedding, and one of the whole.

    `clusters` has the learner of each training image, -1 where it has none. All are -1 in the
    epochs that train the whole embedding. `learner` is that of the batch, None: the whole.
    """

    clusters: Tensor

    def __init__(
        self, create: Callable[[int], MetricLoss], dim: int, learners: int, images: int
    ) -> None:
        super().__init__()
        if dim % learners:
            raise ValueError(f"--learners must divide --dim, got {learners} learners of {dim}")
        self.whole = create(dim)
        self.slices = nn.ModuleList(create(dim // learners) for _ in range(learners))
        self.name, self.proxied = self.whole.name, self.whole.proxied
        self.register_buffer("clusters", torch.full((images,), -1))
        self.learner: int | None = None

    def forward(self, z: Tensor, labels: Tensor, memory: Memory | None = None) -> Tensor:
        if self.learner is None:
            loss: Tensor = self.whole(z, labels)
        else:
            loss = self.slices[self.learner](self.slice_of(z, self.learner), labels)
        # Several processes wait for a gradient of every parameter.
        return loss + sum((0 * p.sum() for p in self.parameters()), 0 * z.sum())

    def slice_of(self, z: Tensor, learner: int) -> Tensor:
        """Return the dimensions of a learner, (B, D / learners)."""
        slices: Tensor = z.unflatten(1, (len(self.slices), -1))
        return slices[:, learner]

    def silent(self, labels: Tensor) -> str | None:
        return self.whole.silent(labels)

    def choose(self, images: Tensor) -> None:
        """Choose the learner of a batch of training images, which are of one cluster."""
        cluster = int(self.clusters[images[0]])
        self.learner = None if cluster < 0 else cluster

    def divide(self, vectors: Tensor, positions: Tensor, labels: Tensor, seed: int) -> None:
        """Cluster training images by their vectors (N, D).

        A cluster keeps the learner with which it shares the most images. An image that is alone of
        its class in its cluster has no learner.
        """
        x, k = unit(vectors).double().numpy(), len(self.slices)
        codes = kmeans2(x, min(k, len(x)), ITERATIONS, minit="++", seed=seed)[1]
        before = self.clusters[positions].numpy(force=True)
        shared = np.zeros((k, k))
        np.add.at(shared, (codes[before >= 0], before[before >= 0]), 1)
        codes = linear_sum_assignment(-shared)[1][codes]
        pairs = np.stack([codes, labels.numpy()], 1)
        _, kind, count = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        codes[count[kind.ravel()] < 2] = -1
        self.join()
        self.clusters[positions] = torch.from_numpy(codes).to(self.clusters)

    def join(self) -> None:
        """Train the whole embedding with all images from now on."""
        self.clusters.fill_(-1)


class ClusterBatchSampler(SeededBatchSampler):
    """Batches of one cluster each, all clusters in turn; without clusters those of `whole`.

    `images` is the number of images of a class in a batch, 0 for random batches of a cluster.
    An epoch has as many batches as that of `whole`. A cluster gives a batch as many classes as it
    has; one without two classes waits for the next clustering.
    """

    def __init__(
        self, whole: SeededBatchSampler, learners: Learners, labels: npt.ArrayLike, images: int
    ) -> None:
        self.whole, self.learners, self.images = whole, learners, images
        self.labels = np.asarray(labels, np.int64)
        self.seed, self.rank, self.world = whole.seed, whole.rank, whole.world
        self.batch, self.n, self.batches = whole.batch, whole.n, len(whole)
        self.epoch, self.start = 0, 0

    def iterate(self, epoch: int, start: int) -> Iterator[list[EpochIndex]]:
        """Iterate over the batches of an epoch, from batch `start` on."""
        clusters = self.learners.clusters.numpy(force=True)
        streams = [
            self._stream(np.flatnonzero(clusters == k), mix_seed(self.seed, epoch, k) >> 1)
            for k in range(clusters.max(initial=-1) + 1)
        ]
        streams = [stream for stream in streams if stream is not None]
        if not streams:
            self.learners.join()  # a batch of several clusters trains the whole embedding
            yield from self.whole.iterate(epoch, start)
            return
        rng = np.random.default_rng(mix_seed(self.seed, epoch))
        turns = np.concatenate(
            [rng.permutation(len(streams)) for _ in range(-(-self.batches // len(streams)))]
        )
        for step, turn in enumerate(turns[: self.batches].tolist()):
            images = next(streams[turn])
            if step >= start:
                yield [(epoch, int(i)) for i in images[self.rank :: self.world]]

    def _stream(self, rows: Ints, seed: int) -> Iterator[Ints] | None:
        """Return endless steps of a cluster's images, None if it has too few."""
        step, labels = self.batch * self.world, self.labels[rows]
        classes = len(np.unique(labels))
        if classes < 2:
            return None
        sampler = SeededBatchSampler(len(rows), min(step, len(rows)), True, seed, True)
        if self.images:
            classes = min(classes, max(step // self.images, 2), len(rows) // self.images)
            if classes < 2:
                return None
            sampler = BalancedBatchSampler(labels, classes, self.images, seed)
        return _endless(sampler, rows)


def _endless(sampler: SeededBatchSampler, rows: Ints) -> Iterator[Ints]:
    epoch = 0
    while True:
        for batch in sampler.iterate(epoch, 0):
            yield rows[[index for _, index in batch]]
        epoch += 1
