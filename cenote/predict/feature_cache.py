"""Cache features on disk: computed once, found by the contents of the image they come from.

A store is a folder with three files. `rows.bin` holds the features, `digests.bin` the digests of
the images they belong to, in the same order, `store.json` the layout of a row. Rows are appended
under a lock, the digest after its row, so a process killed at any moment leaves at most bytes
without a digest, which the next process overwrites.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from torch import Tensor

from ..backbones import Backbone, Features, Preprocessing
from ..data import Dataset
from ..data.digests import DIGEST_BYTES, digest_of, digests
from ..data.files import sweep, temporary_path, write_text
from ..data.loading import load
from ..data.samplers import SeededBatchSampler
from ..models.layers import Layers
from .cache_folder import cache_folder, weights_digest
from .distributed import device_of, gathered, rank, world
from .inference import Inference
from .openvino_engine import WEIGHTS, XML, run_frozen

log = logging.getLogger(__name__)
LARGE = 10e9  # bytes that are worth a message before they are written
MAX_SHARE = 0.95  # of the free space of a disk
View = Literal["plain", "flip", "whole"]  # whole: resized to a square without cropping
Array = npt.NDArray[Any]
FillProgress = Callable[[int, int], object]  # receives images done and their total


class Layout(NamedTuple):
    """Layout of one row: `grid` x `dim` values, then a CLS token and registers if there are any."""

    grid: tuple[int, int]
    dim: int
    cls: bool
    dtype: str = "float16"
    registers: int = 0

    @property
    def vectors(self) -> int:
        return self.grid[0] * self.grid[1] + self.cls + self.registers

    def describe(self) -> dict[str, object]:
        """Return the fields; stores without registers have the names they had before."""
        return {k: v for k, v in self._asdict().items() if v or k != "registers"}


class FeatureStore:
    """Features of one backbone, its weights and one transform, for any number of images."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.layout = folder, layout
        self._rows_file, self._digests_file = folder / "rows.bin", folder / "digests.bin"
        self._row_of: dict[bytes, int] = {}
        self._count = 0  # rows that have a digest
        self._inode = -1  # of the digests file: it changes when another process prunes the store
        self.refresh()

    def __len__(self) -> int:
        return self._count

    @property
    def row_bytes(self) -> int:
        return self.layout.vectors * self.layout.dim * np.dtype(self.layout.dtype).itemsize

    def find(self, names: Sequence[bytes | None]) -> npt.NDArray[np.int64]:
        """Return the row of each digest, -1 if it is not in the store."""
        return np.array([self._row_of.get(name or b"", -1) for name in names], np.int64)

    def refresh(self) -> None:
        """Read the digests that other processes have added."""
        try:
            state = self._digests_file.stat()
            rows = _size(self._rows_file) // self.row_bytes  # fewer in a damaged store
            inode, count = state.st_ino, min(state.st_size // DIGEST_BYTES, rows)
        except FileNotFoundError:
            inode, count = -1, 0
        if inode != self._inode or count < self._count:
            self._row_of, self._count, self._inode = {}, 0, inode
        if count == self._count:
            return
        with open(self._digests_file, "rb") as file:
            file.seek(self._count * DIGEST_BYTES)
            added = file.read((count - self._count) * DIGEST_BYTES)
        for start in range(0, len(added) - DIGEST_BYTES + 1, DIGEST_BYTES):
            self._row_of[added[start : start + DIGEST_BYTES]] = self._count
            self._count += 1

    def append(self, names: Sequence[bytes], values: Array) -> None:
        """Append rows (n, vectors, dim) of n images, except those that are in the store already."""
        with np.errstate(over="ignore"):  # checked below
            packed = values.astype(self.layout.dtype)
        if not np.isfinite(packed).all():
            raise ValueError(f"the features are not finite as {self.layout.dtype}")
        self.folder.mkdir(parents=True, exist_ok=True)  # another process may have pruned it
        with FileLock(self.folder / "lock"):
            self.refresh()
            # A dict: the same image twice in a batch is one row.
            new = {name: i for i, name in enumerate(names) if name not in self._row_of}
            rows = packed[list(new.values())].tobytes()
            if _size(self._digests_file) > self._count * DIGEST_BYTES:  # of rows that are lost
                _write_at(self._digests_file, self._count * DIGEST_BYTES, b"", sync=True)
            _write_at(self._rows_file, self._count * self.row_bytes, rows, sync=True)
            _write_at(self._digests_file, self._count * DIGEST_BYTES, b"".join(new))
            self.refresh()

    def values(self) -> Array:
        """Return all rows (rows, vectors, dim), memory-mapped and read-only."""
        shape = (len(self), self.layout.vectors, self.layout.dim)
        if not len(self):
            return np.zeros(shape, self.layout.dtype)
        return np.memmap(self._rows_file, self.layout.dtype, "r", shape=shape)


class FeatureCache:
    """Stores side by side in one folder, each named by the digest of its settings."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()

    def open(self, made_by: Mapping[str, object], layout: Layout) -> FeatureStore:
        """Open the store of these settings (backbone, weights, transform); create it if needed."""
        description = {"made_by": made_by, "layout": layout.describe()}
        name = digest_of(json.dumps(description, sort_keys=True).encode()).hex()
        folder = self.folder / name
        if not (folder / "store.json").exists():
            text = json.dumps(description, indent=2, sort_keys=True)
            write_text(folder / "store.json", text)
        os.utime(folder / "store.json")  # the time of last use
        return FeatureStore(folder, layout)

    def fill(
        self,
        store: FeatureStore,
        dataset: Dataset,
        transform: Callable[..., Any],
        forward: Callable[[Tensor], Tensor],
        batch: int,
        workers: int,
        progress: FillProgress | None = None,
    ) -> tuple[npt.NDArray[np.int64], list[str]]:
        """Compute the rows that are missing with `forward`: images -> (B, vectors, dim).

        Under torchrun each process computes its share. Returns the row of each image, -1 if it is
        unreadable, and the error messages, both on every process.
        """
        names = self._digests(dataset)
        bad = {i: f"{dataset.path(i)}: no such file" for i, name in enumerate(names) if not name}
        # Before any process can have written features of these images.
        check_space(store, int((store.find([name for name in names if name]) < 0).sum()))
        while True:
            store.refresh()
            rows = store.find(names)
            missing = [i for i in np.flatnonzero(rows < 0).tolist() if i not in bad]
            of_process = gathered(missing)
            if not any(of_process):
                return rows, [bad[i] for i in sorted(bad)]
            # Processes on machines with a cache of their own miss other images after one round.
            sharing = [k for k, other in enumerate(of_process) if other == missing]
            share = missing[sharing.index(rank()) :: len(sharing)]
            if world() > 1:
                counts = rank(), world(), len(share), len(missing)
                log.info("process %d of %d extracts %d of %d images", *counts)
            done = 0
            if progress:
                progress(0, len(share))  # the time of the first batch counts
            for loaded in load(dataset.select(share), transform, batch, workers):
                bad |= {share[i]: message for i, message in loaded.bad}
                if len(loaded.indices):
                    appended = [names[share[i]] or b"" for i in loaded.indices.tolist()]
                    store.append(appended, forward(loaded.images).float().cpu().numpy())
                done += len(loaded.indices) + len(loaded.bad)
                if progress:
                    progress(done, len(share))
            for other in gathered(bad):
                bad |= other

    def _digests(self, dataset: Dataset) -> list[bytes | None]:
        """Return the digest of each image; every process reads its share of the files."""
        share = dataset.select(range(rank(), len(dataset), world()))
        shares = gathered(digests(share, self.folder / "files.sqlite"))
        return [shares[i % world()][i // world()] for i in range(len(dataset))]

    def stores(self) -> list[dict[str, Any]]:
        """List settings, rows, bytes and time of last use of each store, the latest first."""
        stores = []
        for path in self.folder.glob("[!.]*/store.json"):  # not what a killed `prune` left
            try:
                description = dict(json.loads(path.read_text()))
            except ValueError:
                description = {"made_by": {}, "layout": {}}
            sizes = {
                "rows": _size(path.with_name("digests.bin")) // DIGEST_BYTES,
                "bytes": sum(_size(path.with_name(name)) for name in ("rows.bin", XML, WEIGHTS)),
                "used": path.stat().st_mtime,
            }
            stores.append({"name": path.parent.name, **sizes, **description})
        return sorted(stores, key=lambda store: -store["used"])

    def prune(self, names: Sequence[str] = (), unused_days: float | None = None) -> list[str]:
        """Remove stores by the beginning of their name, or those not used for `unused_days`."""
        removed = []
        if self.folder.is_dir():
            sweep(self.folder)
        for store in self.stores():
            old = unused_days is not None and time.time() - store["used"] > unused_days * 86400
            if old or any(store["name"].startswith(name) for name in names):
                moved = temporary_path(self.folder)
                os.replace(self.folder / store["name"], moved)  # atomic for concurrent writers
                shutil.rmtree(moved)
                removed.append(store["name"])
        return removed


class CachedFeatures:
    """Features of the readable images of a data set; `bad` has the messages about the others."""

    def __init__(
        self, dataset: Dataset, store: FeatureStore, rows: npt.NDArray[np.int64], bad: list[str]
    ) -> None:
        self.store, self.bad = store, bad
        self.positions = np.flatnonzero(rows >= 0)  # in the data set
        self.dataset = dataset.select(self.positions)
        self.rows = rows[self.positions]
        self.labels = torch.from_numpy(self.dataset.targets)
        self.values = store.values()

    def __len__(self) -> int:
        return len(self.rows)

    def features(self, indices: Sequence[int] | npt.NDArray[np.int64] | Tensor) -> Features:
        """Return the features of these images as float32."""
        rows = self.rows[np.asarray(indices)]
        values = torch.from_numpy(self.values[rows]).float()  # (B, N + 1 + R, D)
        # A sum keeps NaN and infinity, which `append` refuses; it takes a tenth of the time of all().
        if not values.sum().isfinite():
            folder = self.store.folder
            remedy = f"cenote cache {folder.parent} --prune {folder.name[:12]}"
            raise ValueError(
                f"the cached features in {folder} are damaged: `{remedy}` removes them"
            )
        layout = self.store.layout
        n = layout.grid[0] * layout.grid[1]
        features = Features(values[:, :n], layout.grid)
        if layout.cls:
            features = features._replace(cls=values[:, n])
        if layout.registers:
            features = features._replace(registers=values[:, n + layout.cls :])
        return features


class FeatureBatch(NamedTuple):
    features: Features
    labels: Tensor
    indices: list[int]


class FeatureBatches:
    """Loader of cached features that reads the next batch while the current one is used."""

    def __init__(
        self,
        cached: CachedFeatures,
        batch: int,
        shuffle: bool = False,
        seed: int = 0,
        order: SeededBatchSampler | None = None,
    ) -> None:
        self.cached = cached
        if order is None:
            share = max(min(batch, len(cached)) // world(), 1)
            drop_last = shuffle and world() > 1
            order = SeededBatchSampler(
                len(cached), share, shuffle, seed, drop_last, rank(), world()
            )
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def seek(self, epoch: int, batch: int = 0) -> None:
        """Start the next pass at this batch of this epoch."""
        self.order.epoch, self.order.start = epoch, batch

    def __iter__(self) -> Iterator[FeatureBatch]:
        batches = iter(self.order)
        self.order.start = 0
        with ThreadPoolExecutor(1) as thread:
            pending = None
            for positions in batches:
                upcoming = thread.submit(self._read, [index for _, index in positions])
                if pending is not None:
                    yield pending.result()
                pending = upcoming
            if pending is not None:
                yield pending.result()

    def _read(self, indices: list[int]) -> FeatureBatch:
        return FeatureBatch(self.cached.features(indices), self.cached.labels[indices], indices)


@torch.inference_mode()
def cached_features(
    backbone: Backbone,
    dataset: Dataset,
    preprocessing: Preprocessing | None = None,
    cache: FeatureCache | None = None,
    view: View = "plain",
    dtype: str = "float16",
    batch: int = 32,
    workers: int = 0,
    progress: FillProgress | None = None,
) -> CachedFeatures:
    """Return the features of a data set; only images that are not in the cache are computed."""
    preprocessing = preprocessing or backbone.preprocessing
    cache = cache or FeatureCache()
    backbone, device = backbone.eval(), device_of(backbone)
    size = preprocessing.size
    tokens, grid, cls, _ = backbone(torch.zeros(1, 3, size, size, device=device))
    layout = Layout(grid, tokens.shape[2], cls is not None, dtype, backbone.registers)
    store = cache.open(describe_features(backbone, preprocessing, view), layout)

    def forward(images: Tensor) -> Tensor:
        features: Features = run_frozen(backbone, images.flip(-1) if view == "flip" else images)
        vectors = features.tensors().values()  # cls (B, D), the others (B, n, D)
        return torch.cat([x[:, None] if x.ndim == 2 else x for x in vectors], 1)

    transform = preprocessing.whole() if view == "whole" else preprocessing.transform()
    run = Inference(forward, device, half=dtype == "float16")
    rows, bad = cache.fill(store, dataset, transform, run, batch, workers, progress)
    return CachedFeatures(dataset, store, rows, bad)


def check_space(store: FeatureStore, images: int) -> None:
    """Raise OSError if the features of further images do not fit on the disk; log large ones."""
    needed, free = images * store.row_bytes, shutil.disk_usage(store.folder).free
    sizes = (
        f"the features of {images} images take {needed / 1e9:.1f} GB in {store.folder.parent}, "
        f"where {free / 1e9:.1f} GB are free"
    )
    remedies = (
        "a backbone with a smaller feature map, another disk (CENOTE_CACHE), or train without "
        "--freeze, which stores no features; cenote cache lists what can be deleted"
    )
    if needed > MAX_SHARE * free:
        fitting = int(MAX_SHARE * free / store.row_bytes)
        fitting -= fitting % 10 ** max(0, len(str(fitting)) - 2)  # the space changes meanwhile
        raise OSError(f"{sizes}: use a sample that fits, sample/{fitting}:DATA, {remedies}")
    if needed > LARGE:
        log.warning("%s; if that is too much, use fewer images, %s", sizes, remedies)


def describe_features(
    backbone: Backbone, preprocessing: Preprocessing, view: str = "plain"
) -> dict[str, object]:
    """Return everything that changes the features."""
    description: dict[str, object] = {
        "backbone": backbone.name,
        "weights": weights_digest(backbone),
        # Two networks may have the same weights.
        "structure": digest_of(repr(backbone.model).encode()).hex(),
        "preprocessing": preprocessing.identity(),
        "view": view,
    }
    if backbone.register_neurons:
        description["register_neurons"] = backbone.register_neurons
    if isinstance(backbone, Layers):
        description |= {"layers": backbone.layers, "summary": backbone.summary}
    return description


def _write_at(path: Path, start: int, content: bytes, sync: bool = False) -> None:
    """Write at `start` and cut off the rest: the remains of a process that was killed."""
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.seek(start)
        file.truncate()
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
