"""What the API answers, as its OpenAPI document describes it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Entry = int | str  # a number; as text where JavaScript's numbers end


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Failure(Shape):
    detail: str = Field(description="one sentence: what was wrong, and what to do")


class Model(Shape):
    id: str
    name: str
    pool: str
    backbone: str
    classes: int
    maps: list[str] = Field(description="the maps it has, the most telling first")
    accuracy: float | None = Field(description="percent of test images, or of validation images")
    recommended: bool


class Example(Shape):
    photo: str
    name: str
    width: int
    height: int


class Method(Shape):
    name: str
    about: str
    image: bool
    text: bool


class Index(Shape):
    images: int
    model: str
    methods: list[Method]
    classes: list[str]
    domains: list[str]
    entries: list[Entry] = Field(description="some images to begin with")
    suggestions: list[str]


class Playing(Shape):
    name: str
    running: bool


class Limits(Shape):
    bytes: int
    pixels: int
    queue: int


class About(Shape):
    version: str
    title: str
    models: list[Model]
    examples: list[Example]
    index: Index | None
    tournament: Playing | None
    report: bool = Field(description="whether /report is there")
    limits: Limits


class Uploaded(Shape):
    photo: str
    width: int
    height: int


class Class(Shape):
    name: str
    probability: float


class Map(Shape):
    kind: str
    rows: int
    columns: int
    weights: list[list[float]] = Field(description="the model's own grid; they sum to one")


class Scores(Shape):
    side: int
    values: list[int] = Field(description="0 to 255, row by row: what is thresholded")


class Threshold(Shape):
    value: float
    source: str
    default: bool = Field(description="neither given nor calibrated for this model")


class Box(Shape):
    x0: int
    y0: int
    x1: int
    y1: int
    score: float


class Look(Shape):
    photo: str
    model: str
    width: int
    height: int
    seconds: float
    classes: list[Class]
    map: Map
    scores: Scores
    threshold: Threshold
    boxes: list[Box] = Field(description="in pixels of width x height")


class Result(Shape):
    entry: Entry
    score: float
    name: str
    label: str | None
    domain: str | None
    caption: str | None
    width: int
    height: int
    missing: bool
    duplicates: int


class Search(Shape):
    method: str
    relevant: int
    searched: int
    exact: bool
    seconds: float
    results: list[Result]
    why: dict[str, Any]


class Contender(Shape):
    name: str
    group: str
    accuracy: list[float] = Field(description="percent, of every seed that is done")
    val: list[float] = Field(
        description="percent of validation images, of every seed; the last one may still train"
    )
    epoch: int = Field(description="of the training that is under way")


class Tournament(Shape):
    name: str
    running: bool
    stage: str
    done: int = Field(description="epochs")
    total: int
    report: dict[str, Any] | None
    page: bool = Field(description="whether /report is there: it is written after the standings")
    contenders: list[Contender]


class Health(Shape):
    status: Literal["ready", "starting", "down"]
    queue: int
    memory_mb: float
