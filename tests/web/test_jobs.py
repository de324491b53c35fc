"""Requests wait in a bounded queue before one worker, which may die; abandoned ones never run."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from cenote.web.jobs import Batch, JobQueue, WorkerProcess
from cenote.web.sources import Sources
from cenote.web.views.look import LookRequest
from cenote.web.views.search import PictureRequest

from .fake_service import FakeService
from .stub_jobs import until


def look(model: str, photo: str = "0" * 32) -> LookRequest:
    return LookRequest(photo=photo, model=model)


def submit(
    jobs: JobQueue, model: str, photo: str = "0" * 32, content: bytes = b"x"
) -> asyncio.Task[Any]:
    return asyncio.create_task(jobs.submit(look(model, photo), content))


class ImpatientWorker(WorkerProcess):
    """Give requests that sleep little time, and all others the queue's, also on a busy machine."""

    async def run(self, batch: Batch, seconds: float) -> list[Any]:
        sleeps = any(request.model.startswith("sleep") for request in batch)  # type: ignore[attr-defined]
        return await super().run(batch, 0.3 if sleeps else seconds)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.web.jobs.RESTART_PAUSES", (0.0, 0.2, 1.0))


def with_jobs(
    folder: Path,
    test: Callable[[JobQueue], Awaitable[Any]],
    max_waiting: int = 8,
    deadline: float = 60,
    worker: type[WorkerProcess] = WorkerProcess,
) -> Any:
    async def main() -> Any:
        process = worker(Sources(title=str(folder / "log")), FakeService)
        jobs = JobQueue(process, max_waiting, deadline)
        await jobs.start()
        try:
            return await asyncio.wait_for(test(jobs), 120)
        finally:
            await jobs.close()
            assert not jobs.worker.alive

    return asyncio.run(main())


async def kill_worker(jobs: JobQueue, replaced: bool = True) -> int:
    """Kill the worker and let the queue notice at once; return the process id that it had."""
    pid = jobs.worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    jobs.worker.process.join()
    jobs.wake.set()  # instead of its check once a second
    if replaced:
        await until(lambda: jobs.status == "ready" and jobs.worker.pid not in (None, pid))
    return int(pid)


def batches(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_equal_requests_run_once_and_are_cached(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        tasks = [submit(jobs, "sleep 0.2", content=os.urandom(4)) for _ in range(5)]
        answers = await asyncio.gather(*tasks)
        assert len(set(answers)) == 1
        assert await submit(jobs, "sleep 0.2") == answers[0]

    with_jobs(tmp_path, test)
    assert batches(tmp_path) == [["sleep 0.2"]]


def test_an_error_is_raised_and_not_cached(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        for _ in range(2):
            with pytest.raises(HTTPException) as raised:
                await submit(jobs, "refuse")
            assert raised.value.status_code == 400
        assert json.loads(await submit(jobs, "fine"))["model"] == "fine"

    with_jobs(tmp_path, test)
    assert batches(tmp_path) == [["refuse"], ["refuse"], ["fine"]]


def test_waiting_requests_run_as_one_batch(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        first = submit(jobs, "wait go")
        await until(lambda: jobs.running)
        tasks = [submit(jobs, f"m{i}") for i in range(8)]
        await until(lambda: len(jobs.waiting) == 8)
        (tmp_path / "go").touch()
        await asyncio.gather(first, *tasks)

    with_jobs(tmp_path, test)
    assert batches(tmp_path) == [["wait go"], [f"m{i}" for i in range(8)]]


def test_large_photographs_are_in_separate_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cenote.web.jobs.MAX_BATCH_BYTES", 100)

    async def test(jobs: JobQueue) -> None:
        first = submit(jobs, "wait go")
        await until(lambda: jobs.running)
        sizes = (200, 60, 40, 10)
        tasks = [submit(jobs, f"m{size}", content=b"x" * size) for size in sizes]
        await until(lambda: len(jobs.waiting) == 4)
        (tmp_path / "go").touch()
        await asyncio.gather(first, *tasks)

    with_jobs(tmp_path, test)
    assert batches(tmp_path)[1:] == [["m200"], ["m60", "m40"], ["m10"]]


def test_a_file_is_sent_to_a_worker_once(tmp_path: Path) -> None:
    """And to the next worker again; replies of a mixed batch keep their order."""

    async def sent(jobs: JobQueue, batch: Batch) -> list[int]:
        return [json.loads(reply)["sent"] for reply in await jobs.worker.run(batch, 20)]

    async def test(jobs: JobQueue) -> None:
        p, q = look("a", "a" * 32), look("a", "b" * 32)
        file, smaller = b"x" * 100, b"x" * 70
        assert await sent(jobs, {p: file}) == [100] and await sent(jobs, {p: file}) == [0]
        again = look("b", "a" * 32)
        assert await sent(jobs, {p: file, q: smaller, again: file}) == [0, 70, 0]
        await kill_worker(jobs)
        answer = await submit(jobs, "b", "b" * 32, smaller)
        assert json.loads(answer)["sent"] == 70
        assert await sent(jobs, {p: file, q: smaller}) == [100, 0]

    with_jobs(tmp_path, test)


def test_a_full_queue_refuses_and_pictures_have_their_own_limit(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        first = submit(jobs, "wait go")
        await until(lambda: jobs.running)
        waiting = [submit(jobs, f"m{i}") for i in range(2)]
        await until(lambda: len(jobs.waiting) == 2)
        with pytest.raises(HTTPException, match=r"\b2\b") as raised:
            await submit(jobs, "one too many")
        assert raised.value.status_code == 503 and raised.value.headers == {"retry-after": "1"}
        requests = [PictureRequest(entry=i, side=64) for i in range(33)]
        pictures = [asyncio.create_task(jobs.submit(request)) for request in requests[:32]]
        await until(lambda: len(jobs.waiting) == 34)
        with pytest.raises(HTTPException, match=r"\b32\b"):
            await jobs.submit(requests[32])
        (tmp_path / "go").touch()
        answers = await asyncio.gather(first, *waiting, *pictures)
        assert len(answers) == 35

    with_jobs(tmp_path, test, max_waiting=2)


def test_a_request_that_nobody_waits_for_is_dropped(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        first = submit(jobs, "wait go")
        await until(lambda: jobs.running)
        leaving = [submit(jobs, "abandoned") for _ in range(2)]  # both wait for one job
        staying = submit(jobs, "stays")
        await until(lambda: len(jobs.waiting) == 2)
        leaving[0].cancel()
        await asyncio.wait(leaving[:1])
        assert len(jobs.waiting) == 2, "somebody still waits for it"
        leaving[1].cancel()
        await until(lambda: len(jobs.waiting) == 1)
        new = submit(jobs, "new")
        await until(lambda: len(jobs.waiting) == 2)
        (tmp_path / "go").touch()
        assert json.loads(await new)["model"] == "new"
        await asyncio.gather(first, staying)

    with_jobs(tmp_path, test, max_waiting=2)
    assert not any("abandoned" in batch for batch in batches(tmp_path))


def test_a_worker_killed_during_a_request_is_replaced_and_the_request_tried_again(
    tmp_path: Path,
) -> None:
    async def test(jobs: JobQueue) -> None:
        before = jobs.worker.pid
        tasks = [submit(jobs, "wait go"), *(submit(jobs, f"m{i}") for i in range(3))]
        await until(lambda: (tmp_path / "log").exists() and batches(tmp_path))
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await until(lambda: jobs.status == "ready" and jobs.worker.pid not in (None, before))
        (tmp_path / "go").touch()
        answers = [json.loads(answer) for answer in await asyncio.gather(*tasks)]
        assert [answer["model"] for answer in answers] == ["wait go", "m0", "m1", "m2"]
        assert answers[0]["pid"] == jobs.worker.pid != before and jobs.status == "ready"

    with_jobs(tmp_path, test)


def test_a_request_that_kills_workers_fails_alone(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        first = submit(jobs, "wait go")
        await until(lambda: jobs.running)
        tasks = [submit(jobs, model) for model in ("good 1", "die", "good 2")]
        await until(lambda: len(jobs.waiting) == 3)
        (tmp_path / "go").touch()
        good, died, also_good = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(died, HTTPException) and died.status_code == 500
        assert json.loads(good)["model"] == "good 1"  # type: ignore[arg-type]
        assert json.loads(also_good)["model"] == "good 2"  # type: ignore[arg-type]
        await first
        assert json.loads(await submit(jobs, "die-once x"))["model"] == "die-once x"

    with_jobs(tmp_path, test)


def test_a_deadline_replaces_the_worker(tmp_path: Path) -> None:
    """And the request is not tried again: neither here nor, since it is not a 503, by the page."""

    async def test(jobs: JobQueue) -> None:
        before = jobs.worker.pid
        with pytest.raises(HTTPException, match=r"\b0\.3\b") as raised:
            await submit(jobs, "sleep 300")
        assert raised.value.status_code == 504
        jobs.deadline = 60
        assert json.loads(await submit(jobs, "fine"))["pid"] != before

    with_jobs(tmp_path, test, deadline=0.3)
    # A busy worker may be killed before it logs the first request.
    assert batches(tmp_path) in ([["sleep 300"], ["fine"]], [["fine"]])


def test_requests_in_a_batch_with_a_slow_one_are_tried_alone(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        first = submit(jobs, "wait go")
        await until(lambda: jobs.running)
        tasks = [submit(jobs, model) for model in ("sleep 300", "quick")]
        await until(lambda: len(jobs.waiting) == 2)
        (tmp_path / "go").touch()
        slow, quick = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(slow, HTTPException) and slow.status_code == 504
        assert json.loads(quick)["model"] == "quick"  # type: ignore[arg-type]
        await first

    with_jobs(tmp_path, test, worker=ImpatientWorker)


def test_an_idle_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        before = jobs.worker.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)  # and nothing wakes the queue
        await until(lambda: jobs.status == "ready" and jobs.worker.pid not in (None, before))

    with_jobs(tmp_path, test)


def test_a_worker_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    with pytest.raises(ValueError, match="run-17"):
        with_jobs(tmp_path, lambda jobs: asyncio.sleep(0))

    async def test(jobs: JobQueue) -> None:
        (tmp_path / "refuse").touch()
        await kill_worker(jobs, replaced=False)
        await until(lambda: jobs.status == "down")
        with pytest.raises(HTTPException) as raised:
            await submit(jobs, "anything")
        assert raised.value.headers == {"retry-after": "10"}, "longer than for a full queue"
        (tmp_path / "refuse").unlink()
        await until(lambda: jobs.status == "ready")
        assert json.loads(await submit(jobs, "again"))["model"] == "again"

    (tmp_path / "refuse").unlink()
    with_jobs(tmp_path, test)


def test_a_new_worker_starts_with_an_empty_cache(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        for _ in range(2):
            await submit(jobs, "m")
        assert len(jobs.cache) == 1
        await kill_worker(jobs)
        assert not jobs.cache, "the files of its models may have changed"
        await submit(jobs, "m")

    with_jobs(tmp_path, test)
    assert batches(tmp_path) == [["m"]] * 2


def test_a_failure_to_create_the_process_is_temporary(tmp_path: Path) -> None:
    """As where the machine is out of memory for a moment."""

    def refuse(*_: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def test(jobs: JobQueue) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SpawnProcess, "start", refuse)
            await kill_worker(jobs, replaced=False)
            await until(lambda: jobs.status == "down")
        await until(lambda: jobs.status == "ready")
        assert json.loads(await submit(jobs, "again"))["model"] == "again"

    with_jobs(tmp_path, test)


class Unsendable(LookRequest):
    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


def test_a_request_that_cannot_be_sent_fails_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(jobs: JobQueue) -> None:
        with pytest.raises(TypeError):
            await jobs.submit(Unsendable(photo="0" * 32, model="m"))
        assert json.loads(await submit(jobs, "again"))["model"] == "again"

    with_jobs(tmp_path, test)
    assert "cannot be pickled" in caplog.text


def test_waiting_requests_fail_when_the_queue_closes(tmp_path: Path) -> None:
    async def main() -> None:
        jobs = JobQueue(WorkerProcess(Sources(title=str(tmp_path / "log")), FakeService))
        await jobs.start()
        tasks = [submit(jobs, model) for model in ("sleep 30", "m")]
        await until(lambda: jobs.running)
        await jobs.close()
        failures = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        assert [getattr(failure, "status_code", 0) for failure in failures] == [503, 503]

    asyncio.run(main())
