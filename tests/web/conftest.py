"""A small real demo's folder, and a real server on it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
THINGS = ("bird", "cat", "boat", "car", "tree", "house", "cup", "dog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test also waits for the demo's folder and the server."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(600))


@dataclass
class Server:
    process: subprocess.Popen[str]
    address: str
    errors: Path

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=170, trust_env=False, **options)  # type: ignore[arg-type]

    def children(self) -> list[int]:
        """Return the worker, without the resource tracker of multiprocessing."""
        # -ww: ps would cut its lines at COLUMNS.
        listed = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
        )
        rows = [line.split(None, 1) for line in listed.stdout.splitlines()]
        return [int(pid) for pid, command in rows if "spawn_main" in command]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


def serve(
    folder: Path, *arguments: str | Path, errors: str = "serve.txt", root: Path = ROOT
) -> Server:
    """Start a server on a free port and wait until it listens; `root` is the folder that holds cenote/."""
    log = folder / errors
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cenote", "serve", *map(str, arguments), "--port", "0"]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=file, text=True
        )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if match := re.search(r"http://\S+:\d+", line):
                return Server(process, match[0], log)
        process.wait(20)
    except BaseException:  # also of a test that is timed out
        process.kill()
        raise
    raise AssertionError(f"cenote serve ended with {process.returncode}: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CENOTE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """world/, run/, tournament/ and index/ as `cenote demo` lays them out; the models have learned next to nothing."""
    import torch
    from safetensors.torch import save_file

    from cenote.backbones import create_backbone
    from cenote.cli import main
    from cenote.data import open_dataset
    from cenote.data.synthetic import World, write_world
    from cenote.models import create_model, save_model
    from cenote.models.image_text.small_clip import SmallClip, save_image_text
    from cenote.models.image_text.text_encoder import TextTower, Words
    from cenote.train.config import OptimizationConfig
    from cenote.train.tournament.run import TournamentConfig, run_tournament

    folder = tmp_path_factory.mktemp("demo")
    plan = World.preset("tiny", images=48, domains=("photo", "sketch"))
    write_world(plan, folder / "world", jobs=1, progress=False)
    torch.manual_seed(0)
    model = create_model("resnet_micro", "simpool", num_classes=len(plan.labels))
    model.class_names = list(plan.labels)
    save_model(model, folder / "run")
    save_file(create_backbone("vit_micro").model.state_dict(), folder / "vit.safetensors")
    config = TournamentConfig(
        "vit_micro", folder / "vit.safetensors", pools=("gap", "simpool", "cls"), seeds=1, rates=(1e-2,),
        settings=OptimizationConfig(epochs=2, batch=16, warmup=0.5),
    )  # fmt: skip
    run_tournament(open_dataset(folder / "world"), folder / "tournament", config)
    words = Words.of(["a photo of a cat", "a sketch of a bird", *THINGS], context=12)
    image = create_model("resnet_micro", "gap", 0, embedding_dim=16)
    tower = TextTower(len(words), 16, 12, width=24, layers=1, heads=2)
    save_image_text(SmallClip(image, tower, words, things=THINGS).eval(), folder / "clip")
    index = [
        "index",
        str(folder / "world"),
        "-o",
        str(folder / "index"),
        "--model",
        str(folder / "clip"),
        "--quiet",
    ]
    assert main(index) == 0
    return folder


@pytest.fixture(scope="session")
def server(demo: Path) -> Iterator[Server]:
    started = serve(demo.parent, demo)
    yield started
    started.stop()
