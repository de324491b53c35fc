"""What an image costs each contender of a tournament, beside the backbone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..data.files import write_atomically
from .heats import Arena
from .verdict import Standing

Clock = Callable[
    [dict[str, Callable[[], object]], int], dict[str, float]
]  # calls, rounds -> best seconds of each


@torch.inference_mode()
def measured(
    arena: Arena, standings: Sequence[Standing], folder: Path, clock: Clock
) -> dict[str, Any]:
    """Milliseconds an image of the backbone, and of each pool and head, all in turn. Measured once, then kept."""
    path = folder / "speed.json"
    names = [s.name for s in standings if s.accuracy]
    if path.is_file() and set((kept := json.loads(path.read_text()))["tops"]) == set(names):
        return dict(kept)
    train, frozen = arena.features.train, arena.frozen
    several = train.features(range(min(16, len(train)))).to(arena.device)
    side, count = frozen.backbone.preprocessing.size, len(several.tokens)
    images = torch.zeros(1, 3, side, side, device=arena.device)
    calls: dict[str, Callable[[], object]] = {"": lambda: frozen.backbone(images)}
    for s in standings:
        if s.accuracy:
            top = s.entry.top(frozen, arena.classes).to(arena.device).eval()
            calls[s.name] = lambda top=top: top(several)  # type: ignore[misc]
    seconds = clock(calls, 5)
    found = {
        "backbone": 1000 * seconds.pop(""),
        "tops": {name: 1000 * value / count for name, value in seconds.items()},
    }
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(found, indent=2) + "\n")
    return found


def add_speed(report: dict[str, Any], speed: Mapping[str, Any]) -> None:
    for row in report["standings"]:
        if row["name"] in speed["tops"]:
            row["ms"], row["backbone_ms"] = speed["tops"][row["name"]], speed["backbone"]
