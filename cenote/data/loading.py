"""Batches in an order, and with augmentations, that depend on the seed, the epoch and the image alone.

Not on the number of workers, nor on where in an epoch a run was resumed.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, get_worker_info
from torch.utils.data import Dataset as TorchDataset

from .dataset import Dataset
from .images import BadImage

Place = tuple[int, int]  # epoch, position in the dataset


class Bad(NamedTuple):
    """An image that could not be read, and the sentence that says why."""

    position: int
    sentence: str


class Batch(NamedTuple):
    """Images that could be read, and the names of those that could not. Nothing readable: no indices."""

    images: (
        Any  # (B, 3, H, W), or what the transform gave, collated: a list of such for DINO's crops
    )
    labels: Tensor  # (B,) positions in `classes`, -1 where there is none
    indices: Tensor  # (B,) positions in the dataset
    bad: list[Bad]
    truth: list[Any]  # boxes and masks, moved with the pixels, where they were asked for


class Sample(NamedTuple):
    image: Any
    label: int
    position: int
    truth: Any = None


class Images(TorchDataset[Sample | Bad]):
    """A dataset as torch takes it. Its key is a position, or an epoch and a position.

    The generators of torch, NumPy and Python are seeded for every image; outside of workers they are put back.
    Those that the transform cannot draw from are left alone.
    """

    def __init__(
        self, dataset: Dataset, transform: Callable[..., Any], seed: int = 0, truth: bool = False
    ) -> None:
        self.dataset, self.transform, self.seed, self.truth = dataset, transform, seed, truth
        self.labels = dataset.labels
        self.torch_alone = draws_from_torch_alone(transform)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, place: int | Place) -> Sample | Bad:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[int | Place]) -> list[Sample | Bad]:
        """A whole batch: torch asks for this where it is there."""
        with _generators_put_back(self.torch_alone):
            return [
                self._sample(*(place if isinstance(place, tuple) else (0, int(place))))
                for place in places
            ]

    def _sample(self, epoch: int, index: int) -> Sample | Bad:
        try:
            image = self.dataset.image(index)
            truth = self._truth(index, image.size) if self.truth else None
        except BadImage as error:
            return Bad(index, str(error))
        _seed(mixed(self.seed, epoch, index), self.torch_alone)
        if truth is None:
            return Sample(self.transform(image), int(self.labels[index]), index)
        pixels, moved = self.transform(image, truth)
        return Sample(pixels, int(self.labels[index]), index, moved)

    def _truth(self, index: int, size: tuple[int, int]) -> Any:
        from .transforms import truth_of

        mask = self.dataset.mask(index)
        if mask is not None and mask.shape != size[::-1]:
            told = f"{mask.shape[1]} x {mask.shape[0]} pixels, the image {size[0]} x {size[1]}"
            raise BadImage(self.dataset.path(index), f"its mask has {told}")
        return truth_of(self.dataset[index].boxes, mask, size)


class Order:
    """Which images stand in which batch: a batch sampler that shares the images of each step among processes.

    Step k of all processes together holds the same images whatever their number, as long as `batch * world` is.
    No image is repeated to make the shares equal: without `drop_last`, some processes may have one batch less.
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
        if batch < 1:
            raise ValueError(f"a batch holds at least one image, got {batch}")
        if not 0 <= rank < world:
            raise ValueError(f"rank is from 0 to world - 1, got rank {rank} of {world}")
        self.n, self.batch, self.shuffle, self.seed = n, batch, shuffle, seed
        self.rank, self.world = rank, world
        self.epoch, self.start = 0, 0
        together = batch * world
        whole, rest = divmod(n, together)
        self.batches = whole + (rank < rest and not drop_last)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[Place]]:
        return self._places(
            self.epoch, self.start
        )  # as they are now: torch may draw the first batch much later

    def _places(self, epoch: int, start: int) -> Iterator[list[Place]]:
        order = self.order(epoch)
        together = self.batch * self.world
        for step in range(start, self.batches):
            share = self.share(order[step * together : (step + 1) * together])
            yield [(epoch, int(index)) for index in share]

    def share(self, step: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What this process has of a step's images."""
        return step[self.rank :: self.world]

    def order(self, epoch: int) -> npt.NDArray[np.int64]:
        """The images of all processes in an epoch, in order."""
        if not self.shuffle:
            return np.arange(self.n)
        return np.random.Generator(np.random.PCG64(mixed(self.seed, epoch))).permutation(self.n)


class Stretches(Order):
    """Another order in stretches of so many steps, each of which counts as an epoch: where one ends, the next goes on.

    Epochs of the other order come one after the other, as they would without it.
    """

    def __init__(self, whole: Order, steps: int) -> None:
        if steps < 1 or not len(whole):
            raise ValueError(
                f"a stretch has at least one step of an order that has some, got {steps} of {len(whole)}"
            )
        super().__init__(
            whole.n, whole.batch, whole.shuffle, whole.seed, True, whole.rank, whole.world
        )
        self.whole, self.batches = whole, steps

    def _places(self, epoch: int, start: int) -> Iterator[list[Place]]:
        turn, step = divmod(epoch * self.batches + start, len(self.whole))
        left = self.batches - start
        while left > 0:
            yield from islice(self.whole._places(turn, step), left)
            left -= len(self.whole) - step
            turn, step = turn + 1, 0


class Loader(DataLoader[Any]):
    """A DataLoader of `Batch`. Set `epoch` before each epoch; `seek` begins in the middle of one."""

    batch_sampler: Order

    @property
    def epoch(self) -> int:
        return self.batch_sampler.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.seek(epoch)

    def seek(self, epoch: int, batch: int = 0) -> None:
        """The next pass gives this epoch from this batch on; passes after it give whole epochs."""
        if not 0 <= batch <= len(self):
            raise ValueError(
                f"an epoch has {len(self)} batches: there is no batch {batch} to start at"
            )
        self.batch_sampler.epoch, self.batch_sampler.start = epoch, batch

    def __iter__(self) -> Any:
        try:
            return map(_with_tensors, super().__iter__())
        finally:
            self.batch_sampler.start = 0


def load(
    dataset: Dataset,
    transform: Callable[..., Any],
    batch: int = 64,
    workers: int = 0,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    truth: bool = False,
    rank: int = 0,
    world: int = 1,
    start_method: str | None = None,
    order: Order | None = None,
) -> Loader:
    """Batches of `batch` images on each of `world` processes.

    `truth` calls the transform with boxes and mask too. `start_method` is "fork", "spawn" or "forkserver". An `order`
    of your own, of this data set, stands for batch, shuffle, drop_last, rank and world.
    """
    if order is None:
        order = Order(len(dataset), batch, shuffle, seed, drop_last, rank, world)
    elif order.n != len(dataset):
        raise ValueError(f"the order is of {order.n} images, {dataset.name} has {len(dataset)}")
    return Loader(
        Images(dataset, transform, seed, truth),
        batch_sampler=order,
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=_keep_memory,
        persistent_workers=workers > 0,
        multiprocessing_context=start_method if workers else None,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # its own: torch would draw from the default one, and change what training draws
    )


def collate(samples: list[Sample | Bad]) -> Batch:
    """Samples into a batch; torch stacks images right into the memory that workers share.

    Labels and indices stay NumPy's until they have arrived: every tensor that leaves a worker costs a handshake.
    """
    good = [sample for sample in samples if isinstance(sample, Sample)]
    numbers: Any = np.array([(sample.label, sample.position) for sample in good], np.int64).reshape(
        -1, 2
    )
    return Batch(
        images=default_collate([sample.image for sample in good]) if good else torch.empty(0),
        labels=numbers[:, 0],
        indices=numbers[:, 1],
        bad=[sample for sample in samples if isinstance(sample, Bad)],
        truth=[sample.truth for sample in good if sample.truth is not None],
    )


def _with_tensors(batch: Batch) -> Batch:
    labels, indices = (
        torch.as_tensor(batch.labels).contiguous(),
        torch.as_tensor(batch.indices).contiguous(),
    )
    return batch._replace(labels=labels, indices=indices)


def mixed(*numbers: int) -> int:
    """64 bits of all of them, so that neighbours have nothing in common."""
    packed = struct.pack(f"<{len(numbers)}q", *numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")


def _keep_memory(worker: int) -> None:
    """Let glibc keep what a decoded image leaves free for the next one.

    It would give each back to the system and take it again page by page: a tenth of a worker's time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at its largest
    mallopt(-1, 128 << 20)  # M_TRIM_THRESHOLD: the most that is kept


def draws_from_torch_alone(transform: Any) -> bool:
    """Known for torchvision's own transforms and ours; whatever holds a stranger may draw from anywhere.

    Then the other generators need no seed, which costs as much as everything else here that is not decoding.
    """
    parts = [*getattr(transform, "transforms", ()), *getattr(transform, "views", ())]
    home = f"{type(transform).__module__}."
    own = home.startswith(
        (
            "torchvision.transforms.v2.",
            "cenote.data.transforms.",
            "cenote.data.crops.",
            "cenote.data.corruptions.",
        )
    )
    return own and not hasattr(transform, "lambd") and all(map(draws_from_torch_alone, parts))


def _seed(seed: int, torch_alone: bool) -> None:
    torch.default_generator.manual_seed(
        seed
    )  # torch.manual_seed would seed every accelerator as well
    if not torch_alone:
        np.random.seed(seed & 0xFFFFFFFF)
        random.seed(seed)


@contextmanager
def _generators_put_back(torch_alone: bool) -> Iterator[None]:
    """In the main process they go on afterwards as if nothing had been; a worker's serve nobody else."""
    if get_worker_info() is not None:
        yield
        return
    before, others = (
        torch.get_rng_state(),
        None if torch_alone else (np.random.get_state(), random.getstate()),
    )
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if others is not None:
            np.random.set_state(others[0])
            random.setstate(others[1])
