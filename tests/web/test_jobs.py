"""Requests wait in a bounded queue before the workers, which may die; abandoned ones never run."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.exceptions import HTTPException

from cenote.web import jobs as web_jobs
from cenote.web import server as web_server
from cenote.web.about import get_about
from cenote.web.jobs import JobQueue, WorkerProcess
from cenote.web.look import LookRequest
from cenote.web.search import PictureRequest
from cenote.web.sources import Sources

from .fake_service import FakeService
from .stub_jobs import state_of, until


def submit(jobs: JobQueue, model: str, content: bytes = b"x", photo: int = 0) -> asyncio.Task[Any]:
    request = LookRequest(photo=f"{photo:032x}", model=model)
    return asyncio.create_task(jobs.submit(request, content))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_jobs, "RETRY_SECONDS", 1)


def with_jobs(
    folder: Path,
    test: Callable[[JobQueue], Awaitable[Any]],
    max_waiting: int = 8,
    deadline: float = 60,
    workers: int = 1,
    threads: int | None = None,
) -> Any:
    async def main() -> Any:
        sources = Sources(title=str(folder / "log"))
        processes = [
            WorkerProcess(sources, FakeService, threads)  # type: ignore[arg-type]
            for _ in range(workers)
        ]
        jobs = JobQueue(processes, max_waiting, deadline)
        await jobs.start()
        try:
            return await asyncio.wait_for(test(jobs), 120)
        finally:
            jobs.close()
            assert not any(worker.alive for worker in jobs.workers)

    return asyncio.run(main())


def kill_worker(jobs: JobQueue) -> int:
    """Kill the worker; return the process id that it had."""
    process = jobs.workers[0].process
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return int(process.pid)


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


async def started(folder: Path) -> None:
    await until(lambda: (folder / "log").exists() and log(folder))


def test_equal_requests_run_once_and_are_cached(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        tasks = [submit(jobs, "sleep 0.2", content=os.urandom(4)) for _ in range(5)]
        answers = await asyncio.gather(*tasks)
        assert len(set(answers)) == 1
        assert await submit(jobs, "sleep 0.2") == answers[0]

    with_jobs(tmp_path, test)
    assert log(tmp_path) == ["sleep 0.2"]


def test_requests_run_in_order_with_their_files(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        tasks = [submit(jobs, f"m{i}", b"x" * i, photo=i) for i in range(5)]
        answers = [json.loads(answer) for answer in await asyncio.gather(*tasks)]
        assert [answer["sent"] for answer in answers] == list(range(5))

    with_jobs(tmp_path, test)
    assert log(tmp_path) == [f"m{i}" for i in range(5)]


def test_a_file_is_sent_once_unless_it_is_needed_again(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        models = ("read", "m", "read again", "n")
        answers = [json.loads(await submit(jobs, model, b"file")) for model in models]
        assert [answer["sent"] for answer in answers] == [4, 0, 4, 0]

    with_jobs(tmp_path, test)


def test_an_error_is_raised_and_not_cached(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        for _ in range(2):
            with pytest.raises(HTTPException) as raised:
                await submit(jobs, "refuse")
            assert (raised.value.status_code, raised.value.detail) == (400, "not this one")
        assert json.loads(await submit(jobs, "fine"))["model"] == "fine"

    with_jobs(tmp_path, test)
    assert log(tmp_path) == ["refuse", "refuse", "fine"]


def test_a_full_queue_refuses_and_pictures_have_their_own_limit(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        first = submit(jobs, "wait go")
        await started(tmp_path)
        waiting = [submit(jobs, f"m{i}") for i in range(2)]
        await until(lambda: jobs.waiting.total() == 2)
        with pytest.raises(HTTPException, match=r"\b2\b") as raised:
            await submit(jobs, "one too many")
        assert raised.value.status_code == 503 and raised.value.headers == {"retry-after": "1"}
        requests = [PictureRequest(entry=i, side=64) for i in range(33)]
        pictures = [asyncio.create_task(jobs.submit(request)) for request in requests[:32]]
        await until(lambda: jobs.waiting.total() == 34)
        with pytest.raises(HTTPException, match=r"\b32\b"):
            await jobs.submit(requests[32])
        (tmp_path / "go").touch()
        answers = await asyncio.gather(first, *waiting, *pictures)
        assert len(answers) == 35

    with_jobs(tmp_path, test, max_waiting=2)


def test_a_request_whose_client_leaves_is_dropped(tmp_path: Path) -> None:
    """Before it runs: a running one is finished, and the worker stays."""

    async def test(jobs: JobQueue) -> None:
        pid = jobs.workers[0].process.pid
        first = submit(jobs, "wait go")
        await started(tmp_path)
        leaving, staying = submit(jobs, "abandoned"), submit(jobs, "stays")
        await until(lambda: jobs.waiting.total() == 2)
        leaving.cancel()
        first.cancel()
        await until(lambda: jobs.waiting.total() == 1)
        new = submit(jobs, "new")
        (tmp_path / "go").touch()
        assert json.loads(await new)["pid"] == pid
        await staying

    with_jobs(tmp_path, test, max_waiting=2)
    assert log(tmp_path) == ["wait go", "stays", "new"]


def test_a_worker_killed_during_a_request_is_replaced_and_the_request_tried_again(
    tmp_path: Path,
) -> None:
    async def test(jobs: JobQueue) -> None:
        tasks = [submit(jobs, "wait go"), *(submit(jobs, f"m{i}") for i in range(3))]
        await started(tmp_path)
        before = kill_worker(jobs)
        (tmp_path / "go").touch()
        answers = [json.loads(answer) for answer in await asyncio.gather(*tasks)]
        assert [answer["model"] for answer in answers] == ["wait go", "m0", "m1", "m2"]
        assert answers[0]["pid"] == jobs.workers[0].process.pid != before and jobs.status == "ready"

    with_jobs(tmp_path, test)


def test_a_request_that_kills_workers_fails_alone(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        tasks = [submit(jobs, model) for model in ("good 1", "die", "good 2")]
        good, died, also_good = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(died, HTTPException) and died.status_code == 500
        assert json.loads(good)["model"] == "good 1"  # type: ignore[arg-type]
        assert json.loads(also_good)["model"] == "good 2"  # type: ignore[arg-type]
        assert json.loads(await submit(jobs, "die-once x"))["model"] == "die-once x"

    with_jobs(tmp_path, test)


def test_a_deadline_replaces_the_worker(tmp_path: Path) -> None:
    """And the request is not tried again: neither here nor, since it is not a 503, by the page."""

    async def test(jobs: JobQueue) -> None:
        before = jobs.workers[0].process.pid
        with pytest.raises(HTTPException, match=r"\b0\.3\b") as raised:
            await submit(jobs, "sleep 300")
        assert raised.value.status_code == 504
        jobs.deadline = 60
        assert json.loads(await submit(jobs, "fine"))["pid"] != before

    with_jobs(tmp_path, test, deadline=0.3)
    # A busy worker may be killed before it logs the first request.
    assert log(tmp_path) in (["sleep 300", "fine"], ["fine"])


def test_an_idle_worker_that_dies_is_replaced_with_an_empty_cache(tmp_path: Path) -> None:
    """The files of its models may have changed."""

    async def test(jobs: JobQueue) -> None:
        for _ in range(2):
            await submit(jobs, "m")
        assert len(jobs.cache) == 1
        before = kill_worker(jobs)
        assert json.loads(await submit(jobs, "n"))["pid"] != before
        await submit(jobs, "m")

    with_jobs(tmp_path, test)
    assert log(tmp_path) == ["m", "n", "m"]


def test_a_death_that_is_noticed_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a moment a process may seem alive whose executor is already broken."""

    async def test(jobs: JobQueue) -> None:
        kill_worker(jobs)
        monkeypatch.setattr(WorkerProcess, "alive", property(lambda self: self.process is not None))
        assert json.loads(await submit(jobs, "next"))["model"] == "next"
        monkeypatch.undo()

    with_jobs(tmp_path, test)


def test_a_worker_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    with pytest.raises(ValueError, match="run-17"):
        with_jobs(tmp_path, lambda jobs: asyncio.sleep(0))

    async def test(jobs: JobQueue) -> None:
        (tmp_path / "refuse").touch()
        kill_worker(jobs)
        tasks = [submit(jobs, f"m{i}") for i in range(3)]
        failures = await asyncio.gather(*tasks, return_exceptions=True)
        assert [getattr(failure, "status_code", 0) for failure in failures] == [503] * 3
        assert jobs.status == "down"
        (tmp_path / "refuse").unlink()
        await asyncio.sleep(1)
        assert json.loads(await submit(jobs, "again"))["model"] == "again"
        assert jobs.status == "ready"

    (tmp_path / "refuse").unlink()
    with_jobs(tmp_path, test)


def test_a_failure_to_create_the_process_is_temporary(tmp_path: Path) -> None:
    """As where the machine is out of memory for a moment."""

    def refuse(*_: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def test(jobs: JobQueue) -> None:
        kill_worker(jobs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SpawnProcess, "start", refuse)
            with pytest.raises(HTTPException) as raised:
                await submit(jobs, "m")
        assert raised.value.status_code == 503
        await asyncio.sleep(1)
        assert json.loads(await submit(jobs, "again"))["model"] == "again"

    with_jobs(tmp_path, test)


class Unsendable(LookRequest):
    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


def test_a_request_that_cannot_be_sent_fails_alone(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        with pytest.raises(TypeError):
            await jobs.submit(Unsendable(photo="0" * 32, model="m"))
        assert json.loads(await submit(jobs, "again"))["model"] == "again"

    with_jobs(tmp_path, test)


def test_waiting_requests_fail_when_the_queue_closes(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        tasks = [submit(jobs, model) for model in ("sleep 30", "m", "n")]
        await started(tmp_path)
        jobs.close()
        failures = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        assert [getattr(failure, "status_code", 0) for failure in failures] == [503] * 3

    with_jobs(tmp_path, test)


def test_two_workers_run_side_by_side_and_keep_their_photographs(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        waits, other = submit(jobs, "wait go"), submit(jobs, "m", photo=1)
        pid = json.loads(await other)["pid"]  # while the first waits
        again = [submit(jobs, f"m{i}", photo=1) for i in range(3)]
        answers = [json.loads(answer) for answer in await asyncio.gather(*again)]
        assert [answer["pid"] for answer in answers] == [pid] * 3
        (tmp_path / "go").touch()
        first = json.loads(await waits)["pid"]
        assert {first, pid} == {worker.process.pid for worker in jobs.workers}

    with_jobs(tmp_path, test, workers=2)


def test_photographs_of_a_worker_that_does_not_start_go_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_jobs, "RETRY_SECONDS", 60)

    async def test(jobs: JobQueue) -> None:
        first = json.loads(await submit(jobs, "m"))["pid"]
        assert kill_worker(jobs) == first
        (tmp_path / "refuse").touch()
        with pytest.raises(HTTPException):
            await submit(jobs, "n")
        assert jobs.status == "ready"
        assert json.loads(await submit(jobs, "n"))["pid"] == jobs.workers[1].process.pid

    with_jobs(tmp_path, test, workers=2)


def test_the_list_of_models_needs_one_free_worker(tmp_path: Path) -> None:
    plan = {"contenders": ["gap"], "kind": "pools", "backbone": "resnet_micro"}
    (tmp_path / "plan.json").write_text(json.dumps(plan))

    async def test(jobs: JobQueue) -> None:
        busy = submit(jobs, "wait go")
        await started(tmp_path)
        state = state_of(jobs, tournaments=[tmp_path])
        before = state.contents
        await asyncio.wait_for(get_about(state), 30)
        assert state.contents is not before
        (tmp_path / "go").touch()
        await busy

    with_jobs(tmp_path, test, workers=2)


@pytest.mark.parametrize(("user", "expected"), [("1", "1"), ("8", "2"), ("", "2")])
def test_threads_are_limited_before_a_worker_imports_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, expected: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if user:
        monkeypatch.setenv("OMP_NUM_THREADS", user)

    async def test(jobs: JobQueue) -> None:
        assert json.loads(await submit(jobs, "m"))["threads"] == expected

    with_jobs(tmp_path, test, threads=2)
    assert os.environ.get("OMP_NUM_THREADS", "") == user


def test_a_worker_that_is_replaced_has_no_photographs(tmp_path: Path) -> None:
    async def test(jobs: JobQueue) -> None:
        await submit(jobs, "m", photo=1)
        kill_worker(jobs)
        assert json.loads(await submit(jobs, "n", photo=2))["model"] == "n"
        assert list(jobs.workers[0].photos) == [f"{2:032x}"]

    with_jobs(tmp_path, test)


def test_one_worker_has_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "available_cores", lambda: 8)
    monkeypatch.setattr("cenote.device.default_device", lambda: torch.device("cuda"))
    assert web_server.default_workers() == 1
    monkeypatch.setattr("cenote.device.default_device", lambda: torch.device("cpu"))
    assert web_server.default_workers() == 2
