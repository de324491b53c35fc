"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated, Literal

from tyro.conf import arg

BoxFormats = tuple[Literal["coco", "voc", "csv", "yolo", "label-studio"], ...]
Device = Annotated[
    str,
    arg(
        metavar="NAME",
        help="device that runs the model: cpu, cuda, cuda:1, mps, xpu.",
        help_behavior_hint="(default: an accelerator if there is one)",
    ),
]
Workers = Annotated[
    int | Literal["auto"],
    arg(
        metavar="N|auto",
        help="processes that read images; auto: as many as the device needs, none for the CPU.",
    ),
]
