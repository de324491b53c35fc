"""The page under load, on loopback: `python benchmarks/serve.py [--requests 96] [--clients 1 8 64]`.

Starts a server of its own (`cenote serve`) on lite0 with SimPool and on an index of a small world by text-space, and
lets so many clients ask, each one question after the other, none of which was asked before:

look      a photograph the model does not remember: decoded, through the backbone, map, box. All are uploaded first.
again     a photograph it does remember, at another threshold: what the slider of the page asks for. The backbone rests.
large     the same with one photograph of 48 megapixels and 20 MB: it should take as long as a small one.
search    a text, or an image of the index with a text (WeiCom), no two alike.

p50 and p99 are milliseconds from a question to its answer, waiting in the queue included: with c clients and one worker
expect about c times the time of one, or less where looks are answered together; per second is what to compare. `wait`
counts 503 answers, after which a client waits as it is told and asks again; `errors` must be 0. Memory is of server and
worker together, after the table's questions and after each of two more rounds of as many: flat is where the last round
adds less than 5%. The clients run on the same cores. About four minutes on two cores.
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
PHOTOGRAPHS = 96  # more than a worker remembers
SLIDER = 24  # fewer
FLAT = 0.05
GOLDEN = 0.6180339887498949  # multiples of it never come back


def prepare(folder: Path) -> list[str]:
    """A model, a world and its index; the arguments that serve them."""
    from cenote.cli import main
    from cenote.data.synthetic import World, write_world
    from cenote.models import create_model, save_model

    world = World.preset("small", images=240, domains=("photo", "sketch"))
    write_world(world, folder / "world", progress=False, sheet=False)
    model = create_model("lite0", "simpool", len(world.labels), pretrained=True)
    model.class_names = list(world.labels)
    save_model(model, folder / "run")
    if main(
        ["index", str(folder / "world"), "-o", str(folder / "index"), "--words", "none", "--quiet"]
    ):
        raise SystemExit("the index could not be made")
    return [str(folder / "run"), "--index", str(folder / "index"), "--port", "0"]


def photographs(count: int) -> list[bytes]:
    from cenote.data.synthetic import World

    world, found = World.preset("small", images=count, size=320, seed=1), []
    for i in range(count):
        into = BytesIO()
        world.draw(i).image.save(into, "JPEG")
        found.append(into.getvalue())
    return found


def large() -> bytes:
    """A photograph at the limits of what is taken: a drawing, with the grain of a sensor."""
    from cenote.data.synthetic import World

    drawn = World.preset("small", images=1, size=320, seed=1).draw(0).image.resize((8000, 6000))
    grain, into = Image.effect_noise(drawn.size, 64).convert("RGB"), BytesIO()
    Image.blend(drawn, grain, 0.1).save(into, "JPEG", quality=95)
    return into.getvalue()


Question = Callable[["Load"], Awaitable[None]]


class Load:
    """Clients that ask one question after the other."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.times, self.waits, self.errors = list[float](), 0, 0

    async def ask(self, path: str, **parameters: Any) -> None:
        started = time.perf_counter()
        while True:
            try:
                found = await self.client.get(path, params=parameters)
            except httpx.HTTPError:
                self.errors += 1
                return
            if found.status_code != 503:
                break
            self.waits += 1
            await asyncio.sleep(float(found.headers["retry-after"]))
        self.times.append(1000 * (time.perf_counter() - started))
        self.errors += found.status_code != 200

    async def run(self, clients: int, questions: Sequence[Question]) -> str:
        left = iter(questions)

        async def one() -> None:
            for question in left:
                await question(self)

        started = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        seconds = time.perf_counter() - started
        p50, p99 = np.percentile(self.times, [50, 99])
        many = f"{len(questions):8d} {self.errors:6d} {self.waits:5d}"
        return f"{clients:7d} {many} {p50:8.0f} {p99:8.0f} {len(questions) / seconds:10.1f}"


class Asking:
    """Questions none of which was answered before, so that none is remembered."""

    def __init__(self, model: str, photos: list[str], entries: list[int], words: list[str]) -> None:
        self.model, self.photos, self.entries, self.words = model, photos, entries, words
        self.asked = 0

    def __call__(self, kind: str) -> Question:
        self.asked += 1
        if kind == "search":
            text = {
                "text": f"{self.words[self.asked % len(self.words)]}^{1 + self.asked / 10_000:g}"
            }
            image = (
                {"entry": self.entries[self.asked % len(self.entries)], "weight": 0.5}
                if self.asked % 2
                else {}
            )
            return lambda load: load.ask("/api/search", **text, **image)
        # A worker remembers 48 photographs: of all in turn it knows none, of a few it knows each.
        some = {
            "look": self.photos[1:],
            "again": self.photos[1 : 1 + SLIDER],
            "large": self.photos[:1],
        }[kind]
        photo, threshold = some[self.asked % len(some)], 0.2 + 0.6 * (self.asked * GOLDEN % 1)
        return lambda load: load.ask(
            "/api/look", photo=photo, model=self.model, threshold=round(threshold, 9)
        )


async def measure(address: str, requests: int, levels: Sequence[int]) -> bool:
    # A connection rests for less than the server's 5 seconds: no question meets one that is being closed.
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
        asking = Asking(model, photos, entries, about["index"]["classes"])
        print("what     clients requests errors  wait      p50      p99 per second")
        memory, fine = list[float](), True
        for again in range(3):
            for kind in ("look", "again", "large", "search"):
                if known := {"again": SLIDER, "large": 1}.get(kind):
                    await Load(client).run(1, [asking(kind) for _ in range(known)])
                for clients in levels:
                    load = Load(client)
                    told = await load.run(clients, [asking(kind) for _ in range(requests)])
                    fine &= not load.errors
                    if not again:
                        print(f"{kind:8s} {told}", flush=True)
            memory.append((await client.get("/health")).json()["memory_mb"])
        more = memory[2] / memory[1] - 1
        told = ", ".join(f"{each:.0f}" for each in memory)
        print(
            f"memory: {told} MB after each of three equal rounds; the last adds {100 * more:.1f}%"
        )
        return fine and more < FLAT


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=int, default=96, help="of each kind and number of clients"
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    given = parser.parse_args()
    keep_memory()
    with TemporaryDirectory() as name:
        os.environ["CENOTE_CACHE"] = str(Path(name) / "cache")
        command = [sys.executable, "-m", "cenote", "serve", *prepare(Path(name))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = next(
                found[0] for line in server.stdout if (found := re.search(r"http://\S+", line))
            )
            fine = asyncio.run(measure(address, given.requests, given.clients))
        finally:
            server.terminate()
            server.wait()
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    main()
