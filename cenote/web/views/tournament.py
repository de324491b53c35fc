"""The standings of a tournament, live while it runs: GET /api/tournament."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.exceptions import HTTPException

from ...train.tournament.progress import CandidateProgress, read_progress
from ..schemas import Schema
from ..sources import strip_directories
from ..state import ServerState, State

router = APIRouter()


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


@router.get("/api/tournament")
async def get_tournament(state: State) -> TournamentResponse:
    """Return the standings of the tournament."""
    if not state.sources.tournaments:
        raise HTTPException(404, "no tournament is served: use `cenote serve` with its folder")
    return await read_tournament(state)


async def read_tournament(state: ServerState) -> TournamentResponse:
    """Read the folder, once for all requests of a second; raise HTTPException if it is gone."""
    folder = state.sources.tournaments[0]
    async with state.standings_lock:
        if folder not in state.standings:
            try:
                progress = await asyncio.to_thread(read_progress, folder, state.pool_groups)
            except ValueError as error:
                raise HTTPException(404, strip_directories(str(error))) from None
            state.standings[folder] = TournamentResponse(**vars(progress), page=state.has_report())
        response: TournamentResponse = state.standings[folder]
        return response
