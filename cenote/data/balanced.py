"""Batches of so many classes and so many images of each: what losses of pairs learn from."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from .loading import Order, mixed

LOOK_AHEAD = 50  # groups that are tried before one is cut
Ints = npt.NDArray[np.int64]


class BalancedOrder(Order):
    """`classes` x `images` on each process: every image at most once in an epoch, the rest of a step left out.

    A class is cut into groups of `images`, its last one smaller; the groups of a class are spread over the epoch, and
    none stands twice in a step while there are others. Where a group is too small, another class fills its place:
    batches have one size, as gathering over processes, batch norm and a memory want, and nothing is shown twice.
    A process has whole groups. A step of all processes together is the same whatever their number, as long as
    `classes * world` is.
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
        if min(classes, images) < 1:
            raise ValueError(
                f"a batch has at least 1 class and 1 image of each, got {classes} x {images}"
            )
        super().__init__(len(self.labels), classes * images, True, seed, True, rank, world)
        self.images = images
        together, present = classes * world, np.unique(self.labels)
        if len(present) and present[0] < 0:
            raise ValueError(f"{(self.labels < 0).sum()} images have no class: leave them out")
        if together > len(present):
            raise ValueError(
                f"{together} classes in a step, there are {len(present)}: ask for fewer a batch"
            )
        if together * images > self.n:
            raise ValueError(
                f"{together} x {images} images in a step, there are {self.n}: ask for fewer a batch"
            )

    def share(self, step: Ints) -> Ints:
        return step[self.rank * self.batch : (self.rank + 1) * self.batch]

    def order(self, epoch: int) -> Ints:
        """The images of all steps in an epoch, class after class in each step."""
        draw = np.random.Generator(np.random.PCG64(mixed(self.seed, epoch)))
        shuffled = draw.permutation(self.n)
        by_class = shuffled[np.argsort(self.labels[shuffled], kind="stable")]
        groups = np.split(by_class, self._starts(by_class)[1:])
        look_ahead = LOOK_AHEAD if self.images > 1 else 0
        return _filled(self._spread(groups, draw), self.labels, self.batch * self.world, look_ahead)

    def _starts(self, by_class: Ints) -> Ints:
        """Where groups begin. A last image alone would have no partner: it takes one from the group before it."""
        starts, first = [], 0
        for count in np.unique(self.labels[by_class], return_counts=True)[1]:
            starts.append(np.arange(first, first + count, self.images))
            if count % self.images == 1 and count > self.images > 2:
                starts[-1][-1] -= 1
            first += count
        return np.concatenate(starts)

    def _spread(self, groups: list[Ints], draw: np.random.Generator) -> list[Ints]:
        """Group k of a class's g falls at a random moment of the k-th part of the epoch; the small one in any part."""
        owner = np.array([self.labels[group[0]] for group in groups])  # sorted
        _, first, count = np.unique(owner, return_index=True, return_counts=True)
        g, k = np.repeat(count, count), np.arange(len(groups)) - np.repeat(first, count)
        part = (k + np.repeat(draw.integers(count), count)) % g
        return [groups[i] for i in np.argsort((part + draw.random(len(groups))) / g, kind="stable")]


def _filled(groups: list[Ints], labels: Ints, size: int, look_ahead: int) -> Ints:
    """Steps of `size` images, end to end.

    Groups of a class that stands in the step already wait for the next one. So does one too large for the room that is
    left, or that would leave room for a single image, if one of the next ones fits better; else it is cut.
    """
    placed: list[Ints] = []
    queue = deque(groups)
    for _ in range(len(labels) // size):
        room, seen, waiting, tries = size, set[int](), deque[Ints](), look_ahead
        while room:
            group = queue.popleft() if queue else waiting.popleft()  # else: no other class is left
            label = int(labels[group[0]])
            if queue and (
                label in seen or (tries and (len(group) > room or len(group) == room - 1))
            ):
                waiting.append(group)
                tries -= label not in seen
                continue
            placed.append(group[:room])
            if len(group) > room:
                waiting.appendleft(group[room:])  # the next step begins with what did not fit
            room -= len(placed[-1])
            seen.add(label)
        queue.extendleft(reversed(waiting))
    return np.concatenate(placed)
