"""Probes of frozen backbones: what each reads, that nothing is selected on test images, resuming."""

import json
import math
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

import cenote
from cenote.backbones import create_backbone
from cenote.data import open_dataset, pack
from cenote.models.frozen import FrozenBackbone
from cenote.predict.feature_cache import cached_features
from cenote.report.probing import BackboneResult, ProbeResult, probe_columns
from cenote.train.configure import configure
from cenote.train.fit import fit
from cenote.train.log import Stopped
from cenote.train.probing import (
    NEIGHBOURS,
    TEMPERATURES,
    Encoder,
    ProbeConfig,
    probe_candidates,
    probe_splits,
    run_probe,
)
from cenote.train.recipes import load_recipe
from tests.synthetic import rectangles, squares

RECIPE = load_recipe("probing/ep")
QUICK = replace(RECIPE.config.train, epochs=2, warmup=0.5, checkpoint_minutes=0.0)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return encoder_of("test_vit", tmp_path_factory.mktemp("weights"))


def encoder_of(name: str, folder: Path) -> Encoder:
    """A small network with random weights, always the same, in a file."""
    torch.manual_seed(0)
    path = folder / f"{name}.safetensors"
    save_file(timm.create_model(name).state_dict(), path)
    return Encoder(name, path)


def test_weights_of_several_runs_have_their_own_folders(tmp_path: Path) -> None:
    runs = [Encoder("lite0", tmp_path / run / "model.safetensors") for run in ("a", "b")]
    assert runs[0].folder != runs[1].folder


def quick(*encoders: Encoder, **options: Any) -> ProbeConfig:
    options = {"seeds": 2, "batch": 16, "rates": (1.6, 8.0), **options}
    return ProbeConfig(encoders, RECIPE, QUICK, **options)


def numbers(folder: Path) -> dict[str, Any]:
    """All of results.json but the times."""
    report: dict[str, Any] = json.loads((folder / "results.json").read_text())
    for row in report["rows"]:
        del row["seconds"]
    return report


def test_a_transformer_and_a_convolutional_network(tmp_path: Path, vit: Encoder) -> None:
    resnet, folder = encoder_of("test_resnet", tmp_path), tmp_path / "run"
    report = run_probe(open_dataset("world/tiny"), folder, quick(vit, resnet))
    first, second = report.rows
    assert list(first.probes) == ["k-NN", "LP", "EP", "EP [CLS; patches]"]
    assert list(second.probes) == ["k-NN", "LP", "EP"]
    assert (first.reads, second.reads) == ("CLS", "average")
    for row in report.rows:
        assert row.images == report.rows[0].images and row.images["test"] == 18
        for name, probe in row.probes.items():
            assert probe.failed is None and len(probe.accuracy) == (1 if name == "k-NN" else 2)
            assert "lr" not in probe.selected or probe.selected["lr"] in (1.6, 8.0)
    head = 64 * report.classes + report.classes
    assert first.probes["LP"].trained == head
    assert first.probes["EP"].trained == head + 32 * 64 + 64 * 64  # queries and W_V
    saved = json.loads((folder / "results.json").read_text())
    assert saved == json.loads(json.dumps(report.to_json()))
    names = [column["name"] for column in saved["table"]["columns"]]
    described, probed = ["backbone", "weights", "size", "reads"], list(first.probes)
    assert names == described + probed


def test_nearest_neighbours_against_a_loop(tmp_path: Path, vit: Encoder) -> None:
    data = open_dataset("world/tiny")
    probe = run_probe(data, tmp_path / "run", quick(vit, seeds=1)).rows[0].probes["k-NN"]
    splits = probe_splits(data, 0)
    frozen = FrozenBackbone(create_backbone(vit.backbone, weights=vit.weights))
    vectors, labels = {}, {}
    for name, dataset in splits._asdict().items():
        cached = cached_features(frozen.backbone, dataset)
        cls = cached.features(range(len(cached))).cls
        assert cls is not None
        vectors[name], labels[name] = cls, cached.labels

    def accuracy(split: str, k: int, temperature: float) -> float:
        pairs = zip(vectors[split], labels[split], strict=True)
        right = [vote(vectors["train"], labels["train"], x, k, temperature) == y for x, y in pairs]
        return 100 * sum(map(float, right)) / len(right)

    val = {(k, t): accuracy("val", k, t) for k in NEIGHBOURS for t in TEMPERATURES}
    k, temperature = next(choice for choice, score in val.items() if score == max(val.values()))
    assert probe.selected == {"k": k, "temperature": temperature}
    assert probe.val == pytest.approx([max(val.values())])
    assert probe.accuracy == pytest.approx([accuracy("test", k, temperature)])


def vote(memory: Tensor, labels: Tensor, query: Tensor, k: int, temperature: float) -> int:
    """Return the class with most votes: exp(cosine / temperature) of each of the k nearest."""
    cosines = [float(query @ m / query.norm() / m.norm()) for m in memory]
    votes: dict[int, float] = {}
    for i in sorted(range(len(memory)), key=lambda i: -cosines[i])[:k]:
        label = int(labels[i])
        votes[label] = votes.get(label, 0.0) + math.exp(cosines[i] / temperature)
    return max(votes, key=lambda label: votes[label])


def test_the_test_images_select_nothing(tmp_path: Path, vit: Encoder) -> None:
    data = open_dataset("world/tiny")
    rng = torch.Generator().manual_seed(0)
    mixed = [data.classes[i] for i in torch.randint(len(data.classes), (len(data),), generator=rng)]
    records = [
        record._replace(label=mixed[i]) if record.split == "test" else record
        for i, record in enumerate(data)
    ]
    confused = pack(records, data.root, data.name, classes=data.classes)
    confused.pixels = data.pixels
    reports = [
        run_probe(dataset, tmp_path / name, quick(vit, seeds=1))
        for name, dataset in (("true", data), ("confused", confused))
    ]
    true, false = (report.rows[0].probes for report in reports)
    for name in true:
        assert true[name].selected == false[name].selected and true[name].val == false[name].val
    assert any(true[name].accuracy != false[name].accuracy for name in true)


def test_without_a_test_split_one_is_held_out() -> None:
    for data in (rectangles(60), squares(60)):  # without splits; with train and val
        splits = probe_splits(data, 0)
        names = [{r.image for r in part} for part in splits if part is not None]
        assert len(names) == 3 and not set.intersection(*names)
        assert sum(map(len, names)) == len(set.union(*names)) == 60
    assert names[2] == {record.image for record in squares(60).split("val")}


class Interrupt(cenote.Callback):
    """Ctrl-C in an epoch of a run, counted over all trainings."""

    def __init__(self, epoch: int) -> None:
        self.left = epoch

    def on_epoch(self, epoch: int, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("epoch", [1, 3, 9])  # selecting learning rates; first seed; second seed
def test_an_interrupted_run_ends_with_the_same_numbers(
    tmp_path: Path, vit: Encoder, epoch: int
) -> None:
    options: dict[str, Any] = {
        "backbone": vit.backbone, "weights": vit.weights, "lr": (1.6, 8.0), "seeds": 2, "epochs": 6, "batch": 16,
    }  # fmt: skip
    cenote.probe(squares(), tmp_path / "whole", **options)
    with pytest.raises(Stopped, match="interrupted"):
        cenote.probe(squares(), tmp_path / "run", callbacks=[Interrupt(epoch)], **options)
    assert not (tmp_path / "run" / "results.json").exists()
    with pytest.raises(ValueError, match="already has probes"):
        cenote.probe(squares(), tmp_path / "run", **options)
    result = cenote.probe(squares(), tmp_path / "run", resume=True, **options)
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")
    assert str(result) == (tmp_path / "run" / "table.txt").read_text().rstrip()


def test_a_resumed_run_adds_seeds_and_backbones_and_changes_nothing(
    tmp_path: Path, vit: Encoder
) -> None:
    resnet = encoder_of("test_resnet", tmp_path)
    run_probe(squares(), tmp_path / "whole", quick(vit, resnet))
    run_probe(squares(), tmp_path / "run", quick(vit, seeds=1))
    run_probe(squares(), tmp_path / "run", quick(vit, resnet), resume=True)
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")
    with pytest.raises(ValueError, match=r"must not change: rates was \[1.6, 8.0\]"):
        run_probe(squares(), tmp_path / "run", quick(vit, resnet, rates=(1.6,)), resume=True)


def test_what_the_probes_read() -> None:
    expected = {
        "test_vit": ["cls cls", "ep patches", "ep all"],
        # It pools with attention, registers and patches but no CLS token.
        "test_vit3": ["gap patches", "ep patches", "own all"],
        "test_resnet": ["gap patches", "ep patches"],
        # The mean of CLS and the distillation token attends to nothing.
        "deit_tiny_distilled_patch16_224": ["cls cls", "ep patches", "ep all", "own all"],
    }
    for name, probes in expected.items():
        candidates = probe_candidates(FrozenBackbone(create_backbone(name)))
        assert [f"{c.pool} {c.tokens}" for c in candidates] == probes, name


def test_an_encoder_with_a_pooling_of_its_own(tmp_path: Path) -> None:
    report = run_probe(squares(), tmp_path / "run", quick(encoder_of("test_vit3", tmp_path)))
    row = report.rows[0]
    assert {"k-NN own", "LP own"} <= row.probes.keys() and row.reads == "average"
    assert row.probes["LP own"].trained == row.probes["LP"].trained  # the pool is frozen


def test_few_images_have_a_smaller_batch(vit: Encoder) -> None:
    config = ProbeConfig((vit,), RECIPE, QUICK)
    many, few = (config.training(vit, images) for images in (1_281_167, 500))
    assert (many.settings.batch, few.settings.batch) == (4096, 31)
    assert many.rates == few.rates == (1.6, 8.0, 24.0)
    # LARS adapts the steps of a pool's matrices: they need no learning rate of their own.
    assert [rates.pool_lr_factor for rates in few.choices(has_matrices=True)] == [1.0] * 3


def test_fit_takes_the_recipe(tmp_path: Path, vit: Encoder) -> None:
    config = configure(
        "fit", RECIPE, backbone=vit.backbone, weights=vit.weights, epochs=1, batch=16
    )
    report = fit(squares(), tmp_path / "run", config, object_map=False)
    assert report.pool == "ep" and set(report.rates) == {"1.6", "8", "24"}
    assert cenote.load(tmp_path / "run").config["head_norm"] == "batch"


def test_cells() -> None:
    assert str(ProbeResult([50.0, 52.0], [1.0, 2.0])) == "51.0 ± 1.4"
    assert str(ProbeResult([50.0], [1.0])) == "50.0"
    assert str(ProbeResult([50.0], failed="diverged")) == "failed"
    probes = {"EP": ProbeResult([50.0])}
    row = BackboneResult("x", None, 224, [7, 7], 8, "average", probes, {}, [], {}, {})
    assert [c.name for c in probe_columns([row])] == ["backbone", "size", "reads", "EP"]
