"""A service without models, for tests of the job queue around it.

The model's name in a request says what it does. It writes the name to a log whose path is the title
of the sources.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from cenote.web.about import ContentsRequest
from cenote.web.look import LookRequest
from cenote.web.schemas import Contents, FileNeeded, Photo, Startup, WorkerRequest
from cenote.web.sources import Sources

EXAMPLES = {"a" * 32: Photo("a" * 32, b"file", 4, 3, b"jpeg", "cat")}
THREADS = os.environ.get("OMP_NUM_THREADS")  # as NumPy reads it, at import
STARTUP = Startup(Contents(models=[], index=None), EXAMPLES)


class FakeService:  # not a Service, whose module imports torch
    def __init__(self, sources: Sources) -> None:
        self.log = Path(sources.title)
        if (self.log.parent / "refuse").exists():
            raise ValueError("cannot open run-17")

    def startup(self) -> Startup:
        return STARTUP

    def answer(self, request: WorkerRequest, content: bytes) -> Any:
        if isinstance(request, ContentsRequest):
            return STARTUP.contents
        if not isinstance(request, LookRequest):
            return b"jpeg" * 100
        folder = self.log.parent
        with self.log.open("a") as file:
            file.write(f"{request.model}\n")
        verb, _, argument = request.model.partition(" ")
        if verb == "read" and not content:
            raise FileNeeded
        if verb == "sleep":
            time.sleep(float(argument.split()[0]))
        while verb == "wait" and not (folder / argument).exists():
            time.sleep(0.01)
        if verb == "die" or (verb == "die-once" and not (folder / argument).exists()):
            (folder / (argument or "died")).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "refuse":
            raise HTTPException(400, "not this one")
        answer = {
            "model": request.model,
            "pid": os.getpid(),
            "sent": len(content),
            "threads": THREADS,
        }
        return json.dumps(answer).encode()
