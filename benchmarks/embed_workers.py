"""Embed the same shards by two local processes and by Ray on two CPUs, in turn.

    python benchmarks/embed_workers.py --rounds 3

Counts the images between the first and the last shard, so that starting Ray and loading the model
are left out, and the CPU time of all processes, which depends less on what else the machine does.
"""

import argparse
import io
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import ray
from PIL import Image

from cenote.search.shard_workers import Results, run_processes, run_ray
from cenote.search.vector_shards import ShardEmbedder, plan_shards


def write_shards(folder: Path, shards: int, images: int, size: int) -> None:
    rng = np.random.default_rng(0)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:03d}.tar", "w") as tar:
            for i in range(images):
                file = io.BytesIO()
                pixels = rng.integers(0, 255, (8, 8, 3), np.uint8)
                Image.fromarray(pixels).resize((size, size)).save(file, "JPEG")
                member = tarfile.TarInfo(f"{i}.jpg")
                member.size = file.tell()
                tar.addfile(member, io.BytesIO(file.getvalue()))


def measure(results: Results) -> tuple[float, float]:
    """Return images per second of the clock and per second of CPU, from the first shard on."""
    next(results)
    start, cpu, images = time.perf_counter(), cpu_seconds(), 0
    for _, result in results:
        images += result.images
        clock, used = time.perf_counter() - start, cpu_seconds() - cpu
    return images / clock, images / used


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those below it."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            pass
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as name:
        write_shards(Path(name), options.shards, options.images, options.size)
        tasks = plan_shards([f"wds:{name}"])
        for round in range(options.rounds):
            make_embedder = partial(ShardEmbedder, Path(name) / f"out{round}", None, "none")
            by_processes = measure(run_processes(tasks, make_embedder, 2))
            by_ray = measure(run_ray(tasks, make_embedder, "local"))
            ratios = [b / a for a, b in zip(by_processes, by_ray, strict=True)]
            print(
                f"processes {by_processes[0]:.1f} images/s ({by_processes[1]:.1f} per second of CPU), "
                f"Ray {by_ray[0]:.1f} ({by_ray[1]:.1f}): {ratios[0]:.2f} ({ratios[1]:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
