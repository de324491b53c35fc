"""The data loader compared with torchvision's.

    python benchmarks/data.py [--images 800] [--workers 2] [--rounds 5] [--json]

speed    images/s of `cenote.data.loading.load` and of `ImageFolder` + `DataLoader` with the same
         transforms and workers, in turn in one process; best round of each.
memory   what a forked worker holds for itself (USS) and its share of everything (PSS) after it has
         read a million samples, compared with ImageFolder's list of tuples. Linux only.
opening  seconds to open a list of a million lines and a tree of a hundred thousand files.

The files are written to a temporary folder. Takes about three minutes on two cores.
"""

from __future__ import annotations

import json as to_json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from PIL import Image

CLASSES = 1000


def run(
    images: int = 800,
    workers: int = 2,
    batch: int = 64,
    rounds: int = 5,
    listed: int = 1_000_000,
    tree: int = 100_000,
    json: bool = False,
) -> None:
    """Measure speed, memory and opening time, compared with torchvision.

    Args:
        images: JPEGs of 500 x 375 pixels to load.
        workers: loading processes of each loader.
        batch: images in a batch.
        rounds: timed epochs of each loader.
        listed: lines of the list.
        tree: files of the tree.
        json: print JSON.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        results = {
            "speed": list(speed(root / "photos", images, workers, batch, rounds)),
            "opening": opening(root, listed, tree),
            "memory": memory(root / "list.csv", listed),
        }
    if json:
        print(to_json.dumps(results, indent=2))
    else:
        report(results)


def speed(
    root: Path, images: int, workers: int, batch: int, rounds: int
) -> Iterator[dict[str, Any]]:
    import torch
    from torchvision.datasets import ImageFolder

    from cenote.data import read_folders
    from cenote.data.loading import load
    from cenote.data.transforms import train_transform, wsol_eval_transform

    make_photos(root, images)
    for name, transform in (
        ("train, 224", train_transform()),
        ("whole, 224", wsol_eval_transform()),
    ):
        theirs = torch.utils.data.DataLoader(
            ImageFolder(str(root), transform),
            batch,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        ours = load(read_folders(root), transform, batch, workers, shuffle=True)
        loaders: dict[str, Any] = {"ours": ours, "theirs": theirs}
        for loader in loaders.values():
            epoch(loader)  # start workers, fill the page cache
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        for turn in range(rounds):
            for library in sorted(loaders, reverse=bool(turn % 2)):
                times[library].append(timed(lambda loader=loaders[library]: epoch(loader)))
        rates = {library: images / min(each) for library, each in times.items()}
        yield {
            "transform": name,
            **rates,
            "ratio": rates["ours"] / rates["theirs"],
            "workers": workers,
        }


def opening(root: Path, listed: int, tree: int) -> dict[str, Any]:
    from torchvision.datasets import ImageFolder

    from cenote.data import read_folders, read_list

    write_list(root / "list.csv", listed)
    make_tree(root / "tree", tree)
    folders = {
        "ours": lambda: read_folders(root / "tree"),
        "theirs": lambda: ImageFolder(str(root / "tree")),
    }
    for open_it in folders.values():
        open_it()  # fill the page cache
    return {
        "lines": listed,
        "list": min(timed(lambda: read_list(root / "list.csv")) for _ in range(2)),
        "files": tree,
        "tree": {
            library: min(timed(open_it) for _ in range(2)) for library, open_it in folders.items()
        },
    }


def memory(path: Path, listed: int) -> dict[str, Any]:
    """Return megabytes of one of two forked workers, each case in a new process."""
    if not Path("/proc/self/smaps_rollup").exists():
        return {}
    fresh = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {"samples": listed}
    for library in ("nothing", "ours", "theirs"):
        queue = fresh.Queue()
        parent = fresh.Process(target=hold, args=(library, path, queue))
        parent.start()
        results[library] = queue.get()
        parent.join()
    return results


def hold(library: str, path: Path, queue: Any) -> None:
    """Open the list, and let two workers read all samples in different orders."""
    from cenote.data import read_list

    holders: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "ours": lambda: read_list(path),
        "theirs": lambda: as_image_folder(path),
    }
    samples = holders[library]()
    fork = multiprocessing.get_context("fork")
    reports, done = fork.Queue(), fork.Event()
    workers = [
        fork.Process(target=read_samples, args=(samples, seed, reports, done)) for seed in range(2)
    ]
    for worker in workers:
        worker.start()
    sizes = [reports.get() for _ in workers]  # each measures while the other still runs
    done.set()
    for worker in workers:
        worker.join()
    queue.put({key: round(sum(each[key] for each in sizes) / len(sizes), 1) for key in sizes[0]})


def read_samples(samples: Any, seed: int, reports: Any, done: Any) -> None:
    barrier = 0
    if samples is not None:
        is_ours = not isinstance(samples, list)
        for i in np.random.default_rng(seed).permutation(len(samples)):
            path, label = (
                (samples.path(int(i)), samples.table.label.codes[i]) if is_ours else samples[i]
            )
            barrier += len(str(path)) + int(label)
    time.sleep(2)  # until the other worker is done, too
    reports.put(resident())
    done.wait()


def as_image_folder(path: Path) -> list[tuple[str, int]]:
    with open(path) as file:
        next(file)
        rows = (line.rstrip("\n").split(",") for line in file)
        return [(f"{path.parent}/{image}", int(label[1:])) for image, label in rows]


def resident() -> dict[str, float]:
    """Return megabytes of this process alone (USS), and with its share of shared memory (PSS)."""
    sizes = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        key, size, *_ = line.split()
        sizes[key.rstrip(":")] = int(size) / 1000
    return {"uss": sizes["Private_Clean"] + sizes["Private_Dirty"], "pss": sizes["Pss"]}


def make_photos(root: Path, images: int) -> None:
    """Write JPEGs with the dimensions and file size of photographs."""
    rng = np.random.default_rng(0)
    for i in range(images):
        small = Image.fromarray(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)).resize(
            (500, 375), 3
        )
        grain = rng.normal(0, 8, (375, 500, 1))
        path = root / f"class{i % 10}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(np.asarray(small) + grain, 0, 255).astype(np.uint8)).save(
            path, quality=90
        )


def make_tree(root: Path, files: int) -> None:
    for i in range(files):
        if i < CLASSES:
            (root / f"n{i:08d}").mkdir(parents=True)
        os.close(os.open(root / f"n{i % CLASSES:08d}" / f"n{i % CLASSES:08d}_{i}.JPEG", os.O_CREAT))


def write_list(path: Path, lines: int) -> None:
    order = list(range(lines))
    random.Random(0).shuffle(order)
    with open(path, "w") as file:
        file.write("file,label\n")
        file.writelines(
            f"train/n{i % CLASSES:08d}/n{i % CLASSES:08d}_{i}.JPEG,c{i % CLASSES}\n" for i in order
        )


def epoch(loader: Any) -> None:
    for _ in loader:
        pass


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(results: dict[str, Any]) -> None:
    print("images/s              ours   ImageFolder   ratio")
    for row in results["speed"]:
        print(f"{row['transform']:18}{row['ours']:8.0f}{row['theirs']:14.0f}{row['ratio']:8.2f}")
    opened = results["opening"]
    print(f"\nopening {opened['lines']:,} lines: {opened['list']:.1f} s")
    print(f"opening {opened['files']:,} files: {opened['tree']['ours']:.2f} s, ", end="")
    print(f"ImageFolder {opened['tree']['theirs']:.2f} s")
    if not results["memory"]:
        print("memory: this system has no /proc/PID/smaps_rollup", file=sys.stderr)
        return
    print(f"\nMB a worker after {results['memory']['samples']:,} samples     USS      PSS")
    for library, name in (
        ("nothing", "no samples"),
        ("ours", "ours"),
        ("theirs", "a list of tuples"),
    ):
        print(
            f"{name:36}{results['memory'][library]['uss']:8.1f}{results['memory'][library]['pss']:9.1f}"
        )


if __name__ == "__main__":
    tyro.cli(run)
