"""Batches in an order, and with augmentations, that depend on the seed, epoch and image alone.

They depend neither on the number of workers nor on where in an epoch a run was resumed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, get_worker_info
from torch.utils.data import Dataset as TorchDataset

from ..allocator import keep_memory
from ..device import default_device
from .checks import check
from .dataset import Dataset, images_are_files
from .ground_truth import mask_of
from .images import BadImage
from .processes import available_cores
from .samplers import EpochIndex, SeededBatchSampler, mix_seed

MAX_THREADS = 16  # that load images


@runtime_checkable
class InferenceTransform(Protocol):
    """A transform without randomness, which threads may run; `min_side` as in `read_image`."""

    @property
    def min_side(self) -> int | None: ...

    def __call__(self, image: Image.Image) -> Any: ...


class UnreadableImage(NamedTuple):
    """Position of an image that could not be read, with the reason."""

    position: int
    message: str


class Batch(NamedTuple):
    """Images that could be read, and the names of those that could not."""

    images: Any  # (B, 3, H, W), or the collated output of the transform: a list for DINO's crops
    labels: Tensor  # (B,) positions in `classes`, -1 where there is none; or (B, classes)
    indices: Tensor  # (B,) positions in the data set; empty if no image could be read
    bad: list[UnreadableImage]
    targets: list[Any]  # transformed boxes and masks, with `targets=True`


class Sample(NamedTuple):
    """One transformed image."""

    image: Any
    label: Any  # an entry of `Dataset.targets`
    position: int
    targets: Any = None


class TransformedImages(TorchDataset[Sample | UnreadableImage]):
    """Map-style torch data set. Its key is a position, or a pair of epoch and position.

    The generators of torch, NumPy and Python are seeded for every image; outside of workers their
    state is restored.
    """

    def __init__(
        self, dataset: Dataset, transform: Callable[..., Any], seed: int = 0, targets: bool = False
    ) -> None:
        self.dataset, self.transform, self.seed, self.targets = dataset, transform, seed, targets
        self.labels = dataset.targets
        self.random = not isinstance(transform, InferenceTransform)
        self.are_files = images_are_files(dataset.pixels)
        self.min_side: int | None = getattr(transform, "min_side", None)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: int | EpochIndex) -> Sample | UnreadableImage:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[int | EpochIndex]) -> list[Sample | UnreadableImage]:
        """Return a batch of samples: torch calls this instead of `__getitem__`."""
        if not self.random:
            return [self.sample(key) for key in keys]
        with _generators_restored():
            return [self.sample(key) for key in keys]

    def sample(self, key: int | EpochIndex) -> Sample | UnreadableImage:
        """Return one sample; a random transform changes the generators' states."""
        from .transforms import make_targets  # imports torchvision

        epoch, index = key if isinstance(key, tuple) else (0, int(key))
        targets = None
        try:
            image = self.dataset.image(index, self.min_side)
            if self.targets:
                mask = mask_of(self.dataset, index, image.size)
                targets = make_targets(self.dataset[index].boxes, mask, image.size)
        except BadImage as error:
            return UnreadableImage(index, str(error))
        if self.random:
            _seed(mix_seed(self.seed, epoch, index))
        label = self.labels[index]
        if targets is None:
            return Sample(self.transform(image), label, index)
        pixels, moved_targets = self.transform(image, targets)
        return Sample(pixels, label, index, moved_targets)


class ImageLoader(DataLoader[Any]):
    """DataLoader of `Batch`; call `seek` before each epoch.

    Without workers, files are loaded by threads for an `InferenceTransform`.
    """

    dataset: TransformedImages
    batch_sampler: SeededBatchSampler

    def seek(self, epoch: int, batch: int = 0) -> None:
        """Start the next pass at this batch of this epoch; later passes give complete epochs."""
        exists = 0 <= batch <= len(self)
        check(exists, f"an epoch has {len(self)} batches, cannot start at batch {batch}")
        self.batch_sampler.epoch, self.batch_sampler.start = epoch, batch

    def __iter__(self) -> Any:
        try:
            if self.num_workers or self.dataset.random or not self.dataset.are_files:
                return map(_to_tensors, super().__iter__())
            return map(_to_tensors, self._load_in_threads(iter(self.batch_sampler)))
        finally:
            self.batch_sampler.start = 0

    def _load_in_threads(self, batches: Iterator[list[EpochIndex]]) -> Iterator[Batch]:
        """Yield batches while threads load the next ones: Pillow releases the interpreter lock."""
        threads = min(available_cores(), MAX_THREADS)
        pool, pending = ThreadPoolExecutor(threads), deque[list[Future[Sample | UnreadableImage]]]()
        try:
            for keys in batches:
                pending.append([pool.submit(self.dataset.sample, key) for key in keys])
                if sum(map(len, pending)) > threads + len(keys):
                    yield collate([future.result() for future in pending.popleft()])
            while pending:
                yield collate([future.result() for future in pending.popleft()])
        finally:
            pool.shutdown(cancel_futures=True)


def load(
    dataset: Dataset,
    transform: Callable[..., Any],
    batch: int = 64,
    workers: int = 0,
    shuffle: bool = False,
    seed: int = 0,
    drop_last: bool = False,
    targets: bool = False,
    rank: int = 0,
    world: int = 1,
    sampler: SeededBatchSampler | None = None,
) -> ImageLoader:
    """Return a loader of batches of `batch` images on each of `world` processes.

    `targets` passes boxes and mask to the transform, too. A `sampler` replaces batch, shuffle,
    drop_last, rank and world.
    """
    if sampler is None:
        sampler = SeededBatchSampler(len(dataset), batch, shuffle, seed, drop_last, rank, world)
    return ImageLoader(
        TransformedImages(dataset, transform, seed, targets),
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=_start_worker,
        persistent_workers=workers > 0,
        pin_memory=default_device().type not in ("cpu", "mps"),  # MPS shares memory with the CPU
        # A generator of its own: torch would draw from the default one and change training.
        generator=torch.Generator(),
    )


def collate(samples: list[Sample | UnreadableImage]) -> Batch:
    """Collate samples; torch stacks the images directly in shared memory.

    Labels and indices stay NumPy arrays until they arrive in the main process: every tensor that a
    worker sends costs a handshake.
    """
    readable = [sample for sample in samples if isinstance(sample, Sample)]
    labels: Any = np.array([sample.label for sample in readable])
    positions: Any = np.array([sample.position for sample in readable], np.int64)
    return Batch(
        images=default_collate([s.image for s in readable]) if readable else torch.empty(0),
        labels=labels,
        indices=positions,
        bad=[sample for sample in samples if isinstance(sample, UnreadableImage)],
        targets=[sample.targets for sample in readable if sample.targets is not None],
    )


def _to_tensors(batch: Batch) -> Batch:
    labels, indices = torch.as_tensor(batch.labels), torch.as_tensor(batch.indices)
    return batch._replace(labels=labels, indices=indices)


def _start_worker(worker: int) -> None:
    keep_memory()  # of a decoded image, for the next one


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed also seeds every accelerator
    np.random.seed(seed & 0xFFFFFFFF)
    random.seed(seed)


@contextmanager
def _generators_restored() -> Iterator[None]:
    """Restore the generators' states afterwards; in a worker nothing else uses them."""
    if get_worker_info() is not None:
        yield
        return
    torch_state = torch.get_rng_state()
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)
