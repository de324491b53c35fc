"""Checkpoints: everything that a resumed run needs to end with the same weights."""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from ..data import Dataset
from ..data.digests import FileState, file_states
from ..data.files import IMAGES, lock_folder, write_atomically, write_text
from ..predict.distributed import gathered, processes, rank, world
from .config import RESUMABLE_CHANGES, Options

NAME = "checkpoint.pt"
logger = logging.getLogger(__name__)


def save_checkpoint(folder: Path, state: Options) -> None:
    """Replace the checkpoint of the folder once the new one is complete; only rank 0 writes."""
    random_states = gathered(random_state())
    if rank() > 0:
        return
    with write_atomically(folder / NAME) as temporary, open(temporary, "wb") as file:
        try:
            torch.save({**state, "random": random_states}, file)
        except RuntimeError as error:  # torch's error for a full disk
            raise OSError(str(error).splitlines()[0]) from error
        file.flush()
        os.fsync(file.fileno())


def can_resume(folder: Path, resume: bool) -> bool:
    """Return whether to resume; raise if a new run would replace one, or there is none to resume.

    A run that was killed before its first checkpoint starts again.
    """
    exists = (folder / NAME).is_file()
    if exists and not resume:
        raise ValueError(f"{folder} already has a run: use --resume or another folder")
    if resume and not exists:
        check_run_exists(folder)
        logger.info("%s has no checkpoint yet: starting from the beginning", folder)
    return exists


def check_run_exists(folder: Path) -> None:
    """Raise ValueError before a missing folder is created, which would look like a killed run."""
    if not folder.is_dir():
        raise ValueError(f"{folder} does not exist: nothing can be resumed")


@contextmanager
def run_processes(folder: Path, resume: bool, *datasets: Dataset | None) -> Iterator[torch.device]:
    """Join the processes of torchrun; the first one holds the lock of the run's folder.

    A resumed run must have the images that it began with.
    """
    with processes() as device:
        if rank() > 0:
            yield device
            return
        with lock_folder(folder):
            _check_images(folder, [data for data in datasets if data is not None], resume)
            yield device


def _check_images(folder: Path, datasets: list[Dataset], resume: bool) -> None:
    """Store the state of the images; of a resumed run, compare it with what was stored."""
    path = folder / IMAGES
    before: dict[str, FileState] = {}
    if resume and path.is_file():
        before = {name: FileState(*state) for name, state in json.loads(path.read_bytes()).items()}
    now = file_states(datasets, before)
    for name in sorted({*before, *now} if before else ()):
        problem = "replaced"
        if name not in now:
            problem = "removed"
        elif name not in before:
            problem = "added"
        elif before[name].digest == now[name].digest:
            continue
        raise ValueError(
            f"{name} was {problem} since the run in {folder} began: a resumed run needs the images "
            "it began with; use another -o to train with the new ones"
        )
    if not before:
        write_text(path, json.dumps(now))


def load_checkpoint(folder: Path) -> Options:
    """Return the saved state and restore the random generators, without executing any pickle."""
    path = folder / NAME
    try:
        state: Options = torch.load(path, map_location="cpu", weights_only=True)
        random_states = state.pop("random")
    except Exception as error:  # damaged files raise anything
        message = str(error).splitlines()[0][:200]
        raise ValueError(f"{path} is not a readable checkpoint: {message}") from error
    if len(random_states) != world():
        raise ValueError(
            f"{path} was saved by {len(random_states)} processes and cannot be resumed by {world()}"
        )
    restore_random(random_states[rank()])
    return state


def random_state() -> Options:
    """Return the state of all random generators in types that `weights_only` can load."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, next_gauss = random.getstate()
    numpy_keys = torch.from_numpy(np.asarray(keys).astype(np.int64))
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [name, numpy_keys, int(position), int(has_gauss), float(gauss)],
        "python": [version, list(internal), next_gauss],
    }


def restore_random(state: Options) -> None:
    """Restore what `random_state` returned."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *position = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *position))
    version, internal, next_gauss = state["python"]
    random.setstate((version, tuple(internal), next_gauss))


def refuse_changes(before: dict[str, object], now: dict[str, object]) -> None:
    """Raise if a resumed run would continue with other settings than it began with."""
    changes = [
        change
        for name, value in now.items()
        if name not in RESUMABLE_CHANGES and name in before and before[name] != value
        for change in _differences(name, before[name], value)
    ]
    if changes:
        raise ValueError(f"a resumed run must keep its settings: {'; '.join(changes)}")


def _differences(name: str, before: object, now: object) -> list[str]:
    """Describe what differs, inside sections as well."""
    if not (isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys()):
        return [f"{name} was {before!r} and is now {now!r}"]
    return [
        change
        for key in now
        if before[key] != now[key]
        for change in _differences(f"{name}.{key}", before[key], now[key])
    ]
