"""Images per second of frozen backbones: PyTorch and the engine of `cenote.predict.openvino_engine`.

    python benchmarks/throughput.py [lite0 resnet50 ...] [--rounds 5] [--busy 2] [--threads 2]

The same images of 224 pixels in turn in one process, best of the rounds: PyTorch with freed memory
kept, as the commands do; PyTorch with freed memory given back, as in any other Python process;
PyTorch in channels_last order; and the engine, with freed memory kept and given back. `--busy`
starts that many processes that multiply matrices. lite0 has its trained weights, the others random
ones. Takes two minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable

import torch
from torch import Tensor

from cenote.allocator import keep_memory
from cenote.backbones import Backbone, Features, create_backbone
from cenote.predict.openvino_engine import run_frozen
from cenote.predict.timing import busy_neighbours
from cenote.report.table import align_columns

NETWORKS = ("lite0", "resnet50", "convnext_tiny", "vit_tiny_patch16_224")
# Times as fast as PyTorch, with freed memory kept, on a quiet machine.
BARS = {"lite0": 1.8, "resnet50": 1.25, "convnext_tiny": 1.1, "vit_tiny_patch16_224": 1.08}
BAR_FREED, BAR_BUSY = 4.0, 3.0  # of lite0: freed memory given back, and beside two busy processes
KEPT, FREED, LAST = "PyTorch", "memory given back", "channels_last"
ENGINE, ENGINE_FREED = "engine", "engine, memory given back"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of glibc's mallopt


def give_memory_back() -> None:
    """Undo `keep_memory`: the thresholds that glibc itself arrives at."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 65536)
    libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
    libc.mallopt(M_TRIM_THRESHOLD, 64 << 20)
    libc.malloc_trim(0)


@torch.inference_mode()
def measure(backbone: Backbone, images: Tensor, rounds: int) -> dict[str, float]:
    """Return the best images per second of each way, and check that the results are equal."""
    calls: dict[str, Callable[[], Features]] = {
        KEPT: lambda: backbone(images),
        FREED: lambda: backbone(images),
        LAST: lambda: backbone(images.contiguous(memory_format=torch.channels_last)),
        ENGINE: lambda: run_frozen(backbone, images),
        ENGINE_FREED: lambda: run_frozen(backbone, images),
    }
    for _ in range(4):  # until there are enough images to convert the network
        features = calls[ENGINE]()
    expected = calls[KEPT]()
    torch.testing.assert_close(features.tokens, expected.tokens, rtol=1e-3, atol=1e-3)
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            if name in (FREED, ENGINE_FREED):
                give_memory_back()
            else:
                keep_memory()
            if name in (KEPT, LAST):
                call()  # takes the memory that it then keeps
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: len(images) / seconds for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows, misses = list[list[str]](), list[str]()
    with busy_neighbours(arguments.busy):
        for name in arguments.networks:
            torch.manual_seed(0)
            backbone = create_backbone(name, pretrained=name == "lite0").eval()
            images = torch.randn(32 if name == "lite0" else 16, 3, 224, 224)
            speeds = measure(backbone, images, arguments.rounds)
            ratio, freed = speeds[ENGINE] / speeds[KEPT], speeds[ENGINE_FREED] / speeds[FREED]
            cells = [f"{value:.2f}" for value in (*speeds.values(), ratio, freed)]
            rows.append([name, *cells])
            bar = BARS.get(name, 1.0)
            if name == "lite0":
                bar = BAR_BUSY if arguments.busy else bar
                if freed < BAR_FREED:
                    misses.append(f"{name}: {freed:.2f} times {FREED}, below {BAR_FREED}")
            if ratio < bar:
                misses.append(f"{name}: {ratio:.2f} times {KEPT}, below {bar}")
    header = ["images/s", *speeds, "times PyTorch", "times memory given back"]
    print(align_columns([header, *rows]))
    print("\n".join(misses) or "all ratios reach their bars")


if __name__ == "__main__":
    main()
