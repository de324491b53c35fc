"""The job queue in front of the one worker process.

The queue is bounded, and answers are cached. A request whose client leaves is dropped before it
starts. A worker that dies is replaced, and its request is tried once more. A request that takes too
long fails.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import Any, Literal

from cachetools import LRUCache
from starlette.exceptions import HTTPException

from .schemas import Startup, WorkerRequest, WorkerService
from .sources import Sources

CACHE_BYTES = 64 << 20  # of answers
KEY_BYTES = 16 << 10  # upper bound of the size of a request, which is the key of its answer
STARTUP_SECONDS = 300.0
RETRY_SECONDS = 10  # until a worker that did not start is started again

logger = logging.getLogger(__name__)


class WorkerProcess:
    """One spawned process, which shares nothing with the server but the executor's pipes."""

    def __init__(self, sources: Sources, open_service: Callable[[Sources], WorkerService]) -> None:
        self.sources, self.open_service = sources, open_service
        self.pool: ProcessPoolExecutor | None = None
        self.process: Any = None

    async def start(self) -> Startup:
        """Start a new process; raise ValueError or OSError if the sources cannot be opened."""
        self.close()
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, initializer=_exit_with_parent)
        # Ctrl-C in a terminal reaches all its processes, but only the server may handle it. The
        # resource tracker, which would be started with the process, unblocks the signal.
        resource_tracker.ensure_running()
        before = multiprocessing.active_children()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            future = self.pool.submit(_start, self.open_service, self.sources)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        (self.process,) = set(multiprocessing.active_children()).difference(before)
        startup: Startup = await self._wait(future, STARTUP_SECONDS)
        return startup

    async def run(self, request: WorkerRequest, content: bytes, seconds: float) -> Any:
        assert self.pool is not None
        try:
            future = self.pool.submit(_answer, request, content)
        except BrokenProcessPool:  # `alive` may be wrong for a moment after the process died
            self.close()
            raise
        return await self._wait(future, seconds)

    async def _wait(self, future: Future[Any], seconds: float) -> Any:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except (TimeoutError, BrokenProcessPool, asyncio.CancelledError):
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def close(self) -> None:
        """Kill the process at once; the executor fails the request that it still had."""
        if self.process is not None:
            self.process.kill()
            self.process.join(5)
            self.process = None
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None


_service: WorkerService  # in the worker process


def _exit_with_parent() -> None:
    """End the worker with the server, even if that was killed and the worker is busy."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _start(open_service: Callable[[Sources], WorkerService], sources: Sources) -> Startup:
    global _service
    try:
        _service = open_service(sources)
        return _service.startup()
    except (ValueError, ImportError) as error:  # plain, because it has to be pickled
        raise ValueError(str(error)) from None


def _answer(request: WorkerRequest, content: bytes) -> Any:
    return _service.answer(request, content)


class JobQueue:
    """Requests wait for the lock of the worker, in the order of their arrival."""

    def __init__(
        self, worker: WorkerProcess, max_waiting: int = 64, deadline: float = 60.0
    ) -> None:
        self.worker, self.max_waiting, self.deadline = worker, max_waiting, deadline
        self.lock = asyncio.Lock()
        self.waiting = Counter[type[WorkerRequest]]()  # requests, by class
        self.cache: LRUCache[WorkerRequest, bytes] = LRUCache(
            CACHE_BYTES, lambda answer: KEY_BYTES + len(answer)
        )
        self.status: Literal["starting", "ready", "down"] = "starting"
        self.retry_at = 0.0  # time from which a worker that did not start is started again
        self.running: asyncio.Task[Any] | None = None

    async def start(self) -> Startup:
        """Start the worker, raise if that fails."""
        startup = await self.worker.start()
        self.status = "ready"
        return startup

    def close(self) -> None:
        """Kill the worker and fail all requests."""
        self.status, self.retry_at = "down", math.inf
        if self.running is not None:
            self.running.cancel()
        self.worker.close()

    async def submit(self, request: WorkerRequest, content: bytes = b"") -> Any:
        """Return the answer; raise HTTPException, with status 503 where too many requests wait."""
        if request in self.cache:
            return self.cache[request]
        kind = type(request)
        limit = max(1, int(kind.queue_share * self.max_waiting))
        if self.waiting[kind] >= limit:
            raise busy(f"{limit} requests are waiting already: try again in a moment")
        self.waiting[kind] += 1
        try:
            await self.lock.acquire()
        finally:
            self.waiting[kind] -= 1
        # A task of its own, because the worker finishes a request whose client has left.
        self.running = task = asyncio.create_task(self._run(request, content))
        task.add_done_callback(self._finish)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise busy("the server is shutting down") from None
            raise

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self.lock.release()
        if not task.cancelled():
            task.exception()  # retrieved: asyncio would log it if all clients were gone

    async def _run(self, request: WorkerRequest, content: bytes) -> Any:
        """Try at most twice. Not with status 503: the page would send the request again."""
        if request in self.cache:  # of an equal request that was first
            return self.cache[request]
        for _ in range(2):
            await self._ensure_worker()
            try:
                answer = await self.worker.run(request, content, self.deadline)
                if isinstance(answer, bytes):
                    with suppress(ValueError):  # larger than the cache
                        self.cache[request] = answer
                return answer
            except TimeoutError:
                message = f"this took longer than {self.deadline:g} seconds: request less"
                raise HTTPException(504, message) from None
            except BrokenProcessPool:
                continue
        message = "the worker process ended twice during this request, which is not tried again"
        raise HTTPException(500, message)

    async def _ensure_worker(self) -> None:
        """Start the worker if it is dead; raise HTTPException if it does not start."""
        if self.worker.alive:
            return
        if time.monotonic() >= self.retry_at:
            self.status = "starting"
            try:
                await self.worker.start()
                self.cache.clear()  # the files of the models may have changed
                self.status = "ready"
                return
            except Exception as error:
                logger.warning("The worker process does not start: %s", error)
                self.worker.close()
                self.status, self.retry_at = "down", time.monotonic() + RETRY_SECONDS
        message = "the worker process does not start at the moment: try again later"
        raise busy(message, RETRY_SECONDS)


def busy(message: str, seconds: int = 1) -> HTTPException:
    return HTTPException(503, message, {"retry-after": str(seconds)})
