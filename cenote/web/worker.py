"""The process that holds models and index: it takes questions from a pipe, several at a time, and answers each."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from .questions import (
    About,
    Adopt,
    Decode,
    Look,
    Photo,
    Picture,
    Question,
    Refusal,
    Search,
    names_only,
)
from .runs import Served

if TYPE_CHECKING:
    from .indexed import Indexed
    from .looking import Looking
    from .models import Models

Reply = bytes | Photo | dict[str, Any] | Refusal


def work(connection: Connection, served: Served) -> None:
    """Say that it is ready, or why it cannot be; then answer until the server is gone."""
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    try:
        room = Room(served)
        ready: Reply = room.ready()
    except (ValueError, OSError, ImportError) as error:
        ready = Refusal(500, _sentence(error))
    try:
        connection.send(ready)
        while not isinstance(ready, Refusal):
            connection.send(room.answer(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the server has gone


def _end_with_the_server() -> None:
    """Also in the middle of a question."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


class Room:
    """What is served, opened."""

    def __init__(self, served: Served) -> None:
        from ..allocator import keep_memory

        keep_memory()
        from .indexed import Indexed
        from .looking import Looking
        from .models import Models

        self.served = served
        self.models: Models = Models(served)
        self.looking: Looking = Looking(self.models)
        self.index: Indexed | None = None if served.index is None else Indexed(served.index)

    def ready(self) -> dict[str, Any]:
        from .examples import examples
        from .models import pool_groups

        self.examples = examples(self.served, self.index)
        return self.about() | {"examples": self.examples, "groups": pool_groups()}

    def about(self) -> dict[str, Any]:
        self.models.refresh()
        return {
            "models": self.models.rows,
            "index": None if self.index is None else self.index.about(),
        }

    def answer(self, questions: Sequence[Question]) -> list[Reply]:
        looks = [question for question in questions if isinstance(question, Look)]
        seen = dict(zip(looks, self._looked(looks), strict=True)) if looks else {}
        return [seen[q] if isinstance(q, Look) else self._one(q) for q in questions]

    def _looked(self, looks: Sequence[Look]) -> list[Reply]:
        try:
            return [
                found if isinstance(found, Refusal) else _packed(found)
                for found in self.looking(looks)
            ]
        except Exception as error:
            if len(looks) == 1:
                return [_refusal(error)]
            return [
                reply for look in looks for reply in self._looked([look])
            ]  # one of them is to blame

    def _one(self, question: Question) -> Reply:
        try:
            if isinstance(question, About):
                return self.about()
            if isinstance(question, Decode):
                return decode(question)
            if self.index is None:
                raise Refusal(
                    404, "no index is served here: `cenote serve RUN --index INDEX` serves one"
                )
            if isinstance(question, Picture):
                return self.index.picture(question)
            if isinstance(question, Adopt):
                return self.index.adopt(question)
            assert isinstance(question, Search)
            return _packed(self.index.search(question))
        except Exception as error:
            return _refusal(error)


def decode(asked: Decode) -> Photo:
    """A stranger's file, decoded here: whatever it does to a decoder, the server goes on."""
    from ..data import BadImage, read_image
    from ..data.images import RAW
    from .photos import photo_of

    try:
        image = read_image(asked.name, asked.pixels, asked.content)
    except BadImage as error:
        raise Refusal(413 if error.reason.startswith("too large") else 415, str(error)) from None
    named = (
        os.path.splitext(asked.name)[1].lower() in RAW
    )  # only its name says how to read it, and that is not kept
    return photo_of(image, None if named else b"")


def _packed(found: dict[str, Any]) -> bytes:
    try:
        return json.dumps(
            found, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()
    except ValueError:  # JSON has no such number
        raise Refusal(
            400, "the scores are NaN or infinite: ask with other weights, or another method"
        ) from None


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ValueError | ImportError):
        return Refusal(400, names_only(_sentence(error)))
    traceback.print_exc(file=sys.stderr)
    return Refusal(
        500, f"this could not be answered ({type(error).__name__}): the server's terminal says more"
    )


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
