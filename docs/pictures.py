"""Draws the picture of each pool's page: where it looks in three pictures, after a short training on frozen lite0.

    python docs/pictures.py FOLDER

draws a small world in FOLDER, plays a tournament of all pools on it (one seed, one rate, six epochs; killed, it goes
on) and writes docs/pools/*.jpg.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cenote.allocator import keep_memory
from cenote.data import open_dataset, write_atomically
from cenote.data.synthetic import World, write_world
from cenote.report.maps import overlay
from cenote.train.config import PROBE
from cenote.train.tournament.run import TournamentConfig, run_tournament

POOLS = Path(__file__).parent / "pools"
WORLD: dict[str, Any] = {
    "images": 480,
    "size": 128,
    "classes": 8,
    "distractors": 0,
    "counts": (1, 0, 0, 0),
}
SHOWN = (0, 2, 4)  # of the photographs that a tournament keeps
SIDE, GAP, PAPER = 112, 6, (255, 255, 255)
QUALITY = 82


def strip(photos: list[Image.Image], maps: np.ndarray[Any, Any]) -> Image.Image:
    """Photograph, map, photograph, map ... in a row."""
    tiles = [
        tile
        for photo, a in zip(photos, maps, strict=True)
        for tile in (photo, overlay(photo, positive(a)))
    ]
    row = Image.new("RGB", (len(tiles) * (SIDE + GAP) - GAP, SIDE), PAPER)
    for place, tile in enumerate(tiles):
        row.paste(tile, (place * (SIDE + GAP), 0))
    return row


def positive(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A class activation map has a zero, below which it speaks against the class; without one, its lowest is dark."""
    return np.clip(a, 0, None) if a.min() < 0 < a.max() else a - a.min()


def main(folder: Path) -> None:
    keep_memory()
    world = folder / "world"
    write_world(World.preset("tiny", domains=("photo",), **WORLD), world)
    config = TournamentConfig(
        seeds=1, rates=(3e-3,), boxes=12, settings=replace(PROBE, epochs=6, batch=64, warmup=1.0)
    )
    played = folder / "tournament"
    outcome = run_tournament(open_dataset(world), played, config, resume=played.exists())
    photos = [outcome.photos.image(i).resize((SIDE, SIDE), Image.Resampling.LANCZOS) for i in SHOWN]
    for name, (kind, maps) in outcome.maps.items():
        with write_atomically(POOLS / f"{name}.jpg") as temporary:
            strip(photos, maps[list(SHOWN)]).save(temporary, "JPEG", quality=QUALITY, optimize=True)
        size = (POOLS / f"{name}.jpg").stat().st_size
        print(f"{name}.jpg: {kind}, {size / 1000:.1f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
