"""What is served, and whether the server is ready: GET /api/about, /api/tournament and /health."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from ..train.tournament.progress import CandidateProgress, read_progress
from ..version import __version__
from .schemas import Contents, ContentsRequest, PhotoInfo, Schema
from .sources import strip_directories
from .state import Limits, ServerState, State

router = APIRouter()


class ExampleInfo(PhotoInfo):
    name: str


class TournamentInfo(Schema):
    name: str
    running: bool


class TournamentResponse(TournamentInfo):
    stage: str
    done: int = Field(description="epochs")
    total: int
    report: dict[str, Any] | None
    page: bool = Field(description="whether /report exists: it is written after the standings")
    contenders: list[CandidateProgress]


class AboutResponse(Contents):
    version: str
    title: str
    examples: list[ExampleInfo]
    tournament: TournamentInfo | None
    report: bool = Field(description="whether /report exists")
    limits: Limits


class HealthResponse(Schema):
    status: Literal["ready", "starting", "down"]
    queue: int = Field(description="requests that wait")


@router.get("/health")
async def get_health(state: State, response: Response) -> HealthResponse:
    """Return whether a worker is ready; the status is 503 if none is, nor starts."""
    if state.jobs.status == "down":
        response.status_code = 503
    return HealthResponse(status=state.jobs.status, queue=state.jobs.waiting.total())


@router.get("/api/about")
async def get_about(state: State) -> AboutResponse:
    """Return what is served: models, examples, the index, a tournament, and limits."""
    tournament = None
    if state.sources.tournaments:
        with suppress(HTTPException):  # its folder may have been removed
            tournament = await get_tournament(state)
            await _update_contents(state, tournament)
    return AboutResponse(
        **dict(state.contents),
        version=__version__,
        title=state.sources.title,
        examples=[
            ExampleInfo(**dict(photo.info()), name=photo.name)
            for photo in state.photos.examples.values()
        ],
        tournament=tournament,
        report=state.has_report(),
        limits=state.limits,
    )


@router.get("/api/tournament")
async def get_tournament(state: State) -> TournamentResponse:
    """Return the standings of the tournament, live while it runs."""
    if not state.sources.tournaments:
        raise HTTPException(404, "no tournament is served: use `cenote serve` with its folder")
    folder = state.sources.tournaments[0]
    try:
        progress = await asyncio.to_thread(read_progress, folder)
    except ValueError as error:
        raise HTTPException(404, strip_directories(str(error))) from None
    return TournamentResponse(**vars(progress), page=state.has_report())


async def _update_contents(state: ServerState, tournament: TournamentResponse) -> None:
    """Add the models that a tournament has trained since, until it is finished."""
    if state.complete:
        return
    contents: Contents = await state.jobs.submit(ContentsRequest())
    if contents.models != state.contents.models:
        state.jobs.cache.clear()  # answers of models that were replaced
    state.contents = contents
    state.complete = tournament.report is not None
