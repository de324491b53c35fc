"""All that a run needs to go on as if it had never stopped."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.files import write_atomically
from ..predict.distributed import gathered, rank, world

NAME = "checkpoint.pt"


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Written by the first process beside the last one, and put in its place when it is whole."""
    everyones = gathered(random_state())
    if rank() > 0:
        return
    with write_atomically(folder / NAME) as temporary, open(temporary, "wb") as file:
        try:
            torch.save({**state, "random": everyones}, file)
        except RuntimeError as error:  # what torch makes of a disk that is full
            raise OSError(str(error).splitlines()[0]) from error
        file.flush()
        os.fsync(file.fileno())


def begun(folder: Path, say: Callable[[str], None]) -> bool:
    """Whether there is a run to go on with; one that was killed before its first checkpoint begins again."""
    refuse_missing(folder)
    there = (folder / NAME).is_file()
    if not there:
        say(f"{folder} has no checkpoint yet: the run begins again")
    return there


def refuse_missing(folder: Path) -> None:
    """Before anything is written: an empty folder would look like a run that was killed early."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not there: there is no run to resume")


def load_checkpoint(folder: Path) -> dict[str, Any]:
    """The state, with the random generators put back. Nothing in the file is executed."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(f"{folder} has no {NAME}: there is no run to resume")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        everyones = state.pop("random")
    except Exception as error:  # whatever a damaged or foreign file makes the reader raise
        raise ValueError(
            f"{path} is not a readable checkpoint: {str(error).splitlines()[0][:200]}"
        ) from error
    if len(everyones) != world():
        raise ValueError(f"{path} is of a run of {len(everyones)} processes, these are {world()}")
    restore_random(everyones[rank()])
    return state


def random_state() -> dict[str, Any]:
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, spare = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [
            name,
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(gauss),
        ],
        "python": [version, list(internal), spare],
    }


def restore_random(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, internal, spare = state["python"]
    random.setstate((version, tuple(internal), spare))
