"""The trials of a search in one folder, shared by any number of processes; a kill loses none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from filelock import FileLock, Timeout

from ..data.samplers import mix_seed
from ..extras import require
from .config import RESUMABLE_CHANGES, OptimizationConfig

# The seed decides the validation split: trials with several would be compared on different images.
NOT_SEARCHED = (*RESUMABLE_CHANGES, "most_bad", "seed")


class SearchRange(NamedTuple):
    """Where a number is drawn from."""

    low: float
    high: float
    log: bool = False

    def check(self, name: str) -> SearchRange:
        if not self.low < self.high:
            raise ValueError(f"the range of {name} must grow, got {self.low:g}..{self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range of {name} starts above 0, got {self.low:g}")
        return self


def searchable() -> dict[str, type]:
    """Return the numbers that a search can draw, with their types."""
    hints = get_type_hints(OptimizationConfig)
    numbers = {name: kind for name, kind in hints.items() if kind in (int, float)}
    return {"cutout": float, **{k: v for k, v in numbers.items() if k not in NOT_SEARCHED}}


class Trials:
    """Optuna's study in FOLDER/trials.journal, and a folder for each trial.

    A process holds the lock of the trial that it trains, which the operating system releases when
    the process ends: a running trial that is not locked was interrupted, and is continued.
    """

    def __init__(self, folder: Path, space: dict[str, SearchRange], seed: int) -> None:
        self.optuna = optuna = require("optuna", extra="sweep")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.space, self.seed = folder, space, seed
        self.states = optuna.trial.TrialState
        # Optuna's own locks are files that a killed process leaves behind.
        backend = optuna.storages.journal.JournalFileBackend(
            str(folder / "trials.journal"), lock_obj=_JournalLock(folder / ".journal.lock")
        )
        with self.locked():
            self.study = optuna.create_study(
                storage=optuna.storages.JournalStorage(backend),
                sampler=optuna.samplers.RandomSampler(),
                study_name="search",
                direction="maximize",
                load_if_exists=True,
            )

    def locked(self) -> FileLock:
        """Return the lock under which trials are taken and finished."""
        return FileLock(self.folder / ".lock")

    def folder_of(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:04d}"

    @contextmanager
    def take(self, maximum: int) -> Iterator[tuple[int, dict[str, Any]] | None]:
        """Give the number and values of an interrupted or a new trial; None if `maximum` exist."""
        with self.locked():
            trial, lock = self._take(maximum)
        if trial is None:
            yield None
            return
        try:
            yield trial.number, self._draw(trial)
        finally:
            lock.release()

    def _take(self, maximum: int) -> tuple[Any, Any]:
        trials = self.study.get_trials(deepcopy=False)
        for frozen in trials:
            if frozen.state == self.states.RUNNING and (lock := self._lock(frozen.number)):
                return self.optuna.trial.Trial(self.study, frozen._trial_id), lock
        if len(trials) >= maximum:
            return None, None
        trial = self.study.ask()
        return trial, self._lock(trial.number)

    def _lock(self, number: int) -> FileLock | None:
        folder = self.folder_of(number)
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return lock

    def _draw(self, trial: Any) -> dict[str, Any]:
        """Draw values that depend on the seed and the trial's number alone."""
        with self.locked():
            self.study.sampler = self.optuna.samplers.RandomSampler(
                seed=mix_seed(self.seed, trial.number) % 2**32
            )
            kinds, values = searchable(), dict[str, Any]()
            for name, (low, high, log) in self.space.items():
                if kinds[name] is int:
                    values[name] = trial.suggest_int(name, round(low), round(high), log=log)
                else:
                    values[name] = trial.suggest_float(name, low, high, log=log)
            return values

    def finish(self, number: int, value: float | None, **notes: Any) -> None:
        """Record the value of a trial; None: it failed."""
        with self.locked():
            (frozen,) = (t for t in self.all() if t.number == number)
            trial = self.optuna.trial.Trial(self.study, frozen._trial_id)
            for key, note in notes.items():
                trial.set_user_attr(key, note)
            if value is None:
                self.study.tell(number, state=self.states.FAIL)
            else:
                self.study.tell(number, value)

    def all(self) -> list[Any]:
        """Return Optuna's frozen trials, by number."""
        return sorted(self.study.get_trials(deepcopy=False), key=lambda trial: trial.number)

    def best(self) -> Any:
        """Return the complete trial with the highest value, or None; ties keep the first."""
        complete = [trial for trial in self.all() if trial.state == self.states.COMPLETE]
        return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)


class _JournalLock:
    """The lock of Optuna's journal, as Optuna calls it."""

    def __init__(self, path: Path) -> None:
        self.lock = FileLock(path)

    def acquire(self) -> bool:
        self.lock.acquire()
        return True

    def release(self) -> None:
        self.lock.release()
