"""How fast synthetic images are drawn: `python benchmarks/world.py`.

Images per second of CPU time in one process, with mask and boxes, without and with encoding as PNG;
best of the rounds.
"""

from __future__ import annotations

import io
import time

import tyro
from PIL import Image

from cenote.data.synthetic import PRESETS, World


def run(images: int = 100, rounds: int = 3) -> None:
    """Print images per second for each preset.

    Args:
        images: images in a round.
        rounds: number of rounds, of which the best counts.
    """
    print(f"{'preset':<12}{'pixels':>8}{'images/s':>10}{'with PNG':>10}")
    for name in PRESETS:
        world = World.preset(name, images=max(images, 1000))
        draw = max(images / _seconds(world, images, False) for _ in range(rounds))
        write = max(images / _seconds(world, images, True) for _ in range(rounds))
        print(f"{name:<12}{world.settings.size:>8}{draw:>10.0f}{write:>10.0f}")


def _seconds(world: World, images: int, write: bool) -> float:
    started = time.process_time()
    for i in range(images):
        drawn = world.draw(i)
        if write:
            Image.fromarray(drawn.pixels).save(io.BytesIO(), "PNG", compress_level=1)
            Image.fromarray(drawn.mask).save(io.BytesIO(), "PNG", compress_level=1)
    return time.process_time() - started


if __name__ == "__main__":
    tyro.cli(run)
