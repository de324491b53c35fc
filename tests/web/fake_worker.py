"""A worker process without models, for tests of the server around it: the model's name in a question says what it does.

It writes a line for each batch of questions to a log whose path is the title of what is served. Like the real worker,
it remembers the photographs whose files it has received.
"""

import json
import os
import signal
import threading
import time
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cenote.web.questions import About, Decode, Look, Photo, Picture, Refusal, Search, Unseen
from cenote.web.runs import Served

READY = {
    "models": [],
    "index": None,
    "examples": {"a" * 32: Photo(b"file", 4, 3, "cat", b"jpeg")},
    "groups": {},
}


def work(connection: Connection, served: Served) -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    log = Path(served.title)
    if (log.parent / "refuse").exists():
        connection.send(Refusal(500, "cannot open run-17"))
        return
    connection.send(READY)
    known = set[str]()
    while True:
        try:
            questions = connection.recv()
        except EOFError:
            return
        known |= {q.photo for q in questions if isinstance(q, Look) and q.content is not None}
        unseen = [isinstance(q, Look) and q.photo not in known for q in questions]
        if not all(unseen):
            with log.open("a") as file:
                file.write(
                    json.dumps(
                        [_name(q) for q, new in zip(questions, unseen, strict=True) if not new]
                    )
                    + "\n"
                )
        connection.send(
            [
                Unseen() if n else _answer(q, log.parent)
                for q, n in zip(questions, unseen, strict=True)
            ]
        )


def _exit_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def _name(question: Any) -> str:
    return str(
        getattr(question, "model", None)
        or getattr(question, "entry", None)
        or type(question).__name__
    )


def _answer(question: Any, folder: Path) -> Any:
    if isinstance(question, About):
        return {"models": ["another"] * (folder / "trained").exists(), "index": None}
    if isinstance(question, Decode):
        return Photo(b"", 4, 3, shown=b"jpeg of " + question.content[:8])
    if isinstance(question, Picture):
        return b"jpeg" * 100
    if isinstance(question, Search):
        return b"{}"
    assert isinstance(question, Look)
    verb, _, rest = question.model.partition(" ")
    if verb == "sleep":
        time.sleep(float(rest.split()[0]))
    while verb == "wait" and not (folder / rest).exists():
        time.sleep(0.01)
    if verb == "die" or (verb == "die-once" and not (folder / rest).exists()):
        (folder / (rest or "died")).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if verb == "refuse":
        return Refusal(400, "not this one")
    return json.dumps(
        {"model": question.model, "pid": os.getpid(), "sent": len(question.content or b"")}
    ).encode()
