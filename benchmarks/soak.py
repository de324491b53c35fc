"""Load the web page for 20 minutes: `make soak`, or `python benchmarks/soak.py [--minutes 20]
[--clients 24]`.

Clients send light requests (/health, /api/about, a static file), searches, looks at photographs,
uploads, pictures of entries and wrong requests, to 127.0.0.1 only. Each minute a worker is killed,
and the index is written again: with 20 images more, or without them. The result is the number of
responses by status, those that are 5xx other than a deliberate 503, resets, the 99th percentile of
light requests, and the memory of server and workers. It passes if there was no other 5xx and the memory
after the first quarter grew by less than 10%.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import psutil
from serve import ROOT, memory_mb, photographs, prepare

LIGHT = ("/health", "/api/about", "/static/app.js")
WRONG = (
    "/api/look?photo=x&model=y",
    "/api/search?text=" + "a" * 5000,
    "/api/entries/999999999",
    "/nothing",
)
CHANGE_SECONDS = 60.0
MAX_GROWTH = 0.10


class Soak:
    def __init__(self, client: httpx.AsyncClient, about: dict[str, Any], end: float) -> None:
        self.client, self.about, self.end = client, about, end
        self.statuses: Counter[str] = Counter()
        self.light: list[float] = []
        self.failures: list[str] = []
        self.contents = photographs(32)

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        try:
            response = await self.client.request(method, path, **options)
        except httpx.HTTPError as error:
            self.statuses[type(error).__name__] += 1
            return None
        self.statuses[str(response.status_code)] += 1
        if response.status_code >= 500 and response.status_code != 503:
            self.failures.append(f"{response.status_code} {path[:60]}: {response.text[:120]}")
        return response

    async def run(self, seed: int) -> None:
        """Send one request after the other, of any kind."""
        rng = random.Random(seed)
        entries, words = self.about["index"]["entries"], self.about["index"]["classes"]
        model, photo = self.about["models"][0]["id"], self.about["examples"][0]["photo"]
        while time.monotonic() < self.end:
            kind = rng.random()
            if kind < 0.4:
                started = time.perf_counter()
                response = await self.send("GET", rng.choice(LIGHT))
                if response is not None and response.status_code == 200:
                    self.light.append(time.perf_counter() - started)
            elif kind < 0.6:
                text = {"text": f"{rng.choice(words)}^{1 + rng.random():.6f}"}
                await self.send("GET", "/api/search", params=text)
            elif kind < 0.75:
                threshold = round(rng.random(), 6)
                parameters = {"photo": photo, "model": model, "threshold": threshold}
                await self.send("GET", "/api/look", params=parameters)
            elif kind < 0.85:
                content = rng.choice(self.contents) + os.urandom(4)
                response = await self.send(
                    "POST", "/api/photos", files={"file": ("p.jpg", content)}
                )
                if response is not None and response.status_code in (200, 201):
                    photo = response.json()["photo"]
            elif kind < 0.95:
                await self.send("GET", f"/api/entries/{rng.choice(entries)}")
            else:
                await self.send("GET", rng.choice(WRONG))
            await asyncio.sleep(rng.random() * 0.05)


async def disturb(folder: Path, server: int, soak: Soak, events: Counter[str]) -> None:
    """Kill a worker and write the index again, in turn."""
    more, index = folder / "more", folder / "index"
    command = [sys.executable, "-m", "cenote", "index", "-o", str(index), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    while time.monotonic() < soak.end - CHANGE_SECONDS / 2:
        await asyncio.sleep(CHANGE_SECONDS / 2)
        for process in psutil.Process(server).children():
            if "spawn_main" in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
                events["workers killed"] += 1
                break
        await asyncio.sleep(CHANGE_SECONDS / 2)
        if more.is_dir() and events["index written"] % 2:
            for path in sorted(more.iterdir())[1:]:
                path.unlink()
        else:
            more.mkdir(exist_ok=True)
            for number, path in enumerate(sorted((folder / "world").rglob("*.png"))[:20]):
                shutil.copy(path, more / f"{number}.png")
        writer = await asyncio.create_subprocess_exec(*command, str(more), env=environment)
        assert await writer.wait() == 0
        events["index written"] += 1


async def run(address: str, server: int, folder: Path, minutes: float, clients: int) -> bool:
    limits = httpx.Limits(max_connections=clients + 4, keepalive_expiry=2)
    async with httpx.AsyncClient(
        base_url=address, timeout=120, limits=limits, trust_env=False
    ) as client:
        about = (await client.get("/api/about")).json()
        started = time.monotonic()
        soak, events = Soak(client, about, started + 60 * minutes), Counter[str]()
        memory: list[float] = []

        async def sample() -> None:
            while True:
                memory.append(memory_mb(server))
                await asyncio.sleep(2)

        sampling = asyncio.create_task(sample())
        work = [soak.run(seed) for seed in range(clients)]
        await asyncio.gather(disturb(folder, server, soak, events), *work)
        sampling.cancel()
        shown = (await client.get("/api/about")).json()["index"]["images"]
    first, last = memory[len(memory) // 4 : len(memory) // 2], memory[-len(memory) // 4 :]
    growth = np.median(last) / np.median(first) - 1
    report = {
        "minutes": minutes,
        "requests": sum(soak.statuses.values()),
        "statuses": dict(soak.statuses),
        "other_5xx": soak.failures,
        "light_p99_seconds": round(float(np.percentile(soak.light, 99)), 3),
        **events,
        "images_shown_at_the_end": [about["index"]["images"], shown],
        "memory_mb": [round(float(np.median(x))) for x in (first, last)],
        "memory_growth": round(float(growth), 3),
    }
    print(json.dumps(report, indent=1))
    return not soak.failures and growth < MAX_GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["CENOTE_CACHE"] = str(folder / "cache")
        workers = ["--workers", str(options.workers)]
        command = [sys.executable, "-m", "cenote", "serve", *prepare(folder), *workers]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            found = (re.search(r"http://\S+", line) for line in server.stdout)
            address = next(match[0] for match in found if match)
            work = run(address, server.pid, folder, options.minutes, options.clients)
            passed = asyncio.run(work)
        finally:
            server.terminate()
            server.wait()
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
