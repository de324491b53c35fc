"""A service without models, for tests of the job queue around it.

The model's name in a request says what it does. It writes a line for each batch of requests to a log
whose path is the title of the sources. Like the real service, it remembers the photographs whose
files it has received.
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from cenote.web.photos import Photo, PhotoRequired
from cenote.web.service import Contents, Service, Startup, WorkerRequest
from cenote.web.sources import Sources
from cenote.web.views.look import LookRequest
from cenote.web.views.search import PictureRequest

EXAMPLES = {"a" * 32: Photo("a" * 32, b"file", 4, 3, b"jpeg", "cat")}
STARTUP = Startup(Contents(models=[], index=None), EXAMPLES, {})


class FakeService(Service):
    def __init__(self, sources: Sources) -> None:
        self.log = Path(sources.title)
        self.photos = set[str]()
        if (self.log.parent / "refuse").exists():
            raise ValueError("cannot open run-17")

    def startup(self) -> Startup:
        return STARTUP

    def answer(self, batch: Mapping[WorkerRequest, bytes | None]) -> list[Any]:
        for request, content in batch.items():
            if isinstance(request, LookRequest) and content is not None:
                self.photos.add(request.photo)
        names = [_name(request) for request in batch if not self._is_missing(request)]
        if names:
            with self.log.open("a") as file:
                file.write(json.dumps(names) + "\n")
        return [
            PhotoRequired() if self._is_missing(request) else self._answer(request, content)
            for request, content in batch.items()
        ]

    def _is_missing(self, request: WorkerRequest) -> bool:
        return isinstance(request, LookRequest) and request.photo not in self.photos

    def _answer(self, request: WorkerRequest, content: bytes | None) -> Any:
        if isinstance(request, PictureRequest):
            return b"jpeg" * 100
        assert isinstance(request, LookRequest)
        folder = self.log.parent
        verb, _, argument = request.model.partition(" ")
        if verb == "sleep":
            time.sleep(float(argument.split()[0]))
        while verb == "wait" and not (folder / argument).exists():
            time.sleep(0.01)
        if verb == "die" or (verb == "die-once" and not (folder / argument).exists()):
            (folder / (argument or "died")).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "refuse":
            return HTTPException(400, "not this one")
        answer = {"model": request.model, "pid": os.getpid(), "sent": len(content or b"")}
        return json.dumps(answer).encode()


def _name(request: WorkerRequest) -> str:
    return str(getattr(request, "model", None) or getattr(request, "entry", None))
