"""Questions wait in a bounded queue before one worker, which may die; what nobody waits for is never computed."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from cenote.web.desk import Busy, Desk
from cenote.web.process import Worker
from cenote.web.questions import About, Look, Picture, Refusal
from cenote.web.runs import Served

from .fake_worker import work
from .stub import until


def look(what: str, photo: str = "p", content: bytes = b"x") -> Look:
    return Look(photo, what, "auto", None, content)


class ImpatientWorker(Worker):
    """Gives questions that sleep little time, and all others the desk's: a busy machine changes no outcome."""

    async def ask(self, questions: Sequence[Any], seconds: float) -> list[Any]:
        sleeps = any(question.model.startswith("sleep") for question in questions)
        return await super().ask(questions, 0.3 if sleeps else seconds)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cenote.web.desk.PAUSES", (0.0, 0.2, 1.0, 5.0))


def with_desk(
    folder: Path, test: Callable[[Desk], Awaitable[Any]], queue: int = 8, deadline: float = 60,
    worker: type[Worker] = Worker,
) -> Any:  # fmt: skip
    async def main() -> Any:
        desk = Desk(worker(Served(title=str(folder / "log")), work), queue, deadline)
        await desk.start()
        desk.open()
        try:
            return await asyncio.wait_for(test(desk), 120)
        finally:
            await desk.close()
            assert not desk.worker.alive

    return asyncio.run(main())


async def kill_worker(desk: Desk, replaced: bool = True) -> int:
    """Kill the worker and have the desk notice at once; return the process id that it had."""
    pid = desk.worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    desk.worker.process.join()
    desk.wake.set()  # it looks by itself once a second
    if replaced:
        await until(lambda: desk.status == "ready" and desk.worker.pid != pid)
    return int(pid)


def begun(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_equal_questions_are_asked_once_and_remembered(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        several = await asyncio.gather(
            *(desk.ask(look("sleep 0.2", content=os.urandom(4))) for _ in range(5))
        )
        assert len(set(several)) == 1
        assert await desk.ask(look("sleep 0.2")) == several[0]
        assert all(
            not getattr(question, "content", b"") for question in desk.kept
        )  # pixels are not remembered

    with_desk(tmp_path, test)
    assert begun(tmp_path) == [["sleep 0.2"]]


def test_a_refusal_is_told_and_not_remembered(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        for _ in range(2):
            with pytest.raises(Refusal) as refused:
                await desk.ask(look("refuse"))
            assert refused.value.status == 400
        assert json.loads(await desk.ask(look("fine")))["model"] == "fine"

    with_desk(tmp_path, test)
    assert begun(tmp_path) == [["refuse"], ["refuse"], ["fine"]]


def test_what_waits_is_answered_together(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        first = asyncio.create_task(desk.ask(look("wait go")))
        await until(lambda: desk.running)
        others = [asyncio.create_task(desk.ask(look(f"m{i}"))) for i in range(8)]
        await until(lambda: len(desk.waiting) == 8)
        (tmp_path / "go").touch()
        await asyncio.gather(first, *others)

    with_desk(tmp_path, test)
    assert begun(tmp_path) == [["wait go"], [f"m{i}" for i in range(8)]]


def test_large_photographs_do_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cenote.web.desk.HEAVY", 100)

    async def test(desk: Desk) -> None:
        first = asyncio.create_task(desk.ask(look("wait go")))
        await until(lambda: desk.running)
        sizes = (200, 60, 40, 10)
        others = [
            asyncio.create_task(desk.ask(look(f"m{size}", content=b"x" * size))) for size in sizes
        ]
        await until(lambda: len(desk.waiting) == 4)
        (tmp_path / "go").touch()
        await asyncio.gather(first, *others)

    with_desk(tmp_path, test)
    assert begun(tmp_path)[1:] == [["m200"], ["m60", "m40"], ["m10"]]


def test_a_file_goes_to_a_worker_once(tmp_path: Path) -> None:
    """And to the next worker again; who is asked about together is told apart, in order."""

    async def sent(desk: Desk, *questions: Look) -> list[int]:
        return [json.loads(reply)["sent"] for reply in await desk.worker.ask(questions, 20)]

    async def test(desk: Desk) -> None:
        first, second = (look("a", photo, b"x" * size) for photo, size in (("p", 100), ("q", 70)))
        assert await sent(desk, first) == [100] and await sent(desk, first) == [0]
        assert await sent(desk, first, second, first) == [0, 70, 0]
        await kill_worker(desk)
        assert json.loads(await desk.ask(look("b", "q", b"x" * 70)))["sent"] == 70
        assert await sent(desk, first, second) == [100, 0]

    with_desk(tmp_path, test)


def test_a_full_queue_refuses_and_pictures_have_their_own(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        first = asyncio.create_task(desk.ask(look("wait go")))
        await until(lambda: desk.running)
        waiting = [asyncio.create_task(desk.ask(look(f"m{i}"))) for i in range(2)]
        await until(lambda: len(desk.waiting) == 2)
        with pytest.raises(Busy, match=r"\b2\b"):
            await desk.ask(look("one too many"))
        pictures = [asyncio.create_task(desk.ask(Picture(i, 64))) for i in range(32)]
        await until(lambda: len(desk.waiting) == 34)
        with pytest.raises(Busy, match=r"\b32\b"):
            await desk.ask(Picture(32, 64))
        (tmp_path / "go").touch()
        found = await asyncio.gather(first, *waiting, *pictures)
        assert len(found) == 35

    with_desk(tmp_path, test, queue=2)


def test_who_leaves_frees_the_place_and_nothing_is_computed(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        first = asyncio.create_task(desk.ask(look("wait go")))
        await until(lambda: desk.running)
        leaving = [
            asyncio.create_task(desk.ask(look("left"))) for _ in range(2)
        ]  # two wait for the same
        staying = asyncio.create_task(desk.ask(look("stays")))
        await until(lambda: len(desk.waiting) == 2)
        leaving[0].cancel()
        await asyncio.wait(leaving[:1])
        assert len(desk.waiting) == 2, "somebody still waits for it"
        leaving[1].cancel()
        await until(lambda: len(desk.waiting) == 1)
        new = asyncio.create_task(desk.ask(look("new")))
        await until(lambda: len(desk.waiting) == 2)
        (tmp_path / "go").touch()
        assert json.loads(await new)["model"] == "new"
        await asyncio.gather(first, staying)

    with_desk(tmp_path, test, queue=2)
    assert not any("left" in together for together in begun(tmp_path))


def test_a_worker_killed_in_the_middle_is_replaced_and_the_question_tried_again(
    tmp_path: Path,
) -> None:
    async def test(desk: Desk) -> None:
        before = desk.worker.pid
        asked = asyncio.create_task(desk.ask(look("wait go")))
        others = [asyncio.create_task(desk.ask(look(f"m{i}"))) for i in range(3)]
        await until(lambda: begun(tmp_path) if (tmp_path / "log").exists() else [])
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await until(lambda: desk.status == "ready" and desk.worker.pid != before)
        (tmp_path / "go").touch()
        found = [json.loads(each) for each in await asyncio.gather(asked, *others)]
        assert [each["model"] for each in found] == ["wait go", "m0", "m1", "m2"]
        assert found[0]["pid"] == desk.worker.pid != before and desk.status == "ready"

    with_desk(tmp_path, test)


def test_a_question_that_kills_workers_takes_no_other_with_it(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        first = asyncio.create_task(desk.ask(look("wait go")))
        await until(lambda: desk.running)
        asked = [asyncio.create_task(desk.ask(look(what))) for what in ("good 1", "die", "good 2")]
        await until(lambda: len(desk.waiting) == 3)
        (tmp_path / "go").touch()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(found[1], Refusal) and found[1].status == 500
        assert [json.loads(found[i])["model"] for i in (0, 2)] == ["good 1", "good 2"]  # type: ignore[arg-type]
        await first
        assert json.loads(await desk.ask(look("die-once x")))["model"] == "die-once x"

    with_desk(tmp_path, test)


def test_a_deadline_replaces_the_worker(tmp_path: Path) -> None:
    """And the question is not tried again: neither here nor, since it is no 503, by the page."""

    async def test(desk: Desk) -> None:
        before = desk.worker.pid
        with pytest.raises(Refusal, match=r"\b0\.3\b") as refused:
            await desk.ask(look("sleep 300"))
        assert refused.value.status == 504
        desk.deadline = 60
        assert json.loads(await desk.ask(look("fine")))["pid"] != before

    with_desk(tmp_path, test, deadline=0.3)
    assert begun(tmp_path) in (
        [["sleep 300"], ["fine"]],
        [["fine"]],
    )  # a busy worker may end before it begins


def test_who_was_asked_together_with_a_slow_one_is_tried_alone(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        first = asyncio.create_task(desk.ask(look("wait go")))
        await until(lambda: desk.running)
        asked = [asyncio.create_task(desk.ask(look(what))) for what in ("sleep 300", "quick")]
        await until(lambda: len(desk.waiting) == 2)
        (tmp_path / "go").touch()
        slow, quick = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(slow, Refusal) and slow.status == 504
        assert json.loads(quick)["model"] == "quick"  # type: ignore[arg-type]
        await first

    with_desk(tmp_path, test, worker=ImpatientWorker)


def test_a_worker_that_dies_while_nobody_asks_is_replaced(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        before = desk.worker.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)  # the desk notices by itself
        await until(lambda: desk.status == "ready" and desk.worker.pid != before)

    with_desk(tmp_path, test)


def test_a_worker_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    with pytest.raises(Refusal, match="run-17"):
        with_desk(tmp_path, lambda desk: asyncio.sleep(0))

    async def test(desk: Desk) -> None:
        (tmp_path / "refuse").touch()
        await kill_worker(desk, replaced=False)
        await until(lambda: desk.status == "down")
        with pytest.raises(Busy) as refused:
            await desk.ask(look("anything"))
        assert refused.value.seconds == 10, "longer than for a full queue"
        (tmp_path / "refuse").unlink()
        await until(lambda: desk.status == "ready")
        assert json.loads(await desk.ask(look("again")))["model"] == "again"

    (tmp_path / "refuse").unlink()
    with_desk(tmp_path, test)


def test_answers_of_other_models_are_forgotten(tmp_path: Path) -> None:
    async def test(desk: Desk) -> None:
        for _ in range(2):
            await desk.ask(look("m"))
            await desk.ask(About())  # the same models: still remembered
        (tmp_path / "trained").touch()
        await desk.ask(About())
        await desk.ask(look("m"))
        assert len(list(desk.kept)) == 1
        await kill_worker(desk)
        assert not list(desk.kept) and desk.kept.taken == 0, (
            "another worker, perhaps with other files"
        )

    with_desk(tmp_path, test)
    assert [asked for asked in begun(tmp_path) if asked == ["m"]] == [["m"]] * 2


def test_a_process_that_cannot_be_had_is_asked_for_again(tmp_path: Path) -> None:
    """As where the machine has no memory for a moment."""

    def refuse(*_: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def test(desk: Desk) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SpawnProcess, "start", refuse)
            await kill_worker(desk, replaced=False)
            await until(lambda: desk.status == "down")
        await until(lambda: desk.status == "ready")
        assert json.loads(await desk.ask(look("again")))["model"] == "again"

    with_desk(tmp_path, test)


def test_what_cannot_be_asked_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Unsendable(str):
        """No pipe takes it: pickle finds no class of this name."""

    async def test(desk: Desk) -> None:
        with pytest.raises(Refusal) as refused:
            await desk.ask(look(Unsendable("m")))
        assert refused.value.status == 500
        assert json.loads(await desk.ask(look("again")))["model"] == "again"

    with_desk(tmp_path, test)
    assert "Traceback" in capfd.readouterr().err, "the terminal says why"


def test_whoever_waits_is_told_when_it_closes(tmp_path: Path) -> None:
    async def test(desk: Desk) -> list[asyncio.Task[Any]]:
        asked = [asyncio.create_task(desk.ask(look(what))) for what in ("sleep 30", "m")]
        await until(lambda: desk.running)
        return asked

    async def main() -> None:
        desk = Desk(Worker(Served(title=str(tmp_path / "log")), work))
        await desk.start()
        desk.open()
        asked = await test(desk)
        await desk.close()
        found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
        assert all(isinstance(each, Busy) for each in found)

    asyncio.run(main())
