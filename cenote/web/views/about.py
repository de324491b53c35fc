"""What is served, and whether the server is ready: GET /api/about and /health."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from typing import Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.exceptions import HTTPException

from ... import __version__
from ..schemas import IndexInfo, ModelInfo, PhotoInfo, Schema
from ..service import Contents, Service, WorkerRequest
from ..state import Limits, ServerState, State
from .tournament import TournamentInfo, TournamentResponse, read_tournament

router = APIRouter()


class ExampleInfo(PhotoInfo):
    name: str


class AboutResponse(Schema):
    version: str
    title: str
    models: list[ModelInfo]
    examples: list[ExampleInfo]
    index: IndexInfo | None
    tournament: TournamentInfo | None
    report: bool = Field(description="whether /report exists")
    limits: Limits


class HealthResponse(Schema):
    status: Literal["ready", "starting", "down"]
    queue: int = Field(description="requests that wait")
    memory_mb: float


class ContentsRequest(WorkerRequest):
    def run(self, service: Service, content: bytes | None) -> Contents:
        return service.contents()


@router.get("/health")
async def get_health(state: State) -> HealthResponse:
    """Return whether the worker is ready, and the memory of server and worker."""
    pids = [os.getpid(), *filter(None, [state.jobs.worker.pid])]
    queue = len(state.jobs.waiting)
    return HealthResponse(status=state.jobs.status, queue=queue, memory_mb=memory_mb(pids))


@router.get("/api/about")
async def get_about(state: State) -> AboutResponse:
    """Return what is served: models, examples, the index, a tournament, and limits."""
    tournament = None
    if state.sources.tournaments:
        with suppress(HTTPException):  # its folder may have been removed
            tournament = await read_tournament(state)
            await _update_contents(state, tournament)
    examples = [
        ExampleInfo(**photo.info().model_dump(), name=photo.name)
        for photo in state.photos.examples.values()
    ]
    return AboutResponse(
        version=__version__,
        title=state.sources.title,
        models=state.contents.models,
        examples=examples,
        index=state.contents.index,
        tournament=tournament,
        report=state.has_report(),
        limits=state.limits,
    )


async def _update_contents(state: ServerState, tournament: TournamentResponse) -> None:
    """Add the models that a tournament has trained since, until it is finished."""
    if state.complete:
        return
    contents: Contents = await state.jobs.submit(ContentsRequest())
    if contents.models != state.contents.models:
        state.jobs.cache.clear()  # answers of models that were replaced
    state.contents = contents
    state.complete = tournament.report is not None


def memory_mb(pids: list[int]) -> float:
    """Return the memory of these processes in megabytes."""
    pages = sum(map(_resident_pages, pids))
    if pages:
        return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
    # Without /proc: the peak of this process, in bytes on macOS, else in kilobytes.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def _resident_pages(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
