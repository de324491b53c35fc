"""Build and search a local index of synthetic vectors: time, memory, latency and recall.

    python benchmarks/scale.py --images 1000000 -o ix

The vectors have clusters, as those of photographs have. Each phase runs in a process of its own,
so that its peak memory is its own. An index that exists is not filled again. Times are those of the
clock, and those of the CPU, which depend less on what else the machine does.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from cenote.data.digests import digest_of
from cenote.search.approximate import update_approximate
from cenote.search.local_store import LocalStore
from cenote.search.store import Filter, ImageEntry, IndexDescription

CHUNK, CLUSTERS, LABELS, QUERIES = 20_000, 20_000, 100, 200
T = TypeVar("T")


def vectors(images: int, dim: int, seed: int = 0) -> Iterator[Tensor]:
    """Yield chunks of vectors of unit length around random centres of unequal weight."""
    centres = torch.randn(CLUSTERS, dim, generator=torch.Generator().manual_seed(0))
    weights = 1 / torch.arange(1, CLUSTERS + 1) ** 0.5
    rng = torch.Generator().manual_seed(seed + 1)
    for start in range(0, images, CHUNK):
        count = min(CHUNK, images - start)
        places = torch.multinomial(weights, count, replacement=True, generator=rng)
        noise = torch.randn(count, dim, generator=rng)
        yield torch.nn.functional.normalize(centres[places] + 0.7 * noise, dim=1)


def fill(folder: Path, images: int, dim: int) -> None:
    """Write entries and vectors; the label of an image is one of 100, so a filter keeps 1%."""
    store = LocalStore.open(folder, IndexDescription("synthetic", "synthetic", dim, "float16"))
    row = len(store)
    with store.writer() as writer:
        for i, chunk in enumerate(vectors(images, dim)):
            if (i + 1) * CHUNK <= row:
                continue  # written by an earlier run
            numbers = range(i * CHUNK, i * CHUNK + len(chunk))
            writer.put([entry(n) for n in numbers], chunk)


def entry(number: int) -> ImageEntry:
    digest = digest_of(str(number).encode()).hex()
    label = f"c{number % LABELS}"
    return ImageEntry(f"/p/{number:09d}.jpg", digest, 1, 1, label=label, keywords="")


def known(folder: Path, images: int, dim: int) -> None:
    """Compare 2,000 paths with the index, as `cenote index` does for every 2,000 images."""
    store = LocalStore.open(folder)
    with store.writer():
        store.find_paths([f"/p/{n:09d}.jpg" for n in range(0, images, max(1, images // 2000))])
        sum(1 for _ in store.sources())


def approximate(folder: Path, images: int, dim: int) -> None:
    store = LocalStore.open(folder)
    queries = next(vectors(CHUNK, dim, seed=1))
    print(update_approximate(store, "yes", queries), flush=True)


def search(folder: Path, images: int, dim: int) -> None:
    """Print p50 and p99 in milliseconds, and recall@10, with and without filters."""
    store = LocalStore.open(folder)
    if not store.open_approximate():
        print("the approximate index is missing or not good enough")
    queries = next(vectors(CHUNK, dim, seed=2))[:QUERIES]
    half = tuple(f"c{i}" for i in range(LABELS // 2))
    for name, filter in {
        "no filter": Filter(),
        "1% of the images": Filter(classes=("c7",)),
        "50% of the images": Filter(classes=half),
    }.items():
        first, view = timed(partial(store.select, filter))
        results = [timed(partial(view.nearest, query[None], 10)) for query in queries]
        truth = view.exact(queries, 10)[1].tolist()
        found = [rows[0].tolist() for _, (_, rows) in results]
        recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, truth, strict=True)])
        clock, cpu = np.array([seconds for seconds, _ in results]).T * 1e3
        print(
            f"{name}: p50 {np.median(clock):.1f} ms ({np.median(cpu):.1f} ms of CPU), "
            f"p99 {np.percentile(clock, 99):.1f} ms ({np.percentile(cpu, 99):.1f} ms of CPU), "
            f"recall@10 {recall:.3f}, first use of the filter {first[0]:.1f} s",
            flush=True,
        )


def timed(function: Callable[[], T]) -> tuple[tuple[float, float], T]:
    """Return seconds of the clock and of the CPU, and the result."""
    start = time.perf_counter(), time.process_time()
    result = function()
    return (time.perf_counter() - start[0], time.process_time() - start[1]), result


class PeakMemory(Thread):
    """Sample the memory of this process, without the files that are mapped into it.

    Linux counts the pages of a mapped file that are in memory for the process, too, and takes them
    back when memory is short.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.end = 0, Event()

    def run(self) -> None:
        while not self.end.wait(0.05):
            status = Path("/proc/self/status").read_text()
            match = re.search(r"RssAnon:\s+(\d+) kB", status)
            self.peak = max(self.peak, int(match[1]) if match else 0)


PHASES = {"fill": fill, "approximate": approximate, "known": known, "search": search}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--phase", choices=PHASES)
    options = parser.parse_args()
    if options.phase is None:
        for phase in PHASES:
            subprocess.run([sys.executable, *sys.argv, "--phase", phase], check=True)
        return
    memory = PeakMemory()
    memory.start()
    (clock, cpu), _ = timed(lambda: PHASES[options.phase](options.out, options.images, options.dim))
    memory.end.set()
    report = {"phase": options.phase, "images": options.images}
    report |= {"seconds": round(clock), "seconds of CPU": round(cpu)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report |= {"peak GB": round(memory.peak / 2**20, 2), "with files": round(peak / 2**20, 2)}
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
