"""`cenote.fit` and `cenote.tournament`, and their callbacks."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import cenote
from cenote.cli import main
from tests.synthetic import rectangles


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes with 8 images each, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CENOTE_CACHE", str(tmp_path / "cache"))
    data = rectangles(24)
    for i in range(24):
        if (label := data[i].label) in ("a", "b"):
            folder = tmp_path / "photos" / label
            folder.mkdir(parents=True, exist_ok=True)
            data.image(i).save(folder / f"{i}.png")
    return tmp_path / "photos"


class Recorder(cenote.Callback):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_start(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.calls.append(("start", folder, settings["epochs"]))

    def on_progress(self, stage: str, done: int, total: int) -> None:
        self.calls.append((stage, done, total))

    def on_epoch(self, epoch: int, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self.calls.append(("epoch", epoch, len(metrics)))

    def on_end(self) -> None:
        self.calls.append(("end",))


def test_fit_returns_a_model_and_calls_back(photos: Path) -> None:
    recorder = Recorder()
    model = cenote.fit(photos, freeze=True, epochs=2, batch=8, callbacks=[recorder])
    assert model.folder == Path("runs/fit")
    assert model.results["val"]["images"] > 0
    assert model.class_names == ["a", "b"]
    assert model.predict(next((photos / "a").iterdir())).label in ("a", "b")
    images = recorder.calls[1][2]
    assert recorder.calls == [
        ("start", model.folder, 2),
        ("epoch 1/2", 8, images),
        ("epoch 1/2", images, images),
        ("epoch", 1, 4),  # one model for each learning rate
        ("epoch 2/2", 8, images),
        ("epoch 2/2", images, images),
        ("epoch", 2, 4),
        ("end",),
    ]
    assert cenote.fit(photos, freeze=True, epochs=1).folder == Path("runs/fit-2")


def test_fit_refuses_an_option_that_does_not_exist(photos: Path) -> None:
    with pytest.raises(ValueError, match="epoch"):
        cenote.fit(photos, freeze=True, epoch=1)
    assert not Path("runs").exists()


def test_a_tournament_has_a_verdict_a_table_and_a_model(photos: Path) -> None:
    result = cenote.tournament(photos, pools=["gap", "max"], seeds=1, epochs=2)
    assert result.folder == Path("runs/tournament")
    assert result.winner in ("gap", "max") and result.winner in result.verdict
    assert sorted(result.table["candidate"]) == ["gap", "max"]
    assert result.verdict.split()[0] in result._repr_html_() and "gap" in str(result)
    assert (result.folder / "index.html").is_file()
    assert result.model.class_names == ["a", "b"]
    with pytest.raises(ValueError, match=r"^pools and gamma"):
        cenote.tournament(photos, pools=["gap"], gamma=[1.0])


def test_metrics_are_logged_to_tensorboard(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fit", str(photos), "--freeze", "--epochs", "2", "-o", "run", "--log"]
    assert main([*arguments, "tensorbord"]) == 2
    assert "tensorbord" in capsys.readouterr().err
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert main([*arguments, "tensorboard"]) == 0
    events = reader.EventAccumulator("run/tensorboard").Reload()
    name = next(name for name in events.Tags()["scalars"] if name.startswith("accuracy/"))
    assert [event.step for event in events.Scalars(name)] == [1, 2]


@pytest.mark.slow
def test_metrics_are_logged_to_mlflow(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (photos.parent / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs the whole of MLflow
    assert (
        main(["fit", str(photos), "--freeze", "--epochs", "1", "-o", "run", "--log", "mlflow"]) == 0
    )
    client = mlflow.MlflowClient()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = client.search_runs(experiments)
    assert run.info.run_name == "run" and run.data.params["epochs"] == "1"
    assert any(name.startswith("accuracy/") for name in run.data.metrics)


@pytest.mark.slow
def test_metrics_are_logged_to_wandb(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(photos.parent))
    assert (
        main(["fit", str(photos), "--freeze", "--epochs", "1", "-o", "run", "--log", "wandb"]) == 0
    )
    assert list(photos.parent.rglob("*.wandb"))


@pytest.mark.slow
def test_metrics_are_logged_to_trackio(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio")
    code = (
        f'import cenote; cenote.fit({str(photos)!r}, "run", freeze=True, epochs=1, log=["trackio"])'
    )
    environment = {**os.environ, "TRACKIO_DIR": str(photos.parent / "trackio")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
    (database,) = (photos.parent / "trackio").glob("*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step from metrics").fetchall()
    assert ("run", 1) in rows


def test_a_missing_logger_is_reported_before_the_work_begins(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    for call in (
        lambda: cenote.fit(photos, freeze=True, log=["trackio"]),
        lambda: cenote.tournament(photos, pools=["gap"], log=["trackio"]),
    ):
        with pytest.raises(ImportError, match=r"cenote\[trackio\]"):
            call()
    assert not (photos.parent / "cache").exists()  # no features


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"pools": ["gap", "gap"]}, "pools has gap twice"),
        ({"epochs": "many"}, "epochs must be .*, got 'many'"),
        ({"epchs": 3}, "'cenote.tournament' has no option 'epchs'; did you mean 'epochs'"),
        ({"pool": ["gap"]}, ".* has no option 'pool'; did you mean 'pools'"),
        ({"pools": "gapp"}, "no pool 'gapp'; did you mean 'gap'"),
        ({"size": 64}, "size is an option .* give a recipe"),
    ],
)
def test_errors_of_functions_name_arguments_and_those_of_commands_options(
    photos: Path, options: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        cenote.tournament(photos, **options)
    if options == {"seeds": 0}:
        assert main(["tournament", str(photos), "-o", "t", "--seeds", "0"]) == 2
        assert "--seeds must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frezze": True}, "no option 'frezze'; did you mean 'freeze'"),
        ({"freeze": True, "scratch": True}, "leave out|exclude each other|needs trained weights"),
        ({"lr": 3e-4, "pool_options": {"gama": 1}, "pool": "simpool"}, "no option 'gama'"),
    ],
)
def test_errors_of_fit_name_arguments(photos: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        cenote.fit(photos, **options)
    assert "--" not in str(error.value)


def test_an_unreadable_image_is_a_warning(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    (photos / "a" / "broken.jpg").write_bytes(b"not an image")
    cenote.fit(photos, freeze=True, epochs=1, batch=8)
    (record,) = [r for r in caplog.records if "broken.jpg" in r.getMessage()]
    assert record.levelname == "WARNING"
