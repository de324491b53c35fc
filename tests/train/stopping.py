"""A run that is stopped in the middle of an epoch, its last step kept."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cenote.train.engine import Engine, Stopped


@contextmanager
def stopped_after(steps: int) -> Iterator[None]:
    """Whatever trains inside is stopped behind so many steps, and must be."""
    step, seen = Engine._train_step, []

    def stop(self: Engine, batch: object) -> None:
        step(self, batch)
        seen.append(1)
        if len(seen) == steps:
            self.step += 1
            self._save()
            raise Stopped("here")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Engine, "_train_step", stop)
        yield
