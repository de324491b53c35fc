"""Attention map, classes and boxes of a photograph: GET /api/look."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from .photos import PhotoDigest
from .schemas import Schema, WorkerRequest, WorkerService
from .state import State

MapKind = Literal["auto", "object", "pool", "cls", "rollout", "cam", "gradcam"]

router = APIRouter()


class ClassProbability(Schema):
    name: str
    probability: float


class AttentionMap(Schema):
    kind: str
    description: str = Field(description="of an object map: what it is based on")
    rows: int
    columns: int
    weights: list[list[float]] = Field(description="on the model's grid; they sum to 1")


class ScoreMap(Schema):
    side: int
    values: list[int] = Field(description="0 to 255, row by row: what is thresholded")


class MapThreshold(Schema):
    value: float
    source: str
    default: bool = Field(description="neither requested nor calibrated for this model")


class PixelBox(Schema):
    x0: int
    y0: int
    x1: int
    y1: int
    score: float


class LookResponse(Schema):
    photo: str
    model: str
    width: int
    height: int
    classes: list[ClassProbability]
    unlike_training: bool | None = Field(
        description="whether the photograph is unlike the training images; null: unknown"
    )
    map: AttentionMap
    scores: ScoreMap
    threshold: MapThreshold
    boxes: list[PixelBox] = Field(description="in pixels of width x height")
    seconds: float


class LookRequest(WorkerRequest):
    photo: PhotoDigest
    model: str = Field(min_length=1, max_length=500)
    map: MapKind = Field("auto", description="kind of map")
    threshold: float | None = Field(
        None, ge=0, lt=1, description="of the map; by default the model's own"
    )

    @property
    def photo_digest(self) -> str:
        return self.photo

    def run(self, service: WorkerService, content: bytes) -> Any:
        return service.models.look(self, content).model_dump_json().encode()


@router.get("/api/look", response_model=LookResponse)
async def look(request: Request, state: State, query: Annotated[LookRequest, Query()]) -> Response:
    """Return the classes, the attention map and the boxes of a photograph."""
    answer = await state.answer(request, query, state.photos[query.photo].content)
    return Response(answer, media_type="application/json")
