"""The job queue in front of the one worker process.

The queue is bounded, equal requests share one job, and answers are cached. A job that nobody waits
for any more is dropped before it starts. A worker that dies is replaced, and its jobs are tried once
more, each alone, so that a request that kills workers fails alone. A job that takes too long fails.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain, repeat
from multiprocessing import resource_tracker
from typing import Any, Literal

from cachetools import LRUCache
from starlette.exceptions import HTTPException

from .photos import PhotoRequired
from .service import Service, Startup, WorkerRequest, describe_error
from .sources import Sources

MAX_BATCH_BYTES = 32 << 20  # of the photographs in one batch, except for a single photograph
CACHE_BYTES = 64 << 20  # of answers
KEY_BYTES = 16 << 10  # upper bound of the size of a request, which is the key of its answer
STARTUP_SECONDS = 300.0
RESTART_PAUSES = (0.0, 1.0, 5.0, 30.0)  # seconds before each attempt; the last one repeats
POLL_SECONDS = 1.0  # between two checks that an idle worker is alive

Batch = dict[WorkerRequest, bytes | None]  # requests of one class, with their `content`

logger = logging.getLogger(__name__)


class WorkerProcess:
    """One spawned process, which shares nothing with the server but the executor's pipes."""

    def __init__(
        self, sources: Sources, open_service: Callable[[Sources], Service] = Service
    ) -> None:
        self.sources, self.open_service = sources, open_service
        self.pool: ProcessPoolExecutor | None = None
        self.process: Any = None

    async def start(self, seconds: float = STARTUP_SECONDS) -> Startup:
        """Start a new process; raise ValueError if the sources cannot be opened."""
        self.close()
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, context, initializer=_exit_with_parent)
        # Ctrl-C in a terminal reaches all its processes, but only the server may handle it. The
        # resource tracker, which would be started with the process, unblocks the signal.
        resource_tracker.ensure_running()
        before = multiprocessing.active_children()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            future = self.pool.submit(_open_service, self.open_service, self.sources)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        (self.process,) = set(multiprocessing.active_children()).difference(before)
        startup: Startup = await self._wait(future, seconds)
        return startup

    async def run(self, batch: Batch, seconds: float) -> list[Any]:
        """Answer requests of one class; send files only where the worker does not have them."""
        replies = await self._submit(dict.fromkeys(batch), seconds)
        missing = {
            request: batch[request]
            for request, reply in replies.items()
            if isinstance(reply, PhotoRequired)
        }
        if missing:
            replies |= await self._submit(missing, seconds)
        return list(replies.values())

    async def _submit(self, batch: Batch, seconds: float) -> dict[WorkerRequest, Any]:
        if self.pool is None:
            raise BrokenProcessPool
        replies = await self._wait(self.pool.submit(_answer, batch), seconds)
        return dict(zip(batch, replies, strict=True))

    async def _wait(self, future: Future[Any], seconds: float) -> Any:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except (TimeoutError, BrokenProcessPool, asyncio.CancelledError):
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def close(self) -> None:
        """Kill the process at once; the executor fails the jobs that it still had."""
        if self.process is not None:
            self.process.kill()
            self.process.join(5)
            self.process = None
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool = None


_service: Service  # in the worker process


def _exit_with_parent() -> None:
    """End the worker with the server, even if that was killed and the worker is busy."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _open_service(open_service: Callable[[Sources], Service], sources: Sources) -> Startup:
    global _service
    try:
        _service = open_service(sources)
        return _service.startup()
    except (ValueError, OSError, ImportError) as error:  # plain, because it has to be pickled
        raise ValueError(describe_error(error)) from None


def _answer(batch: Batch) -> list[Any]:
    return _service.answer(batch)


class Job:
    def __init__(self, request: WorkerRequest, content: bytes | None) -> None:
        self.request, self.content, self.waiters, self.attempts = request, content, 0, 0
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # All waiters may be gone: retrieve the exception, else asyncio logs it.
        self.future.add_done_callback(lambda future: future.cancelled() or future.exception())


class JobQueue:
    def __init__(
        self, worker: WorkerProcess, max_waiting: int = 64, deadline: float = 60.0
    ) -> None:
        self.worker, self.max_waiting, self.deadline = worker, max_waiting, deadline
        self.waiting: OrderedDict[WorkerRequest, Job] = OrderedDict()
        self.running: dict[WorkerRequest, Job] = {}
        self.cache: LRUCache[WorkerRequest, bytes] = LRUCache(
            CACHE_BYTES, lambda answer: KEY_BYTES + len(answer)
        )
        self.status: Literal["starting", "ready", "down"] = "starting"
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> Startup:
        """Start the worker, raise if that fails, and begin to run jobs."""
        startup = await self.worker.start()
        self.status = "ready"
        self.task = asyncio.create_task(self._run())
        return startup

    async def close(self) -> None:
        """Kill the worker and fail all jobs."""
        self.status = "down"
        jobs = [*self.waiting.values(), *self.running.values()]
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task
        self.worker.close()
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(busy("the server is shutting down"))

    async def submit(self, request: WorkerRequest, content: bytes | None = None) -> Any:
        """Return the answer; raise HTTPException, with status 503 where too many requests wait."""
        if request in self.cache:
            return self.cache[request]
        job = self.running.get(request) or self.waiting.get(request)
        if job is None:
            job = self._enqueue(Job(request, content))
        job.waiters += 1
        try:
            return await asyncio.shield(job.future)
        finally:
            job.waiters -= 1
            if not job.waiters and self.waiting.get(request) is job:
                del self.waiting[request]

    def _enqueue(self, job: Job) -> Job:
        if self.status == "down":
            raise _down()
        kind = type(job.request)
        limit = max(1, int(kind.queue_share * self.max_waiting))
        if sum(type(request) is kind for request in self.waiting) >= limit:
            raise busy(f"{limit} requests are waiting already: try again in a moment")
        self.waiting[job.request] = job
        self.wake.set()
        return job

    async def _run(self) -> None:
        while True:
            if not self.worker.alive:
                await self._restart()
            elif self.waiting:
                await self._run_batch(self._next_batch())
            else:
                self.wake.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), POLL_SECONDS)

    async def _restart(self) -> None:
        self.status = "starting"
        for pause in chain(RESTART_PAUSES, repeat(RESTART_PAUSES[-1])):
            await asyncio.sleep(pause)
            try:
                await self.worker.start()
                break
            except Exception as error:
                logger.warning("The worker process does not start: %s", describe_error(error))
                self.status = "down"
                for job in self.waiting.values():
                    job.future.set_exception(_down())
                self.waiting.clear()
        self.cache.clear()  # the files of the models may have changed
        self.status = "ready"

    def _next_batch(self) -> list[Job]:
        """Return the oldest job and others of its class; a job that was tried before goes alone."""
        oldest = next(iter(self.waiting.values()))
        if oldest.attempts:
            return [oldest]
        kind, jobs, size = type(oldest.request), list[Job](), 0
        for job in self.waiting.values():
            if type(job.request) is kind and not job.attempts:
                size += len(job.content or b"")
                if jobs and (size > MAX_BATCH_BYTES or len(jobs) == kind.max_batch):
                    break
                jobs.append(job)
        return jobs

    async def _run_batch(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.running[job.request] = self.waiting.pop(job.request)
        try:
            batch = {job.request: job.content for job in jobs}
            replies = await self.worker.run(batch, self.deadline)
            for job, reply in zip(jobs, replies, strict=True):
                self._finish(job, reply)
        except (TimeoutError, BrokenProcessPool) as error:
            for job in jobs:
                self._retry(job, timed_out=isinstance(error, TimeoutError) and len(jobs) == 1)
        except Exception as error:
            logger.exception("A request could not be sent to the worker")
            for job in jobs:
                job.future.set_exception(error)
        finally:
            for job in jobs:
                del self.running[job.request]

    def _retry(self, job: Job, timed_out: bool) -> None:
        """Try once more, first in the queue. Not with status 503: the page would send it again."""
        job.attempts += 1
        if timed_out:
            message = f"this took longer than {self.deadline:g} seconds: request something smaller"
            job.future.set_exception(HTTPException(504, message))
        elif job.attempts > 1:
            message = "the worker process ended twice during this request, which is not tried again"
            job.future.set_exception(HTTPException(500, message))
        elif job.waiters:
            self.waiting[job.request] = job
            self.waiting.move_to_end(job.request, last=False)

    def _finish(self, job: Job, reply: Any) -> None:
        if isinstance(reply, Exception):
            job.future.set_exception(reply)
            return
        job.future.set_result(reply)
        if isinstance(reply, bytes):
            with suppress(ValueError):  # larger than the cache
                self.cache[job.request] = reply


def busy(message: str, seconds: int = 1) -> HTTPException:
    return HTTPException(503, message, {"retry-after": str(seconds)})


def _down() -> HTTPException:
    return busy("the worker process does not start at the moment: try again later", 10)
