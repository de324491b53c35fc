"""Schemas of HTTP responses that several views share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

EntryId = int | str  # row number in the index; a string where JavaScript's numbers are too small


class Schema(BaseModel):
    model_config = ConfigDict(extra="forbid")

    def to_json(self) -> bytes:
        return self.model_dump_json().encode()


class ErrorResponse(Schema):
    detail: str = Field(description="one sentence: what was wrong, and what to do")


class ModelInfo(Schema):
    id: str
    name: str
    pool: str
    backbone: str
    classes: int
    maps: list[str] = Field(description="kinds of maps that it has, the best first")
    accuracy: float | None = Field(description="percent of test images, or of validation images")
    recommended: bool


class MethodInfo(Schema):
    name: str
    about: str
    image: bool
    text: bool


class IndexInfo(Schema):
    images: int
    model: str
    methods: list[MethodInfo]
    classes: list[str]
    domains: list[str]
    entries: list[EntryId] = Field(description="some images to start with")
    suggestions: list[str]


class PhotoInfo(Schema):
    photo: str
    width: int
    height: int


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorResponse},
    "5XX": {"model": ErrorResponse},
}
JPEG: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "a JPEG",
        "content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}},
    }
}
