"""Batch samplers whose order depends on the seed and the epoch alone."""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt

from .checks import check

LOOK_AHEAD = 50  # groups that are tried before a group is split
Ints = npt.NDArray[np.int64]
EpochIndex = tuple[int, int]  # epoch, position in the data set


def mix_seed(*numbers: int) -> int:
    """Hash integers into a 64-bit seed, so that neighbouring numbers give unrelated streams."""
    packed = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")


class SeededBatchSampler:
    """Batch sampler that divides the images of each step among processes.

    Step k of all processes together holds the same images for every number of processes, as long
    as `batch * world` is the same. No image is repeated to make the shares equal: without
    `drop_last`, some processes may have one batch less. Set `epoch` before each epoch; `start` is
    the first batch of the next pass.
    """

    def __init__(
        self,
        n: int,
        batch: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        check(batch >= 1, f"batch must be at least 1, got {batch}")
        self.n, self.batch, self.shuffle, self.seed = n, batch, shuffle, seed
        self.rank, self.world = rank, world
        self.epoch, self.start = 0, 0
        full_steps, remainder = divmod(n, batch * world)
        self.batches = full_steps + (rank < remainder and not drop_last)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[EpochIndex]]:
        # Bind epoch and start now: torch may draw the first batch much later.
        return self.iterate(self.epoch, self.start)

    def iterate(self, epoch: int, start: int) -> Iterator[list[EpochIndex]]:
        """Iterate over the batches of an epoch, from batch `start` on."""
        order = self.order(epoch)
        step_size = self.batch * self.world
        for step in range(start, self.batches):
            share = self.share(order[step * step_size : (step + 1) * step_size])
            yield [(epoch, int(index)) for index in share]

    def share(self, step: Ints) -> Ints:
        """Return the images of a step that belong to this process."""
        return step[self.rank :: self.world]

    def order(self, epoch: int) -> Ints:
        """Return the images of all processes in an epoch, in order."""
        if not self.shuffle:
            return np.arange(self.n)
        return _generator(self.seed, epoch).permutation(self.n)


class FixedLengthEpochs(SeededBatchSampler):
    """Another sampler cut into epochs of `steps` batches; each epoch continues where one ended."""

    def __init__(self, sampler: SeededBatchSampler, steps: int) -> None:
        check(len(sampler), f"{sampler.n} images are fewer than a batch of {sampler.batch}")
        self.sampler, self.n, self.batches = sampler, sampler.n, steps
        self.epoch, self.start = 0, 0

    def iterate(self, epoch: int, start: int) -> Iterator[list[EpochIndex]]:
        """Iterate over the batches of an epoch, from batch `start` on."""
        inner_epoch, step = divmod(epoch * self.batches + start, len(self.sampler))
        remaining = self.batches - start
        while remaining > 0:
            yield from islice(self.sampler.iterate(inner_epoch, step), remaining)
            remaining -= len(self.sampler) - step
            inner_epoch, step = inner_epoch + 1, 0


class BalancedBatchSampler(SeededBatchSampler):
    """Batches of `classes` x `images` per process, for losses on pairs of images.

    Every image appears at most once in an epoch. A class is split into groups of `images`, the
    final group may be smaller; the groups of a class are spread over the epoch, and a class appears
    twice in a step only if no other class remains. Another class fills the place that a small
    group leaves: all batches have one size, as gathering over processes, batch norm and a memory
    bank require. A process has complete groups. A step of all processes together is the same for
    every number of processes, as long as `classes * world` is the same.
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        classes: int,
        images: int,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.labels = np.asarray(labels, np.int64)
        super().__init__(len(self.labels), classes * images, True, seed, True, rank, world)
        self.images = images
        step_classes, present = classes * world, np.unique(self.labels)
        unlabelled = int((self.labels < 0).sum())
        check(not unlabelled, f"{unlabelled} images have no class: leave them out")
        check(
            step_classes <= len(present) and step_classes * images <= self.n,
            f"a step of {step_classes} x {images} images (classes x images per class) does not "
            f"fit {len(present)} classes and {self.n} images: use fewer per batch",
        )

    def share(self, step: Ints) -> Ints:
        """Return the images of a step that belong to this process."""
        return step[self.rank * self.batch : (self.rank + 1) * self.batch]

    def order(self, epoch: int) -> Ints:
        """Return the images of all steps in an epoch, class by class in each step."""
        rng = _generator(self.seed, epoch)
        shuffled = rng.permutation(self.n)
        by_class = shuffled[np.argsort(self.labels[shuffled], kind="stable")]
        groups = np.split(by_class, self._group_starts(by_class)[1:])
        look_ahead = LOOK_AHEAD * (self.images > 1)
        spread, size = self._spread(groups, rng), self.batch * self.world
        return _fill_steps(spread, self.labels, size, look_ahead)

    def _group_starts(self, by_class: Ints) -> Ints:
        """Return where groups start; a group of one image takes a partner from the one before."""
        starts, first = [], 0
        for count in np.unique(self.labels[by_class], return_counts=True)[1]:
            starts.append(np.arange(first, first + count, self.images))
            if count % self.images == 1 and count > self.images > 2:
                starts[-1][-1] -= 1
            first += count
        return np.concatenate(starts)

    def _spread(self, groups: list[Ints], rng: np.random.Generator) -> list[Ints]:
        """Place group k of a class with g groups at random in the k-th of g parts of the epoch.

        The small group may come in any part.
        """
        owner = np.array([self.labels[group[0]] for group in groups])  # sorted
        _, first, count = np.unique(owner, return_index=True, return_counts=True)
        g, k = np.repeat(count, count), np.arange(len(groups)) - np.repeat(first, count)
        interval = (k + np.repeat(rng.integers(count), count)) % g
        moments = (interval + rng.random(len(groups))) / g
        return [groups[i] for i in np.argsort(moments, kind="stable")]


def _generator(*numbers: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(mix_seed(*numbers)))


def _fill_steps(groups: list[Ints], labels: Ints, size: int, look_ahead: int) -> Ints:
    """Concatenate groups into steps of `size` images.

    A group whose class is already in the step waits for the next step. So does a group that is too
    large for the remaining space, or that would leave space for a single image, if one of the next
    `look_ahead` groups fits better; otherwise it is split.
    """
    placed: list[Ints] = []
    queue = deque(groups)
    for _ in range(len(labels) // size):
        space, step_labels, waiting, tries = size, set[int](), deque[Ints](), look_ahead
        while space:
            group = queue.popleft() if queue else waiting.popleft()
            label = int(labels[group[0]])
            fits_badly = len(group) > space or len(group) == space - 1
            if queue and (label in step_labels or (tries and fits_badly)):
                waiting.append(group)
                tries -= label not in step_labels
                continue
            placed.append(group[:space])
            if len(group) > space:
                waiting.appendleft(group[space:])  # the next step starts with the remainder
            space -= len(placed[-1])
            step_labels.add(label)
        queue.extendleft(reversed(waiting))
    return np.concatenate(placed)
