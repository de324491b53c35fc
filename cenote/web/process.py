"""The worker process, started, asked and replaced: it may die at any moment."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from .questions import Question, Refusal, Unseen, without_pixels
from .runs import Served
from .worker import work


class Died(Exception):
    """The worker ended."""


class TooLong(Died):
    """It was ended, because it took too long."""


class Worker:
    """One process at a time. Spawned, not forked: it shares nothing with the server but a pipe."""

    def __init__(self, served: Served, target: Callable[[Connection, Served], None] = work) -> None:
        self.served, self.target = served, target
        self.process: Any = None
        self.connection: Any = None
        self.thread = ThreadPoolExecutor(1, "pipe")  # a pipe's calls wait, and the server must not

    async def start(self, seconds: float) -> dict[str, Any]:
        """What the worker has to tell when it is ready; a Refusal where it can never be."""
        context = multiprocessing.get_context("spawn")
        try:
            self.connection, theirs = context.Pipe()
            with theirs:  # closed here, so that the pipe ends when the worker does
                process = context.Process(
                    target=self.target,
                    args=(theirs, self.served),
                    name="cenote worker",
                    daemon=True,
                )
                # Ctrl-C in a terminal is for the server, which then ends the worker. The tracker's own start, else the
                # first thing in process.start(), lets the signal through again.
                resource_tracker.ensure_running()
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                try:
                    process.start()
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        except OSError as error:  # no memory, no process or no file to be had: there may be later
            raise Died(f"could not be started ({error.strerror or error})") from error
        self.process = process
        ready = await self._within(seconds, self.connection.recv)
        if isinstance(ready, Refusal):
            raise ready
        return dict(ready)

    async def ask(self, questions: Sequence[Question], seconds: float) -> list[Any]:
        """A file goes through the pipe only where the worker does not know its photograph: it may have 20 MB."""

        def call() -> list[Any]:
            replies = self._call([without_pixels(question) for question in questions])
            if unseen := [i for i, reply in enumerate(replies) if isinstance(reply, Unseen)]:
                for i, reply in zip(
                    unseen, self._call([questions[i] for i in unseen]), strict=True
                ):
                    replies[i] = reply
            return replies

        return list(await self._within(seconds, call))

    def _call(self, questions: list[Question]) -> list[Any]:
        self.connection.send(questions)
        return list(self.connection.recv())

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def kill(self) -> None:
        """At once; whoever waits for it is told, because the pipe ends."""
        if self.alive:
            self.process.kill()
        if self.process is not None:
            self.process.join(5)

    def close(self) -> None:
        self.kill()
        self.thread.shutdown(wait=False, cancel_futures=True)

    async def _within(self, seconds: float, call: Any) -> Any:
        waiting = asyncio.get_running_loop().run_in_executor(self.thread, call)
        waiting.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # when nobody waits any more
        try:
            return await asyncio.wait_for(asyncio.shield(waiting), seconds)
        except TimeoutError:
            self.kill()
            await asyncio.wait([waiting])
            raise TooLong(f"took longer than {seconds:g} seconds") from None
        except (EOFError, OSError) as error:
            self.kill()
            raise Died("ended unexpectedly") from error
        except asyncio.CancelledError:
            self.kill()
            raise
