"""What is served changes while it is served: an index is written, a folder disappears."""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from cenote.cli import main
from cenote.web.schemas import Contents, ContentsRequest, ModelInfo
from cenote.web.service import Service
from cenote.web.sources import find_sources
from tests.toy_models import narrow_resnet

from .stub_jobs import StubJobs, state_of


def index(folder: Path, count: int) -> None:
    for i in range(count):
        path = folder / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((40, 40), 50 + i).convert("RGB").save(path)
    assert main(["index", str(folder / "photos"), "-o", str(folder / "ix"), "--quiet"]) == 0


def test_a_written_index_is_read_again(tmp_path: Path) -> None:
    index(tmp_path, 3)
    sources = find_sources([], str(tmp_path / "ix"))
    version = sources.index_version()
    service = Service(sources)
    model = service.index.model
    assert service.contents().index is not None and service.contents().index.images == 3  # type: ignore[union-attr]
    assert sources.index_version() == version  # reading is no change
    index(tmp_path, 5)
    assert sources.index_version() != version
    contents = service.contents()
    assert contents.index is not None and contents.index.images == 5
    assert service.index.model is model and service.index.map.images == 5
    shutil.rmtree(tmp_path / "ix")
    contents = service.contents()  # what is open stays
    assert contents.index is not None and contents.index.images == 5


def test_the_server_follows_the_index(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("{}")
    info: Any = ModelInfo.model_construct(id="new")

    class Jobs(StubJobs):
        asked = 0

        async def ask_all(self, request: ContentsRequest) -> Contents:
            self.asked += 1
            return Contents.model_construct(models=[info], index=None)

    async def run() -> None:
        jobs = Jobs()
        state = state_of(jobs, index=str(tmp_path))
        following = asyncio.create_task(state.follow_index(0.01))
        await asyncio.sleep(0.05)
        assert jobs.asked == 0
        (tmp_path / "images.sqlite").write_text("more")
        while not jobs.asked:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert jobs.asked == 1 and state.contents.models == [info]
        following.cancel()

    asyncio.run(run())


def test_a_restarted_worker_leaves_out_what_disappeared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        model = narrow_resnet(num_classes=2, size=32)
        model.class_names = ["a", "b"]
        model.save(tmp_path / name)
    sources = find_sources([tmp_path / "one", tmp_path / "two"])
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(OSError, match="one"):
        Service(sources)
    sources.restarted = True
    with caplog.at_level(logging.WARNING):
        contents = Service(sources).startup().contents
    assert [row.id for row in contents.models] == ["two"]
    assert "one is not served any more" in caplog.text


def test_a_page_without_workers_is_not_healthy() -> None:
    from cenote.web.server import create_app

    async def status(value: str) -> int:
        jobs = StubJobs()
        jobs.status = value
        transport = httpx.ASGITransport(create_app(state_of(jobs)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.get("/health")).status_code

    assert [asyncio.run(status(value)) for value in ("ready", "starting", "down")] == [
        200,
        200,
        503,
    ]
