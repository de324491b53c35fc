"""A real server: it answers while clients leave and its worker is killed, and leaves no process behind."""

import asyncio
import csv
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from cenote.cli import main
from cenote.data import read_image
from cenote.web.about import AboutResponse, HealthResponse, TournamentResponse
from cenote.web.look import LookResponse
from cenote.web.schemas import PhotoInfo
from cenote.web.search import SearchResponse

from .conftest import Server, serve


def until(true: Callable[[], Any], seconds: float = 170) -> Any:
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value


def request_patiently(
    client: httpx.Client, path: str, seconds: float = 170, **options: Any
) -> httpx.Response:
    """Send a request again while the server is busy."""
    end = time.monotonic() + seconds
    while True:
        response = client.request(options.pop("method", "GET"), path, **options)
        if response.status_code != 503 or time.monotonic() > end:
            return response
        time.sleep(min(float(response.headers["retry-after"]), 1))


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def memory_mb(server: Server) -> float:
    """Return the resident memory of the server and its worker."""
    pids = [server.process.pid, *server.children()]
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def noise(seed: int, side: int = 90) -> bytes:
    into = BytesIO()
    Image.effect_noise((side, side), 20 + seed).convert("RGB").save(into, "PNG")
    return into.getvalue()


def test_every_response(server: Server) -> None:
    with server.client() as client:
        about = client.get("/api/about").json()
        AboutResponse.model_validate(about)
        assert about["title"] and about["limits"] == {
            "bytes": 20_000_000,
            "pixels": 50_000_000,
            "queue": 64,
        }
        assert about["models"][0]["id"] == "run" and about["tournament"]["running"] is False
        uploaded = client.post("/api/photos", files={"file": ("a.png", noise(0))})
        photo = PhotoInfo.model_validate(uploaded.json()).photo
        assert uploaded.status_code == 201
        for model in about["models"]:
            response = client.get("/api/look", params={"photo": photo, "model": model["id"]})
            LookResponse.model_validate(response.json())
        entry = about["index"]["entries"][0]
        response = client.get("/api/search", params={"entry": entry, "text": "sketch", "top": 5})
        results = SearchResponse.model_validate(response.json()).results
        assert len(results) == 5
        taken = PhotoInfo.model_validate(client.post(f"/api/entries/{entry}").json())
        assert (
            client.get("/api/look", params={"photo": taken.photo, "model": "run"}).json()["width"]
            == taken.width
        )
        picture = client.get(f"/api/entries/{results[0].entry}", params={"side": 48})
        with Image.open(BytesIO(picture.content)) as image:
            assert max(image.size) == 48
        standing = TournamentResponse.model_validate(client.get("/api/tournament").json())
        assert standing.stage == "finished" and standing.report is not None and not standing.page
        assert {c.name for c in standing.contenders} >= {"gap", "simpool (gamma 1.25)", "cls"}
        assert HealthResponse.model_validate(client.get("/health").json()).status == "ready"
        assert client.get("/api/openapi.json").json()["openapi"].startswith("3.1")
        assert client.get("/").headers["content-type"].startswith("text/html")


def test_a_model_sees_what_the_file_holds(server: Server, demo: Path, tmp_path: Path) -> None:
    """The page's classes and boxes of a large PNG are those of `cenote localize`, and not those of a JPEG of it."""
    picture = read_image(next((demo / "world" / "images").rglob("*.png"))).resize((2000, 1300))
    noisy = Image.blend(
        picture, Image.effect_noise(picture.size, 120).convert("RGB"), 0.3
    )  # a JPEG would change it
    notes = PngInfo()
    notes.add_text("place", "59.91 N")
    noisy.save(tmp_path / "a.png", pnginfo=notes, compress_level=1)
    code = main(
        [
            "localize",
            str(demo / "run"),
            str(tmp_path / "a.png"),
            "-o",
            str(tmp_path / "out"),
            "--threshold",
            "0.5",
        ]
    )
    assert code == 0
    (expected,) = csv.DictReader((tmp_path / "out" / "boxes.csv").open())
    with server.client() as client:
        uploaded = client.post(
            "/api/photos", files={"file": ("a.png", (tmp_path / "a.png").read_bytes())}
        ).json()
        look = client.get(
            "/api/look", params={"photo": uploaded["photo"], "model": "run", "threshold": 0.5}
        ).json()
        shown = client.get(f"/api/photos/{uploaded['photo']}").content
    assert (
        (uploaded["width"], uploaded["height"]) == (look["width"], look["height"]) == (2000, 1300)
    )
    (box,) = look["boxes"]
    corners = [int(expected[side]) for side in ("x1", "y1", "x2", "y2")]
    # Another process with other threads: a score that is almost the threshold may add or remove one of the 64 cells.
    assert [box[side] for side in ("x0", "y0", "x1", "y1")] == pytest.approx(corners, abs=2000 / 64)
    assert expected["class_name"] in [row["name"] for row in look["classes"]]
    assert box["score"] == pytest.approx(
        float(expected["score"]), abs=6e-5
    )  # which the file has with four digits
    assert b"59.91" not in shown and shown[:2] == b"\xff\xd8"


def test_a_killed_worker_is_replaced_in_the_middle_of_questions(server: Server) -> None:
    with server.client() as client, ThreadPoolExecutor(6) as threads:
        photo = client.post("/api/photos", files={"file": ("a.png", noise(1))}).json()["photo"]
        (before,) = server.children()
        requests = [
            threads.submit(
                request_patiently, client, f"/api/look?photo={photo}&model=run&threshold=0.{i}1"
            )
            for i in range(1, 7)
        ]
        os.kill(before, signal.SIGKILL)
        assert [request.result().status_code for request in requests] == [200] * 6
        assert (
            until(server.children) != [before] and client.get("/health").json()["status"] == "ready"
        )


def test_clients_that_leave_are_forgotten(server: Server) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    with server.client() as client:
        about = client.get("/api/about").json()
        photo = about["examples"][0]["photo"]
        (worker,) = server.children()
        os.kill(worker, signal.SIGSTOP)  # so that everything waits
        try:
            for i in range(40):
                with socket.create_connection((host, int(port))) as one:
                    path = f"/api/look?photo={photo}&model=run&threshold=0.5{i:02d}"
                    one.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                    if i == 39:
                        until(lambda: client.get("/health").json()["queue"] >= 1)
            until(lambda: client.get("/health").json()["queue"] == 0)
        finally:
            os.kill(worker, signal.SIGCONT)
        assert client.get(f"/api/look?photo={photo}&model=run").status_code == 200


def test_two_hundred_at_once(server: Server) -> None:
    """All are answered in the end, or with 503; memory does not grow with their number."""

    async def one(client: httpx.AsyncClient, i: int, about: dict[str, Any]) -> int:
        photo = about["examples"][i % len(about["examples"])]["photo"]
        models = [model["id"] for model in about["models"]]
        paths = [
            f"/api/look?photo={photo}&model={models[i % len(models)]}&threshold=0.{i:03d}",
            f"/api/search?text=bird&top={1 + i % 20}",
            f"/api/entries/{i % 48}?side=64",
            "/api/about",
        ]
        for _ in range(200):
            response = await client.get(paths[i % 4])
            if response.status_code != 503:
                return response.status_code
            await asyncio.sleep(0.3)
        return 503

    async def everybody() -> list[int]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(
            base_url=server.address, timeout=120, limits=limits, trust_env=False
        ) as client:
            about = (await client.get("/api/about")).json()
            return await asyncio.gather(*(one(client, i, about) for i in range(200)))

    with server.client() as client:
        before = memory_mb(server)
        assert asyncio.run(everybody()) == [200] * 200
        assert client.get("/health").json() == {"status": "ready", "queue": 0}
        assert memory_mb(server) < before + 150


def test_a_tournament_that_still_runs_and_signals(demo: Path, tmp_path: Path) -> None:
    """Models come as they are trained; SIGTERM ends the server and its worker."""
    running = tmp_path / "running"
    shutil.copytree(demo / "tournament", running)
    for name in ("results.json", "config.json", "model.safetensors", "seed-0"):
        (running / name).rename(tmp_path / name)
    server = serve(tmp_path, running, errors="running.txt")
    try:
        with server.client() as client:
            about = client.get("/api/about").json()
            assert about["models"] == [] and about["tournament"] == {
                "name": "running",
                "running": True,
            }
            assert len(about["examples"]) == 2, "where there is nothing else"
            assert client.get("/api/tournament").json()["report"] is None
            for name in ("seed-0", "config.json", "model.safetensors", "results.json"):
                (tmp_path / name).rename(running / name)
            standing = until(
                lambda: (body := client.get("/api/tournament").json())["report"] and body
            )
            assert standing["stage"] == "finished" and standing["report"] == json.loads(
                (running / "results.json").read_text()
            )
            models = client.get("/api/about").json()["models"]
            assert models[0]["recommended"] and {model["id"] for model in models} >= {
                "gap",
                "simpool (gamma 1.25)",
                "cls",
            }
            assert client.get("/api/search?text=a").status_code == 404
        (worker,) = server.children()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) in (0, -signal.SIGTERM, 143)
        until(lambda: not alive(worker), 60)
        assert "Traceback" not in server.errors.read_text()
    finally:
        server.stop()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_is_left_behind(demo: Path, tmp_path: Path, ending: signal.Signals) -> None:
    """It answers with models alone, or with an index alone; it is busy while it ends."""
    models = ending is signal.SIGINT
    server = serve(
        tmp_path, *([demo / "run"] if models else ["--index", demo / "index"]), errors="left.txt"
    )
    (worker,) = server.children()
    about = httpx.get(f"{server.address}/api/about", trust_env=False).json()
    assert (bool(about["models"]), about["index"] is not None) == (models, not models)
    question = (
        f"look?photo={about['examples'][0]['photo']}&model=run" if models else "search?text=bird"
    )
    with socket.create_connection(
        ("127.0.0.1", int(server.address.rpartition(":")[2]))
    ) as connection:
        connection.sendall(f"GET /api/{question} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        server.process.send_signal(ending)
        server.process.wait(60)
    until(lambda: not alive(worker), 60)
    assert "Traceback" not in server.errors.read_text()
    assert ending is signal.SIGKILL or server.process.returncode in (
        0,
        130,
    )  # before or after it had begun to end


def test_what_cannot_be_served(
    demo: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for arguments, value in (
            ([], ""),
            ([tmp_path / "nowhere"], str(tmp_path / "nowhere")),
            ([tmp_path / "empty"], str(tmp_path / "empty")),
            ([tmp_path / "broken"], "config.json"),
            (["--index", tmp_path / "empty"], str(tmp_path / "empty")),
            ([demo / "run", "--port", str(port)], f"127.0.0.1:{port}"),
            ([demo / "run", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
            ([demo / "run", "--queue", "0"], "--queue"),
            ([demo / "run", "--port", "70000"], "70000"),
        ):
            assert main(["serve", *map(str, arguments)]) == 2, arguments
            message = capfd.readouterr().err
            assert (
                message.startswith("cenote serve: ")
                and value in message
                and message.count("\n") == 1
            )
