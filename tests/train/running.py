"""Stop a training in the middle of an epoch."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cenote.train.log import Stopped
from cenote.train.state import TrainState


@contextmanager
def stopped_after(steps: int) -> Iterator[pytest.ExceptionInfo[Stopped]]:
    """Interrupt the training inside after `steps` steps, as Ctrl-C does; fail if it ends before."""
    step, done = TrainState.step, 0

    def interrupt(self: TrainState, *arguments: Any) -> bool:
        nonlocal done
        done += 1
        if done == steps:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped) as stop:
        patch.setattr(TrainState, "step", interrupt)
        yield stop
