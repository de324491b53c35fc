"""The trials of a search, kept in one file that any number of processes work on; a kill loses none of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..data.samplers import mix_seed
from ..extras import require
from .search_space import Range, searchable

STUDY = "search"


class Trials:
    """Optuna's study in FOLDER/trials.journal, and beside it a folder for each trial.

    A process holds the lock of the trial that it trains. The kernel lets go of it when the process dies, however it
    dies: a trial that is called running but is not locked was cut off, and is taken up again.
    """

    def __init__(self, folder: Path, space: dict[str, Range], seed: int) -> None:
        optuna = require("optuna", extra="sweep")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.space, self.seed, self.optuna = folder, space, seed, optuna
        # Optuna's own locks are files that a killed process leaves behind.
        backend = optuna.storages.journal.JournalFileBackend(
            str(folder / "trials.journal"), lock_obj=_Flock(folder / ".journal.lock")
        )
        with self.locked():
            storage = optuna.storages.JournalStorage(backend)
            sampler, options = (
                optuna.samplers.RandomSampler(),
                {"direction": "maximize", "load_if_exists": True},
            )
            self.study = optuna.create_study(
                storage=storage, sampler=sampler, study_name=STUDY, **options
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else takes or finishes a trial meanwhile."""
        with open(self.folder / ".lock", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def folder_of(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:04d}"

    @contextmanager
    def take(self, most: int) -> Iterator[tuple[int, dict[str, Any]] | None]:
        """The number and values of a trial that was cut off, or of a new one; None if `most` are done or in work."""
        with self.locked():
            taken = self._take(most)
        if taken is None:
            yield None
            return
        number, drawn, lock = taken
        try:
            yield number, drawn
        finally:
            lock.close()

    def _take(self, most: int) -> tuple[int, dict[str, Any], IO[bytes]] | None:
        running = self.optuna.trial.TrialState.RUNNING
        trials = self.study.get_trials(deepcopy=False)
        for found in trials:
            lock = self._lock(found.number) if found.state == running else None
            if lock is not None:
                trial = self.optuna.trial.Trial(self.study, found._trial_id)
                return found.number, self._draw(trial), lock
        if len(trials) >= most:
            return None
        trial = self.study.ask()
        lock = self._lock(trial.number)
        assert lock is not None, "its number is new"
        return trial.number, self._draw(trial), lock

    def _lock(self, number: int) -> IO[bytes] | None:
        folder = self.folder_of(number)
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "wb")  # noqa: SIM115  # held as long as the trial runs
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            file.close()
            return None

    def _draw(self, trial: Any) -> dict[str, Any]:
        """From the seed and the trial's number alone, so that it does not matter who draws, nor when."""
        self.study.sampler = self.optuna.samplers.RandomSampler(
            seed=mix_seed(self.seed, trial.number) % 2**32
        )
        kinds = searchable()
        drawn: dict[str, Any] = {}
        for name, (low, high, log) in self.space.items():
            if kinds[name] is int:
                drawn[name] = trial.suggest_int(name, round(low), round(high), log=log)
            else:
                drawn[name] = trial.suggest_float(name, low, high, log=log)
        return drawn

    def tell(self, number: int, value: float | None, **notes: Any) -> None:
        """None: it failed."""
        with self.locked():
            state = self.optuna.trial.TrialState
            (found,) = (t for t in self.study.get_trials(deepcopy=False) if t.number == number)
            trial = self.optuna.trial.Trial(self.study, found._trial_id)
            for key, note in notes.items():
                trial.set_user_attr(key, note)
            if value is None:
                self.study.tell(number, state=state.FAIL)
            else:
                self.study.tell(number, value)

    def all(self) -> list[Any]:
        """Optuna's frozen trials, by number."""
        return sorted(self.study.get_trials(deepcopy=False), key=lambda trial: trial.number)

    def best(self) -> Any:
        """The highest value; of equals the first. None if no trial is complete."""
        done = [
            trial for trial in self.all() if trial.state == self.optuna.trial.TrialState.COMPLETE
        ]
        return max(done, key=lambda trial: (trial.value, -trial.number), default=None)


class _Flock:
    def __init__(self, path: Path) -> None:
        self.path, self.file = path, -1

    def acquire(self) -> bool:
        self.file = os.open(self.path, os.O_CREAT | os.O_WRONLY)
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        os.close(self.file)
