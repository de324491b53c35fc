"""The index with 200,000 vectors of 512 dimensions.

    python benchmarks/search.py [--rows 200000] [--rounds 7] [--only exact weicom ...]

exact        top 10 of one query from the index on disk, compared with `X @ q` and topk on a matrix
             in memory; at most 1.5 times as long.
weicom       statistics in closed form and 500 candidates of one search, compared with a full scan
             of both modalities; must be as fast and return the same top 10. `cenote search` uses it
             for Milvus, faiss and folders whose similarities exceed its memory budget.
approximate  recall@10 and time compared with exact search of the same index, on clusters; recall at
             least 0.95, 10 times as fast.
text         `ask` with a text in an index of 100,000 images with folders, names and captions, with and
             without the stored texts; the words occur in 100, 10,000 and all images.
memory       memory of exact search beside the matrix, compared with its budget. Linux only.
reindex      `cenote index` on 10,000 unchanged images; must take seconds.
shell        `cenote search ix --text dog` with text-space: a process that does all by itself, the
             first that starts the resident process, and the next, under one second. Linux only.

All run in turn in one process, best round of each. Takes four minutes on two cores, most of it to
build the indexes; `--rows 20000` takes seconds. Needs faiss-cpu.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cenote.search.approximate import build_approximate
from cenote.search.composition import ComposedQuery
from cenote.search.local_store import LocalStore
from cenote.search.methods import compose
from cenote.search.query import SearchRequest, ask
from cenote.search.store import ImageEntry, IndexDescription
from cenote.search.weicom import weicom_scores

SECTIONS = ("exact", "weicom", "approximate", "text", "memory", "reindex", "shell")
TEXT_ROWS = 100_000
STATUS = Path("/proc/self/status")


def clusters(rows: int, dim: int, centres: int, seed: int) -> Tensor:
    """Return normalized vectors around common centres."""
    around = torch.randn(centres, dim, generator=torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(seed)
    x = around[torch.randint(centres, (rows,), generator=rng)]
    x += 0.7 * torch.randn(rows, dim, generator=rng)
    return torch.nn.functional.normalize(x, dim=1)


def index_of(folder: Path, x: Tensor) -> LocalStore:
    index = LocalStore.open(folder, IndexDescription("none", "none", x.shape[1]))
    with index.writer() as writer:
        for start in range(0, len(x), 20_000):
            part = x[start : start + 20_000]
            writer.put(
                [ImageEntry(f"/{start + i}.jpg", f"{start + i:032x}") for i in range(len(part))],
                part,
            )
    return index


def time_in_turn(candidates: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the seconds of the best round of each."""
    best = dict.fromkeys(candidates, float("inf"))
    for turn in range(rounds + 1):  # the first one warms up
        for name in sorted(candidates, reverse=bool(turn % 2)):
            start = time.perf_counter()
            candidates[name]()
            seconds = time.perf_counter() - start
            best[name] = min(best[name], seconds) if turn else best[name]
    return best


def exact(index: LocalStore, x: Tensor, queries: Tensor, rounds: int) -> None:
    q = queries[0]
    best = time_in_turn(
        {"bare": lambda: (x @ q).topk(10), "ours": lambda: index.nearest(q[None], 10)}, rounds
    )
    same = index.nearest(q[None], 10)[1][0].tolist() == (x @ q).topk(10).indices.tolist()
    ratio = best["ours"] / best["bare"]
    print(f"exact: {1e3 * best['ours']:.1f} ms, bare X @ q + topk {1e3 * best['bare']:.1f} ms: {ratio:.2f}x (bar 1.5), "
          f"{'the same' if same else 'NOT the same'} top 10")  # fmt: skip


def closed_form(
    index: LocalStore, image: Tensor, text: Tensor, weight: float
) -> tuple[Tensor, Tensor]:
    plan = compose("weicom", ComposedQuery(image=image, text=text), index, Mean(), weight=weight)  # type: ignore[arg-type]
    rows = index.nearest(plan.direction[None], 500)[1][0]
    scores = plan.scores(index.vectors(rows))
    top = scores.topk(10)
    return top.values, rows[top.indices]


def full_scan(x: Tensor, image: Tensor, text: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    top = weicom_scores(x @ image, x @ text, weight).topk(10)
    return top.values, top.indices


def both_modalities(index: LocalStore, x: Tensor, queries: Tensor, rounds: int) -> None:
    image, text = queries[1], queries[2]
    index.moments()  # kept with the index, read once
    candidates = {
        "closed": lambda: closed_form(index, image, text, 0.4),
        "full": lambda: full_scan(x, image, text, 0.4),
    }
    best = time_in_turn(candidates, rounds)
    shared, difference = 0, 0.0
    for i in range(0, 20, 2):
        for weight in (0.3, 0.6):
            a, b = (
                closed_form(index, queries[i], queries[i + 1], weight),
                full_scan(x, queries[i], queries[i + 1], weight),
            )
            shared += len(set(a[1].tolist()) & set(b[1].tolist()))
            difference = max(difference, float((a[0] - b[0]).abs().max()))
    print(f"weicom: closed form {1e3 * best['closed']:.1f} ms, full scan {1e3 * best['full']:.1f} ms: "
          f"{best['full'] / best['closed']:.2f}x as fast (bar 1); {shared / 2:.1f}% of the top 10 shared, "
          f"scores apart by {difference:.0e}")  # fmt: skip


def approximately(index: LocalStore, queries: Tensor, rounds: int) -> None:
    start = time.perf_counter()
    about = build_approximate(index)
    seconds = time.perf_counter() - start
    index.open_approximate()
    if index.approximate is None:
        print(
            f"approximate: recall@10 {about.recall['images']:.3f} is below {about.target}: stays exact"
        )
        return
    candidates = {
        "faiss": lambda: index.nearest(queries[:1], 10),
        "exact": lambda: index.exact(queries[:1], 10),
    }
    best = time_in_turn(candidates, rounds)
    found, truth = index.nearest(queries, 10)[1], index.exact(queries, 10)[1]
    recall = float((found[:, :, None] == truth[:, None]).any(1).double().mean())
    print(f"approximate: recall@10 {recall:.3f} (bar 0.95; when built {about.recall['images']:.3f}), "
          f"{1e3 * best['faiss']:.2f} ms, exact {1e3 * best['exact']:.1f} ms: {best['exact'] / best['faiss']:.0f}x "
          f"as fast (bar 10); built in {seconds:.0f} s")  # fmt: skip
    index.approximate = None


class OneDirection:
    """A text encoder without cost."""

    name = identity = "none"

    def __init__(self, vector: Tensor) -> None:
        self.vector, self.dim = vector, len(vector)

    def embed_texts(self, texts: list[str]) -> Tensor:
        return self.vector.expand(len(texts), -1)


def texts(root: Path, queries: Tensor, rounds: int) -> None:
    rng = np.random.default_rng(0)
    x = torch.nn.functional.normalize(torch.randn(TEXT_ROWS, queries.shape[1]), dim=1)
    index = LocalStore.open(root / "texts", IndexDescription("none", "none", x.shape[1]))
    words = [f"w{number}x" for number in range(20_000)]
    start = time.perf_counter()
    with index.writer() as writer:
        for first in range(0, TEXT_ROWS, 20_000):
            entries = []
            for i in range(first, first + 20_000):
                name, caption = rng.choice(20_000, 2), rng.choice(20_000, 8)
                path = (
                    f"/photos/hundred{i % 1000}/ten{i % 10}/{words[name[0]]}_{words[name[1]]}.jpg"
                )
                sentence = " ".join(words[word] for word in caption)
                entries.append(
                    ImageEntry(
                        f"{path}{i}", f"{i:032x}", source="/photos", caption=sentence, look=i
                    )
                )
            writer.put(entries, x[first : first + 20_000])
    seconds = time.perf_counter() - start
    size = (root / "texts" / "images.sqlite").stat().st_size / 2**20
    print(f"text: {TEXT_ROWS} images written in {seconds:.0f} s, images.sqlite has {size:.0f} MB")
    model = OneDirection(queries[0])
    candidates: dict[str, Callable[[], Any]] = {}
    for name, text in (("100", "hundred7"), ("10,000", "ten3"), ("all", "photos")):
        for visual_only in (False, True):
            request = SearchRequest(texts=(text,), visual_only=visual_only)
            kind = "visual only" if visual_only else "with texts"
            candidates[f"{name} images, {kind}"] = lambda request=request: ask(
                request, index, model
            )  # type: ignore[misc, arg-type]
    for name, best in time_in_turn(candidates, rounds).items():
        print(f"text: {name}: {1e3 * best:.1f} ms")


def memory(folder: Path, queries: Tensor, budget: int = 64 << 20) -> None:
    if not STATUS.exists():
        return
    index = LocalStore.open(folder)
    index.budget = budget
    index.exact(queries[:2], 10)
    for name, args in (("1 query", queries[:1]), (f"{len(queries)} queries", queries)):
        before, peak, done = anonymous(), 0.0, threading.Event()

        def watch(stop: threading.Event = done) -> None:
            nonlocal peak
            while not stop.wait(0.001):
                peak = max(peak, anonymous())

        watcher = threading.Thread(target=watch)
        watcher.start()
        index.exact(args, 10)
        done.set()
        watcher.join()
        print(
            f"memory: {name}: {max(peak - before, 0):.0f} MB beside the matrix, budget {budget / 2**20:.0f} MB"
        )


def anonymous() -> float:
    """Return megabytes of anonymous memory."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


class Mean:
    """A model without cost, so that the walk over the files is timed."""

    name = identity = "text-space"
    dim = 3

    def transform(self) -> Any:
        return lambda image: torch.tensor(np.asarray(image.resize((1, 1)), np.float32)[0, 0])

    def embed_images(self, pixels: Tensor) -> Tensor:
        return torch.nn.functional.normalize(pixels + 1, dim=1)


def reindex(root: Path, images: int) -> None:
    from cenote.search.index import open_images, source_of, update_index

    photos = root / "photos"
    rng = np.random.default_rng(0)
    for i in range(images):
        path = photos / f"{i % 100}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (24, 32, 3), np.uint8)).save(path)
    index = LocalStore.open(root / "photographs", IndexDescription("text-space", "text-space", 3))
    update_index(
        index, open_images([str(photos)]), Mean(), source=source_of([str(photos)]), batch=500
    )  # type: ignore[arg-type]
    index.db.close()
    command = [
        sys.executable,
        "-m",
        "cenote",
        "index",
        str(photos),
        "-o",
        str(root / "photographs"),
    ]
    for changed in (0, 1):
        if changed:
            os.remove(photos / "0" / "0.jpg")
        start, before = time.perf_counter(), os.times()
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        after = os.times()
        cpu = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        seconds = f"{time.perf_counter() - start:.1f} s, {cpu:.1f} s of CPU"
        print(f"reindex: {seconds} for the whole command: {output.strip().partition(': ')[2]}")


def shell(root: Path, rounds: int) -> None:
    (root / "few").mkdir()
    for i in range(20):
        Image.effect_noise((64, 64), 10 * i).convert("RGB").save(root / "few" / f"{i}.png")
    cenote = [sys.executable, "-m", "cenote"]
    subprocess.run([*cenote, "index", str(root / "few"), "-o", str(root / "few-ix"), "--quiet"])
    search = [*cenote, "search", str(root / "few-ix"), "--text", "dog"]
    seconds: dict[str, list[float]] = {"alone": [], "first": [], "next": []}
    for _ in range(rounds):
        for name in ("alone", "first", "next", "next"):
            switch = {"CENOTE_RESIDENT": "01"[name != "alone"], "XDG_RUNTIME_DIR": str(root)}
            start = time.perf_counter()
            subprocess.run(search, env=os.environ | switch, stdout=subprocess.DEVNULL, check=True)
            seconds[name].append(time.perf_counter() - start)
        (path,) = (root / "cenote" / "resident").glob("*[!k]")  # beside the lock
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            process = Path("/proc") / str(struct.unpack("3i", peer)[0])
            megabytes = (
                int((process / "statm").read_text().split()[1]) * resource.getpagesize() / 1e6
            )
            connection.sendall(b'{"fingerprint": ""}\n')  # ends it
            connection.recv(1)
        while process.exists():
            time.sleep(0.01)
    times = ", ".join(f"{name} {min(values):.2f} s" for name, values in seconds.items())
    print(
        f"shell: {times} (bar 1 s), best of {rounds}; the resident process has {megabytes:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    args = parser.parse_args()
    with TemporaryDirectory() as folder, torch.inference_mode():
        root = Path(folder)
        if set(args.only) - {"reindex", "shell"}:
            centres = max(10, args.rows // 100)
            x, queries = (
                clusters(args.rows, args.dim, centres, 1),
                clusters(200, args.dim, centres, 2),
            )
            index = index_of(root / "ix", x)
            print(f"{args.rows} x {args.dim} in {centres} clusters, best of {args.rounds}")
            if "exact" in args.only:
                exact(index, x, queries, args.rounds)
            if "weicom" in args.only:
                both_modalities(index, x, queries, args.rounds)
            del x
            if "approximate" in args.only:
                approximately(index, queries, args.rounds)
            if "text" in args.only:
                texts(root, queries, args.rounds)
            if "memory" in args.only:
                memory(root / "ix", queries)
        if "reindex" in args.only:
            reindex(root, args.images)
        if "shell" in args.only:
            shell(root, args.rounds)


if __name__ == "__main__":
    main()
