"""Where questions wait: a bounded queue before the one worker, and answers that are remembered.

What has not begun is dropped when nobody waits for it any more. A worker that dies is replaced and what it was doing
is tried once more, alone: a question that kills workers takes no other one with it. One that took too long is not.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from .process import Died, TooLong, Worker
from .questions import About, Look, Picture, Question, Refusal, without_pixels
from .remembered import Remembered

TOGETHER = {Look: 8, Picture: 8}  # questions of a kind that the worker is given at once
HEAVY = 32 << 20  # bytes of photographs that go to it at once, but for a single one
PICTURES = 16  # times as many pictures may wait as other questions: a page asks for dozens
UPLOADS = 8  # files that may wait to be decoded, because they are large
KEPT = 64 << 20  # bytes of answers that are remembered
STARTING = 300.0  # seconds
PAUSES = (0.0, 1.0, 5.0, 30.0)  # before a worker that does not start is started again


class Busy(Exception):
    """Come again: 503 with Retry-After."""

    def __init__(self, sentence: str, seconds: int = 1) -> None:
        super().__init__(sentence)
        self.sentence, self.seconds = sentence, seconds


class Job:
    def __init__(self, question: Question) -> None:
        self.question, self.askers, self.tries = question, 0, 0
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.future.add_done_callback(
            lambda future: future.cancelled() or future.exception()
        )  # nobody may be left


class Desk:
    def __init__(self, worker: Worker, queue: int = 64, deadline: float = 60.0) -> None:
        self.worker, self.queue, self.deadline = worker, queue, deadline
        self.waiting: OrderedDict[Question, Job] = OrderedDict()
        self.running: dict[Question, Job] = {}
        self.kept: Remembered[Question, bytes] = Remembered(KEPT)
        self.models: Any = None  # that the remembered answers are of
        self.status = "starting"
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> dict[str, Any]:
        """The first worker; why it cannot be one is a Refusal."""
        ready = await self.worker.start(STARTING)
        self.models = ready["models"]
        self.status = "ready"
        return ready

    def open(self) -> None:
        self.task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the worker, and tell everybody who waits."""
        self.status = "down"
        left = [*self.waiting.values(), *self.running.values()]
        if self.task is not None:
            self.task.cancel()
            with suppress(asyncio.CancelledError):
                await self.task
        self.worker.close()
        for job in left:
            if not job.future.done():
                job.future.set_exception(Busy("the server is closing"))

    async def ask(self, question: Question) -> Any:
        """The answer; a Refusal, or Busy where too many wait."""
        if (known := self.kept.get(question)) is not None:
            return known
        job = self.running.get(question) or self.waiting.get(question)
        if job is None:
            job = self._put(question)
        job.askers += 1
        try:
            return await asyncio.shield(job.future)
        finally:
            job.askers -= 1
            if not job.askers and self.waiting.get(question) is job:
                del self.waiting[question]

    def _put(self, question: Question) -> Job:
        if self.status == "down":
            raise Busy("the worker does not start at the moment: try again in a while", 10)
        room = {"pictures": PICTURES * self.queue, "uploads": min(UPLOADS, self.queue)}.get(
            question.lane, self.queue
        )
        if sum(other.lane == question.lane for other in self.waiting) >= room:
            raise Busy(f"{room} questions are waiting already: try again in a moment")
        job = self.waiting[question] = Job(question)
        self.wake.set()
        return job

    def _next(self) -> list[Job]:
        """The oldest question, and others of its kind; one that was tried before goes alone."""
        first = next(iter(self.waiting.values()))
        most = TOGETHER.get(type(first.question), 1) if not first.tries else 1
        alike = [
            j
            for j in self.waiting.values()
            if type(j.question) is type(first.question) and not j.tries
        ]
        jobs, taken = list[Job](), 0
        for job in [first, *(job for job in alike if job is not first)][:most]:
            taken += len(getattr(job.question, "content", None) or b"")
            if jobs and taken > HEAVY:
                break
            jobs.append(job)
            self.running[job.question] = self.waiting.pop(job.question)
        return jobs

    async def _run(self) -> None:
        while True:
            if self.status == "ready" and not self.worker.alive:
                self.status = "starting"
            if self.status != "ready":
                await self._restart()
                continue
            if not self.waiting:
                self.wake.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        self.wake.wait(), 1
                    )  # then look whether the worker still lives
                continue
            jobs = self._next()
            try:
                replies = await self.worker.ask([job.question for job in jobs], self.deadline)
                for job, reply in zip(jobs, replies, strict=True):
                    self._done(job, reply)
            except Died as death:
                self.status = "starting"
                for job in jobs:
                    self._again(job, death, alone=len(jobs) == 1)
            except Exception:
                traceback.print_exc(file=sys.stderr)
                self.worker.kill()  # what is in the pipe is nobody's answer any more
                self.status = "starting"
                for job in jobs:
                    if not job.future.done():
                        job.future.set_exception(
                            Refusal(500, "this could not be asked: the server's terminal says more")
                        )
            finally:
                for job in jobs:
                    self.running.pop(job.question, None)

    async def _restart(self) -> None:
        for pause in PAUSES:
            await asyncio.sleep(pause)
            try:
                ready = await self.worker.start(STARTING)
                self.kept.clear()  # its models may be others
                self.models, self.status = ready["models"], "ready"
                return
            except Exception as error:
                if not isinstance(error, Died | Refusal):
                    traceback.print_exc(file=sys.stderr)
                self.status = "down"
                for job in self.waiting.values():
                    job.future.set_exception(
                        Busy("the worker does not start at the moment: try again in a while", 10)
                    )
                self.waiting.clear()
        self.status = "starting"  # `_run` begins again with the shortest pause

    def _again(self, job: Job, death: Died, alone: bool) -> None:
        """No 503 where the same would happen again: a page asks again by itself."""
        job.tries += 1
        if isinstance(death, TooLong) and alone:
            job.future.set_exception(
                Refusal(504, f"this {death} and was ended: ask for something smaller")
            )
        elif job.tries > 1:
            job.future.set_exception(
                Refusal(500, f"the worker {death} twice at this question: it is given up")
            )
        elif job.askers:
            self.waiting[job.question] = job
            self.waiting.move_to_end(job.question, last=False)

    def _done(self, job: Job, reply: Any) -> None:
        if isinstance(reply, Refusal):
            job.future.set_exception(reply)
            return
        if isinstance(job.question, About) and reply["models"] != self.models:
            self.kept.clear()  # a tournament has trained more, or told their classes
            self.models = reply["models"]
        job.future.set_result(reply)
        if isinstance(reply, bytes):
            self.kept.put(without_pixels(job.question), reply)
