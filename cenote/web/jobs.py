"""The job queue in front of the worker processes.

The queue is bounded, and answers are cached. A photograph stays with the worker that has seen it,
which has its features in memory. A request whose client leaves is dropped before it starts. A
worker that dies is replaced, and its request is tried once more. A request that takes too long
fails.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import resource_tracker
from typing import Any, Literal

from cachetools import LRUCache
from starlette.exceptions import HTTPException

from .schemas import MAX_PHOTOS, FileNeeded, Startup, WorkerRequest, WorkerService
from .sources import Sources

CACHE_BYTES = 64 << 20  # of answers
KEY_BYTES = 16 << 10  # upper bound of the size of a request, which is the key of its answer
STARTUP_SECONDS = 300.0
RETRY_SECONDS = 10  # until a worker that did not start is started again
THREADS = "OMP_NUM_THREADS"  # read when NumPy and torch are imported

logger = logging.getLogger(__name__)


class WorkerProcess:
    """One spawned process, which shares nothing with the server but the executor's pipes.

    Requests wait for its lock, in the order of their arrival. `threads` limits those of NumPy and
    torch.
    """

    def __init__(
        self,
        sources: Sources,
        open_service: Callable[[Sources], WorkerService],
        threads: int | None = None,
    ) -> None:
        self.sources, self.open_service, self.threads = sources, open_service, threads
        self.pool: ProcessPoolExecutor | None = None
        self.process: Any = None
        # Photographs of this worker, and whether it has received the file.
        self.photos: LRUCache[str | None, bool] = LRUCache(MAX_PHOTOS)
        self.lock = asyncio.Lock()
        self.requests = 0  # that wait or run
        self.status: Literal["starting", "ready", "down"] = "starting"
        self.retry_at = 0.0  # time from which it is started again if it did not start
        self.running: asyncio.Task[Any] | None = None

    async def start(self) -> Startup:
        """Start a new process; raise ValueError or OSError if the sources cannot be opened."""
        self.close()
        self.photos.clear()
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, initializer=_exit_with_parent)
        before = multiprocessing.active_children()
        with _block_interrupts(), _limit_threads(self.threads):
            future = self.pool.submit(_start, self.open_service, self.sources)
        (self.process,) = set(multiprocessing.active_children()).difference(before)
        startup: Startup = await self._wait(future, STARTUP_SECONDS)
        self.status = "ready"
        return startup

    async def run(self, request: WorkerRequest, content: bytes, seconds: float) -> Any:
        """Send the file of a photograph only if its features are not cached."""
        if self.photos.get(request.photo_digest):
            with suppress(FileNeeded):
                return await self._send(request, b"", seconds)
        answer = await self._send(request, content, seconds)
        if request.photo_digest is not None:
            self.photos[request.photo_digest] = True
        return answer

    async def _send(self, request: WorkerRequest, content: bytes, seconds: float) -> Any:
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

    @property
    def usable(self) -> bool:
        """Return whether it runs, or may be started."""
        return self.alive or time.monotonic() >= self.retry_at

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


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Let processes that start in this context ignore Ctrl-C, which only the server may handle.

    Windows has no such mask: there, Ctrl-C reaches the worker, too.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # The resource tracker, which would be started with the process, unblocks the signal.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _limit_threads(threads: int | None) -> Iterator[None]:
    """Limit the threads of processes that start in this context; a smaller limit is kept."""
    user = os.environ.get(THREADS, "")
    if threads is None or (user.isdigit() and int(user) <= threads):
        yield
        return
    os.environ[THREADS] = str(threads)
    try:
        yield
    finally:
        del os.environ[THREADS]
        if user:
            os.environ[THREADS] = user


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
    """Give each request to a worker."""

    def __init__(
        self, workers: Sequence[WorkerProcess], max_waiting: int = 64, deadline: float = 60.0
    ) -> None:
        self.workers, self.max_waiting, self.deadline = workers, max_waiting, deadline
        self.waiting = Counter[type[WorkerRequest]]()  # requests, by class
        self.cache: LRUCache[WorkerRequest, bytes] = LRUCache(
            CACHE_BYTES, lambda answer: KEY_BYTES + len(answer)
        )

    @property
    def status(self) -> Literal["starting", "ready", "down"]:
        """Return the best status of a worker."""
        order = ("ready", "starting", "down")
        return min((worker.status for worker in self.workers), key=order.index)

    async def start(self) -> Startup:
        """Start the workers, raise if that fails."""
        try:
            startup, *_ = await asyncio.gather(*(worker.start() for worker in self.workers))
            for worker in self.workers:
                worker.sources = replace(worker.sources, restarted=True)
        except BaseException:
            self.close()
            raise
        return startup

    def close(self) -> None:
        """Kill the workers and fail all requests."""
        for worker in self.workers:
            worker.status, worker.retry_at = "down", math.inf
            if worker.running is not None:
                worker.running.cancel()
            worker.close()

    def choose_worker(self, photo: str | None) -> WorkerProcess:
        """Return the worker that has seen the photograph, else the one with the fewest requests."""
        usable = [worker for worker in self.workers if worker.usable] or self.workers
        worker = min(usable, key=lambda worker: (photo not in worker.photos, worker.requests))
        if photo is not None:
            worker.photos.setdefault(photo, False)
        return worker

    async def submit(self, request: WorkerRequest, content: bytes = b"") -> Any:
        """Return the answer; raise HTTPException, with status 503 where too many requests wait."""
        if request in self.cache:
            return self.cache[request]
        return await self._submit_to(self.choose_worker(request.photo_digest), request, content)

    async def ask_all(self, request: WorkerRequest) -> Any:
        """Return the last worker's answer to a request that every worker answers."""
        answers = [await self._submit_to(worker, request, b"") for worker in self.workers]
        self.cache.clear()
        return answers[-1]

    async def _submit_to(
        self, worker: WorkerProcess, request: WorkerRequest, content: bytes
    ) -> Any:
        kind = type(request)
        limit = max(1, int(kind.queue_share * self.max_waiting))
        if self.waiting[kind] >= limit:
            raise busy(f"{limit} requests are waiting already: try again in a moment")
        self.waiting[kind] += 1
        worker.requests += 1
        try:
            await worker.lock.acquire()
        except asyncio.CancelledError:
            worker.requests -= 1
            raise
        finally:
            self.waiting[kind] -= 1
        # A task of its own, because the worker finishes a request whose client has left.
        worker.running = task = asyncio.create_task(self._run(worker, request, content))
        task.add_done_callback(partial(self._finish, worker))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise busy("the server is shutting down") from None
            raise

    def _finish(self, worker: WorkerProcess, task: asyncio.Task[Any]) -> None:
        worker.requests -= 1
        worker.lock.release()
        if not task.cancelled():
            task.exception()  # retrieved: asyncio would log it if all clients were gone

    async def _run(self, worker: WorkerProcess, request: WorkerRequest, content: bytes) -> Any:
        """Try at most twice. Not with status 503: the page would send the request again."""
        if request in self.cache:  # of an equal request that was first
            return self.cache[request]
        for _ in range(2):
            await self._ensure_alive(worker)
            try:
                answer = await worker.run(request, content, self.deadline)
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

    async def _ensure_alive(self, worker: WorkerProcess) -> None:
        """Start the worker if it is dead; raise HTTPException if it does not start."""
        if worker.alive:
            return
        if worker.usable:
            worker.status = "starting"
            try:
                await worker.start()
                self.cache.clear()  # the files of the models may have changed
                return
            except Exception as error:
                logger.warning("The worker process does not start: %s", error)
                worker.close()
                worker.status, worker.retry_at = "down", time.monotonic() + RETRY_SECONDS
        message = "the worker process does not start at the moment: try again later"
        raise busy(message, RETRY_SECONDS)


def busy(message: str, seconds: int = 1) -> HTTPException:
    return HTTPException(503, message, {"retry-after": str(seconds)})
