"""Measure the web page under load: `python benchmarks/serve.py [--clients 1 8 64] [--workers 1]
[--only search]`.

Starts `cenote serve` with lite0 and SimPool and an index of a small synthetic data set (text-space).
Each client sends one request after the other; no request is sent twice:

look      a photograph that is not in the worker's cache: decode, backbone, map, box
again     a cached photograph at another threshold, as the slider of the page does: no backbone
large     the same with one photograph of 48 megapixels and 20 MB: should take as long as a small one
search    a text, or an image of the index with a text (WeiCom)

p50 and p99 are milliseconds per request, waiting included: with c clients and one worker expect about
c times the time of one client; compare "per second".
`wait` counts 503 responses, after which a client waits and tries again; `errors` must be 0. Memory is
that of server and workers after the table and after two more rounds of the same requests; it is flat
if the last round adds less than 5%. The clients run on the same cores. About four minutes on two
cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
from PIL import Image

from cenote.allocator import keep_memory

ROOT = Path(__file__).parents[1]
KINDS = ("look", "again", "large", "search")
PHOTOGRAPHS = 96  # more than the worker caches
CACHED = 24  # fewer
MAX_GROWTH = 0.05  # of the memory, in the last round
GOLDEN_RATIO = 0.6180339887498949  # the fractional parts of its multiples are all different


def prepare(folder: Path) -> list[str]:
    """Create a model, a data set and its index; return the arguments of `cenote serve`."""
    from cenote.cli import main
    from cenote.data.synthetic import World, write_world
    from cenote.models import create_model, save_model

    world = World.preset("small", images=240, domains=("photo", "sketch"))
    write_world(world, folder / "world", progress=False)
    model = create_model("lite0", "simpool", len(world.labels), pretrained=True)
    model.class_names = list(world.labels)
    save_model(model, folder / "run")
    if main(
        ["index", str(folder / "world"), "-o", str(folder / "index"), "--words", "none", "--quiet"]
    ):
        raise SystemExit("the index could not be created")
    return [str(folder / "run"), "--index", str(folder / "index"), "--port", "0"]


def photographs(count: int) -> list[bytes]:
    from cenote.data.synthetic import World

    world, contents = World.preset("small", images=count, size=320, seed=1), []
    for i in range(count):
        into = BytesIO()
        world.draw(i).image.save(into, "JPEG")
        contents.append(into.getvalue())
    return contents


def large() -> bytes:
    """Return a photograph at the limits of size: a drawing with the noise of a sensor."""
    from cenote.data.synthetic import World

    drawn = World.preset("small", images=1, size=320, seed=1).draw(0).image.resize((8000, 6000))
    grain, into = Image.effect_noise(drawn.size, 64).convert("RGB"), BytesIO()
    Image.blend(drawn, grain, 0.1).save(into, "JPEG", quality=95)
    return into.getvalue()


SendRequest = Callable[["Load"], Awaitable[None]]


class Load:
    """Clients that send one request after the other."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.times, self.waits, self.errors = list[float](), 0, 0

    async def send(self, path: str, **parameters: Any) -> None:
        started = time.perf_counter()
        while True:
            try:
                response = await self.client.get(path, params=parameters)
            except httpx.HTTPError:
                self.errors += 1
                return
            if response.status_code != 503:
                break
            self.waits += 1
            await asyncio.sleep(float(response.headers["retry-after"]))
        self.times.append(1000 * (time.perf_counter() - started))
        self.errors += response.status_code != 200

    async def run(self, clients: int, requests: Sequence[SendRequest]) -> str:
        queue = iter(requests)

        async def client() -> None:
            for request in queue:
                await request(self)

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        seconds = time.perf_counter() - started
        p50, p99 = np.percentile(self.times, [50, 99])
        counts = f"{len(requests):8d} {self.errors:6d} {self.waits:5d}"
        return f"{clients:7d} {counts} {p50:8.0f} {p99:8.0f} {len(requests) / seconds:10.1f}"


class Requests:
    """Create requests that were not sent before, so that no answer is cached."""

    def __init__(self, model: str, photos: list[str], entries: list[int], words: list[str]) -> None:
        self.model, self.photos, self.entries, self.words = model, photos, entries, words
        self.count = 0

    def __call__(self, kind: str) -> SendRequest:
        self.count += 1
        if kind == "search":
            text = {
                "text": f"{self.words[self.count % len(self.words)]}^{1 + self.count / 10_000:g}"
            }
            image = (
                {"entry": self.entries[self.count % len(self.entries)], "weight": 0.5}
                if self.count % 2
                else {}
            )
            return lambda load: load.send("/api/search", **text, **image)
        # The worker caches 48 photographs: none of all in turn, each of a few.
        photos = {
            "look": self.photos[1:],
            "again": self.photos[1 : 1 + CACHED],
            "large": self.photos[:1],
        }[kind]
        photo = photos[self.count % len(photos)]
        threshold = 0.2 + 0.6 * (self.count * GOLDEN_RATIO % 1)
        return lambda load: load.send(
            "/api/look", photo=photo, model=self.model, threshold=round(threshold, 9)
        )


def memory_mb(server: int) -> float:
    """Return the memory of a process and its children."""
    command = ["ps", "-o", "rss=", "-p", str(server), "--ppid", str(server)]
    return sum(map(int, subprocess.check_output(command, text=True).split())) / 1024


async def measure(
    address: str, server: int, requests: int, levels: Sequence[int], kinds: Sequence[str]
) -> bool:
    # Idle connections end before the server closes them after 5 seconds.
    limits = httpx.Limits(max_connections=max(levels), keepalive_expiry=2)
    async with httpx.AsyncClient(
        base_url=address, timeout=300, limits=limits, trust_env=False
    ) as client:
        about = (await client.get("/api/about")).json()
        model, entries = about["models"][0]["id"], about["index"]["entries"]
        photos = []
        for content in (large(), *photographs(PHOTOGRAPHS)):
            photos.append(
                (await client.post("/api/photos", files={"file": ("p.jpg", content)})).json()[
                    "photo"
                ]
            )
        create = Requests(model, photos, entries, about["index"]["classes"])
        print("what     clients requests errors  wait      p50      p99 per second")
        memory, passed = list[float](), True
        for repetition in range(3):
            for kind in kinds:
                if cached := {"again": CACHED, "large": 1}.get(kind):
                    await Load(client).run(1, [create(kind) for _ in range(cached)])
                for clients in levels:
                    load = Load(client)
                    row = await load.run(clients, [create(kind) for _ in range(requests)])
                    passed &= not load.errors
                    if not repetition or len(kinds) == 1:
                        print(f"{kind:8s} {row}", flush=True)
            memory.append(memory_mb(server))
        growth = memory[2] / memory[1] - 1
        values = ", ".join(f"{value:.0f}" for value in memory)
        print(
            f"memory: {values} MB after each of three equal rounds; the last adds {100 * growth:.1f}%"
        )
        return passed and growth < MAX_GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=int, default=96, help="of each kind and number of clients"
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    keep_memory()
    with TemporaryDirectory() as name:
        os.environ["CENOTE_CACHE"] = str(Path(name) / "cache")
        workers = ["--workers", str(options.workers)]
        command = [sys.executable, "-m", "cenote", "serve", *prepare(Path(name)), *workers]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = next(
                match[0] for line in server.stdout if (match := re.search(r"http://\S+", line))
            )
            passed = asyncio.run(
                measure(address, server.pid, options.requests, options.clients, options.only)
            )
        finally:
            server.terminate()
            server.wait()
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
