"""Metric learning: what a step computes, what waits, what is remembered, and that a resumed run ends the same."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cenote.data.loading import load as load_images
from cenote.data.splits import class_splits, metric_splits
from cenote.evaluate.zero_shot import predict_classes
from cenote.losses.mixing import Mixable
from cenote.metrics import zero_shot_prediction
from cenote.models import create_model, load
from cenote.models.head import Embedding
from cenote.train.build import build_model
from cenote.train.config import RunConfig
from cenote.train.configure import configure
from cenote.train.engine import Engine, Examples
from cenote.train.metric_run import MetricRun, build_start, train_metric
from cenote.train.tasks.metric import MetricModule, is_linear
from tests.synthetic import discs

from .running import stopped_after

MODEL = {"backbone": "test_vit", "size": 32, "scratch": True}
QUICK = {"epochs": 2, "batch": 12, "lr": 1e-3, "warmup": 0}


def configured(
    options: dict[str, Any] | None = None, settings: dict[str, Any] | None = None, **model: Any
) -> RunConfig:
    small = {"dim": 16, "images_per_class": 3}
    if not (options or {}).get("protocol"):
        small["validate"] = "last"
    pool = {"pool_options": {"prototypes": 4}} if model.get("pool", "gsp") == "gsp" else {}
    return configure(
        "metric",
        **{**MODEL, **pool, **model},
        options={**small, **(options or {})},
        settings=QUICK | (settings or {}),
    )


def run_of(config: RunConfig, folder: Path) -> MetricRun:
    splits = metric_splits(class_splits(discs()), config.options.validate)
    return MetricRun(config, splits, folder, torch.device("cpu"))


def module(config: RunConfig) -> MetricModule:
    return MetricModule(config.options, build_model(config), 8)


def part(images: int = 6, size: int = 32) -> Examples:
    torch.manual_seed(1)
    return Examples(torch.randn(images, 3, size, size), torch.arange(images) % 3)


def test_the_loss_of_a_step_is_the_losses_own() -> None:
    made = module(configured({"loss": "proxy-anchor"}, pool="gap"))
    batch = part()
    expected = made.loss(made.body.embed(batch.inputs), batch.labels)
    torch.testing.assert_close(made(batch), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("where", ["input", "feature", "embed"])
@pytest.mark.parametrize("pool", ["gap", "gem", "cls", "max", "gap+max"])
def test_metrix_gets_the_maps_the_images_and_what_embeds_them(where: str, pool: str) -> None:
    made = module(configured({"metrix": (where,), "mix": ("pos-neg",)}, pool=pool)).eval()
    batch, body = part(), made.body
    made.generator.manual_seed(3)
    found = made(batch)
    features = body.features(batch.inputs)
    tokens, _, cls, _ = features

    def embed(x: torch.Tensor) -> torch.Tensor:
        if pool == "cls":
            return body.embed_features(features._replace(cls=x[:, -1]))
        return body.embed_features(features._replace(tokens=x))

    maps = tokens if pool != "cls" else torch.cat([tokens, cls[:, None]], 1)
    z = body.embed(batch.inputs)
    whole = Mixable(
        batch.labels, z, maps, batch.inputs, embed, body.embed, linear=pool in ("gap", "cls")
    )
    expected = made.mixing(made.loss, whole, torch.Generator().manual_seed(3))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.isclose(found, made.loss(z, batch.labels))


def test_what_is_linear() -> None:
    assert is_linear(module(configured(pool="gap")).body) and is_linear(
        module(configured(pool="cls")).body
    )
    for other in (
        configured(pool="gem"),
        configured({"embedding_norm": "layer"}, pool="gap"),
        configured(pool="gap", model={"norm": "after"}),
    ):
        assert not is_linear(module(other).body)


def test_the_zero_shot_loss_takes_its_share() -> None:
    made = module(configured({"zero_shot": 0.25})).eval()
    batch, body = part(), made.body
    made.generator.manual_seed(5)
    found = made(batch)
    u, histograms = body.pool.with_histogram(body.features(batch.inputs).tokens)  # type: ignore[union-attr]
    zero = made.zero_shot(histograms, batch.labels, torch.Generator().manual_seed(5))  # type: ignore[misc]
    dml = made.loss(body.refine(u), batch.labels)
    torch.testing.assert_close(found, 0.75 * dml + 0.25 * zero, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"'gap'.*--pool gsp"):
        module(configured({"zero_shot": 0.1}, pool="gap"))


def test_prototypes_begin_at_tokens_of_the_first_batch_and_the_optimizer_has_them(
    tmp_path: Path,
) -> None:
    task = task_of(configured(), tmp_path)
    made, pool = task.module, task.module.body.pool
    held = [p for group in task.states[0].optimizer.param_groups for p in group["params"]]
    assert any(p is pool.prototypes for p in held)
    before = pool.prototypes.detach().clone()
    batch = task.prepare(next(iter(task.loader)), 1)[0]
    tokens = made.body.features(batch.inputs).tokens.detach()
    task.begin_step(0.0)
    made.train()(batch)
    places = torch.linspace(0, tokens.shape[0] * tokens.shape[1] - 1, 4).round().long()
    chosen = tokens.flatten(0, 1)[places]
    chosen = chosen / (chosen.norm(dim=1, keepdim=True) / 1.01).clamp(
        min=1
    )  # longer ones would learn slowly
    torch.testing.assert_close(pool.prototypes.detach(), chosen, rtol=1e-3, atol=1e-4)
    assert not torch.equal(before, pool.prototypes) and bool(made.fitted)
    after = pool.prototypes.detach().clone()
    made.train()(batch)
    assert torch.equal(after, pool.prototypes)  # once


@pytest.mark.parametrize("frozen", [False, True])
def test_positions_that_are_embedded_before_the_pool_are_not_embedded_again(
    frozen: bool, tmp_path: Path
) -> None:
    """As the networks of GSP are made [GSP Sec. 4.4]; where the sizes differ, the usual embedding follows."""
    changed = {"backbone": "lite0", "freeze": True, "scratch": False} if frozen else {}
    for local, behind in ((16, False), (8, True)):
        pool_options = {"prototypes": 4, "local": local}
        config = configured(
            {"zero_shot": 0.1, "metrix": ("feature",)},
            {"epochs": 1},
            pool_options=pool_options,
            **changed,
        )
        report = train_metric(discs(), tmp_path / str(local), config)
        saved = load(tmp_path / str(local))
        assert saved.pool.out_dim == local and isinstance(saved.embedding, Embedding) is behind
        assert (
            saved.embed(torch.randn(2, 3, 32, 32)).shape == (2, 16) and report.test["queries"] > 0
        )


def test_several_pooled_vectors_in_a_row_are_the_embedding(tmp_path: Path) -> None:
    """VLAD of 8 x 16 = 128 dimensions [GSP supplementary], here 4 x 4."""
    pool_options = {"k": 4, "local": 4}
    config = configured(
        {"metrix": ("feature",)}, {"epochs": 1}, pool="netvlad", pool_options=pool_options
    )
    report = train_metric(discs(), tmp_path, config)
    saved = load(tmp_path)
    vectors = saved.embed(torch.randn(2, 3, 32, 32))
    assert vectors.shape == (2, 4, 4) and saved.vector_dim == 16
    assert not isinstance(saved.embedding, Embedding) and report.test["queries"] > 0


def task_of(config: RunConfig, folder: Path) -> Any:
    run = run_of(config, folder)
    model = build_model(config)
    return run.task(MetricModule(config.options, model, run.classes), model)


def test_the_backbone_waits_for_the_embedding(tmp_path: Path) -> None:
    task = task_of(configured({"warm_up": 1.0}), tmp_path)
    body, states = task.module.body, []

    def note_weights() -> None:
        states.append({name: value.clone() for name, value in body.state_dict().items()})

    def validate() -> dict[str, dict[str, float]]:
        note_weights()
        return {"metric": {"score": 0.0}}

    note_weights()
    task.validate = validate
    Engine(task, task.settings, tmp_path).run()
    start, first, second = states
    moved = {name.partition(".")[0] for name in start if not torch.equal(first[name], start[name])}
    assert moved == {"embedding", "pool"}
    assert any(
        not torch.equal(second[name], start[name]) for name in start if name.startswith("backbone.")
    )


def test_the_statistics_of_batch_norm_stay_where_they_are_told_to() -> None:
    for frozen in (True, False):
        made = module(configured({"freeze_bn": frozen}, backbone="resnet_micro", size=64)).train()
        before = {
            k: v.clone() for k, v in made.body.backbone.state_dict().items() if "running" in k
        }
        made(part(size=64))
        after = made.body.backbone.state_dict()
        assert all(torch.equal(after[k], v) for k, v in before.items()) == frozen
        assert made.body.embedding.training


def test_proxies_and_label_embeddings_learn_faster(tmp_path: Path) -> None:
    task = task_of(
        configured({"loss": "proxy-nca++", "zero_shot": 0.1, "proxy_rate": 50.0}), tmp_path
    )
    (state,) = task.states
    own = {id(p) for p in [*task.module.loss.parameters(), *task.module.zero_shot.parameters()]}
    rates = {(id(p) in own): rate for group, rate in zip(state.optimizer.param_groups, state.base_lrs, strict=True)
             for p in group["params"]}  # fmt: skip
    assert rates == pytest.approx({True: 0.05, False: 1e-3})
    count = sum(len(group["params"]) for group in state.optimizer.param_groups)
    assert count == sum(p.requires_grad for p in task.module.parameters())


def test_the_memory_holds_the_last_steps_and_is_compared_with(tmp_path: Path) -> None:
    task = task_of(configured({"xbm": 30, "xbm_after": 1, "loss": "contrastive"}), tmp_path)
    engine = Engine(task, task.settings, tmp_path)
    batches = [batch for _ in range(2) for batch in task.loader][:4]
    seen = []
    made = task.module
    for number, batch in enumerate(batches):
        engine.step = number
        memory = made.memory.get() if int(made.memory.filled) else None
        memory = None if memory is None else tuple(x.clone() for x in memory)
        made.train()
        inputs = task.prepare(batch, 1)[0]
        task.begin_step(number / len(task.loader))
        if number:
            with torch.no_grad():
                z = made.body.embed(inputs.inputs)
                expected = made.loss(z, inputs.labels, memory)
                torch.testing.assert_close(made(inputs), expected, rtol=1e-4, atol=1e-5)
                seen.append(z)
        engine.train_step(batch)
    last = torch.cat(seen)[-30:]
    assert int(made.memory.filled) == 30
    held = made.memory.vectors
    assert all(torch.isclose(held, z, atol=1e-4).all(1).any() for z in last)


def test_batches_without_pairs_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    task = task_of(configured({"images_per_class": 1}), tmp_path)
    Engine(task, replace(task.settings, epochs=1), tmp_path).run()
    assert len([line for line in caplog.messages if not line.startswith("epoch ")]) == 1


RESUMED: dict[str, Any] = {
    "everything": (
        {
            "zero_shot": 0.1,
            "metrix": ("feature", "embed", "input"),
            "xbm": 20,
            "validate": "classes",
        },
        {},
        {},
    ),
    "proxies": (
        {"loss": "proxy-anchor", "rival": "proxy-synthesis", "warm_up": 0.5},
        {"amp": "bf16"},
        {},
    ),
    "messages": ({"loss": "libc", "proxy_rate": 1.0}, {}, {"pool": "gap"}),
    "miner": (
        {"loss": "pml/MarginLoss", "miner": "DistanceWeightedMiner"},
        {},
        {"pool": "gap"},
    ),
    "average": (
        {"loss": "contrastive", "rival": "mochi"},
        {"ema": 0.9, "clip": 1.0},
        {"pool": "simpool"},
    ),
}


@pytest.mark.parametrize("name", RESUMED)
def test_stopped_and_resumed_it_ends_the_same(name: str, tmp_path: Path) -> None:
    options, settings, model = RESUMED[name]
    config = configured(options, settings, **model)
    data = discs()
    whole = train_metric(data, tmp_path / "whole", config)
    assert set(whole.classes["train"]).isdisjoint(whole.classes["test"])
    with stopped_after(3):
        train_metric(data, tmp_path / "stopped", config)
    train_metric(data, tmp_path / "stopped", config, resume=True)
    one, other = (tmp_path / folder / "model.safetensors" for folder in ("whole", "stopped"))
    assert one.read_bytes() == other.read_bytes()
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "whole"))):
        train_metric(data, tmp_path / "whole", config)
    with pytest.raises(ValueError, match=r"\boptions\.dim\b.*\b16\b.*\b8\b"):
        changed = replace(config, options=replace(config.options, dim=8))
        train_metric(data, tmp_path / "whole", changed, resume=True)


def test_it_learns_what_is_asked_and_the_model_can_be_read(tmp_path: Path) -> None:
    config = configured({"validate": "classes"}, {"epochs": 12, "lr": 2e-3}, pool="gap")
    report = train_metric(discs(images=12), tmp_path, config)
    untrained = train_metric(
        discs(images=12),
        tmp_path / "no",
        replace(config, train=replace(config.train, lr=0.0, epochs=1)),
    )
    assert report.test["map@r"] > untrained.test["map@r"] + 10
    shares = {"recall@1", "recall@2", "recall@4", "recall@8", "p@1", "r_precision", "map@r"}
    assert shares | {"images", "queries", "without_match"} == set(report.test)
    assert (
        report.chosen_by == "classes"
        and report.val["images"] == 2 * 12
        and report.test["images"] == 96
    )
    model = load(tmp_path)
    assert model.vector_dim == 16 and model.head is None


def test_the_last_epoch_is_kept_where_nothing_chooses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = configured({"images_per_class": 5}, {"epochs": 3}, tokens="cls")
    report = train_metric(discs(), tmp_path, config)
    lines = [line for line in caplog.messages if line.startswith("epoch ")]
    assert len(lines) == 3 and not any("score" in line for line in lines)
    assert report.pool == "cls"  # GSP was not asked for anything
    rest = [re.findall(r"\d+", line) for line in caplog.messages if not line.startswith("epoch ")]
    assert [
        "10",
        "12",
        "2",
        "8",
        "5",
    ] in rest  # 10 images in a step instead of 12: 2 of 8 classes, 5 of each
    assert report.epoch == 3 and report.chosen_by == "last" and report.val is None


def test_losses_of_pytorch_metric_learning(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_metric_learning")
    report = train_metric(
        discs(), tmp_path, configured({"loss": "pml/TripletMarginLoss", "xbm": 12})
    )
    assert report.options["loss"] == "pml/TripletMarginLoss"
    with pytest.raises(ValueError, match="pml/TripletMarginLoss"):
        configured({"loss": "pml/TripletMarginLoss", "metrix": ("embed",)})


def test_a_run_can_begin_with_another(tmp_path: Path) -> None:
    train_metric(discs(), tmp_path / "one", configured())
    second = build_start(configured(scratch=False, weights=tmp_path / "one"))[0]
    first = load(tmp_path / "one")
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
    train_metric(
        discs(),
        tmp_path / "two",
        configured(None, {"lr": 0.0}, scratch=False, weights=tmp_path / "one"),
    )
    assert torch.equal(
        load(tmp_path / "two").pool.prototypes, first.pool.prototypes
    )  # not begun anew at tokens
    other = configured(scratch=False, weights=tmp_path / "one", pool_options={"prototypes": 3})
    assert not build_start(other)[1]
    with pytest.raises(ValueError, match=r"\bone\b.*'resnet_micro'"):
        build_start(
            configured(scratch=False, weights=tmp_path / "one", backbone="resnet_micro", size=64)
        )


def test_all_classes_are_trained_and_their_test_images_are_predicted(tmp_path: Path) -> None:
    """[GSP supplementary 2.3]"""
    data = discs(6, 8, lambda i: "train" if i < 24 else "test")
    config = configured({"test": "images"}, {"epochs": 1})
    report = train_metric(data, tmp_path, config)
    assert report.classes["train"] == report.classes["test"] == data.classes
    assert report.test["images"] == 24
    model, test = load(tmp_path), data.split("test")
    found = predict_classes(model, test)
    assert (found.classes, found.images) == (6, 24)
    (batch,) = load_images(test, model.backbone.preprocessing.transform(), 24)
    with torch.no_grad():
        features = model.features(batch.images)
        z = model.pool.with_histogram(features.tokens)[1]  # type: ignore[union-attr,operator]
        expected = zero_shot_prediction(z, model.embed_features(features), batch.labels)
    assert found.scores == pytest.approx({k: 100 * v for k, v in expected.items()}, abs=1.0)
    with pytest.raises(ValueError, match="prototypes of GSP"):
        predict_classes(create_model("resnet_micro", "gap", 0), test)
