"""Draws the picture of each pool's page: where it looks in three pictures, after training on frozen lite0.

    python docs/pictures.py FOLDER

draws a small world in FOLDER, runs a tournament of all pools on it (one seed; a killed one is resumed) and writes
docs/pools/*.jpg. The settings are the same for all pools: ten epochs, and for the pool's matrices the learning rate of
`cenote fit --freeze`, since attention collapses to a point where they learn as fast as the head. The map is the pool's
own, at 448 pixels, or the class activation map at 224 where it has none.
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
SHOWN = (0, 2, 4)  # of a tournament's photographs, which are of different classes
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
        pools=("all",),
        seeds=1,
        rates=(3e-3,),
        pool_lr_factors=(PROBE.pool_lr_factor,),
        boxes=0,
        settings=replace(PROBE, epochs=10, batch=64),
    )
    played = folder / "tournament"
    outcome = run_tournament(open_dataset(world), played, config, resume=played.exists())
    photos = [outcome.photos.image(i).resize((SIDE, SIDE), Image.Resampling.LANCZOS) for i in SHOWN]
    for candidate, (kind, maps) in outcome.maps.items():
        name = candidate.partition(" ")[0]  # without "(gamma 2)"
        with write_atomically(POOLS / f"{name}.jpg") as temporary:
            strip(photos, maps[list(SHOWN)]).save(temporary, "JPEG", quality=QUALITY, optimize=True)
        size = (POOLS / f"{name}.jpg").stat().st_size
        print(f"{name}.jpg: {kind}, {size / 1000:.1f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
