"""DINO and MoCo: the teacher follows, the centre moves, the last layer waits, views of a size run together."""

import copy
import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from cenote.evaluate.validators import KnnValidator
from cenote.losses import dino_loss, moco_loss, spatial_entropy
from cenote.models import load
from cenote.models.attention_maps import AttentionLogits
from cenote.train.augment import build_augmentation
from cenote.train.build import build_model
from cenote.train.config import (
    DinoConfig,
    MocoConfig,
    MultiCropConfig,
    OptimizationConfig,
    RunConfig,
)
from cenote.train.configure import configure
from cenote.train.engine import Engine
from cenote.train.recipes import parse_recipe
from cenote.train.self_supervised import (
    TASK_OF,
    Crops,
    Dino,
    DinoModule,
    MocoModule,
    adapted_options,
    group_by_size,
    train_without_labels,
)
from tests.synthetic import squares

from .running import stopped_after

SMALL = {"out": 64, "hidden": 32, "bottleneck": 16}
QUICK = OptimizationConfig(epochs=3, batch=8, lr=1e-3, weight_decay=0.04, warmup=1)
MODEL = {"backbone": "test_vit", "pool": "simpool", "size": 32}
CONFIG = replace(
    configure("dino", **MODEL, local_size=16, local=2, options=SMALL),  # type: ignore[arg-type]
    train=QUICK,
)
MOCO = replace(configure("moco", **MODEL, options={"out": 16, "hidden": 32}), train=QUICK)  # type: ignore[arg-type]


def task(settings: OptimizationConfig = QUICK, **options: object) -> Dino:
    model = build_model(CONFIG)
    data = squares(24)
    chosen = DinoConfig(**{**SMALL, **options})  # type: ignore[arg-type]
    return Dino(
        model,
        data.split("train"),
        data.split("val"),
        settings,
        build_augmentation(CONFIG, model),
        chosen,
    )


def test_views_of_a_size_run_together_and_give_the_loss_of_each_alone() -> None:
    torch.manual_seed(0)
    module = DinoModule(build_model(CONFIG), DinoConfig(**SMALL)).eval()  # type: ignore[arg-type]
    views = [torch.randn(3, 3, size, size) for size in (32, 32, 16, 16)]
    crops = group_by_size(views)
    assert [len(group) for group in crops.groups] == [6, 6] and len(crops) == 3
    loss, teacher = module(crops)
    student = torch.stack([module.head(module.student.embed(view)) for view in views])
    alone = torch.stack([module.teacher_head(module.teacher.embed(view)) for view in views[:2]])
    torch.testing.assert_close(teacher, alone, rtol=1e-4, atol=1e-5)
    # Divided by a temperature of 0.04, differences of 1e-6 become 25 times as large.
    torch.testing.assert_close(
        loss, dino_loss(student, alone, module.centre, 0.1, 0.04), rtol=1e-4, atol=1e-4
    )


def test_a_step_moves_teacher_centre_and_schedules_as_published(tmp_path: Path) -> None:
    settings = replace(QUICK, warmup=0)
    dino = task(settings, freeze_last=1.0, warmup_t_epochs=2.0)
    engine = Engine(dino, settings, tmp_path)
    module = dino.module
    before = copy.deepcopy(module.state_dict())
    batch = next(iter(dino.loader))
    dino.loader.seek(0)
    engine.train_step(batch)
    after = module.state_dict()
    momentum = dino.momentum
    assert momentum == pytest.approx(0.996) and module.temperature == pytest.approx(0.04)
    for name in [n for n in before if n.startswith("teacher.") and before[n].is_floating_point()]:
        student = after[name.replace("teacher.", "student.", 1)]
        if "running" not in name:
            expected = momentum * before[name] + (1 - momentum) * student
            torch.testing.assert_close(after[name], expected, rtol=1e-4, atol=1e-7)
    last = [n for n in before if n.startswith("head.last_layer")]
    assert last and all(torch.equal(before[n], after[n]) for n in last)  # it waits for an epoch
    assert any(not torch.equal(before[n], after[n]) for n in before if n.startswith("head.mlp"))
    with torch.no_grad():
        views = dino.prepare(batch, 1)[0]
        old = DinoModule(build_model(CONFIG), dino.options).train()
        old.load_state_dict(before)
        outputs = old(views)[1]
    torch.testing.assert_close(after["centre"], 0.1 * outputs.mean((0, 1)), rtol=1e-3, atol=1e-5)
    dino.begin_step(1.0)
    assert module.temperature == pytest.approx(0.055) and not dino.freeze_last_layer
    dino.begin_step(3.0)
    assert dino.momentum == pytest.approx(1) and module.temperature == pytest.approx(0.07)
    assert {round(g["weight_decay"], 6) for g in dino.states[0].optimizer.param_groups} == {
        0.0,
        0.4,
    }


def test_gradients_are_clipped_tensor_by_tensor() -> None:
    dino = task(clip=0.5, freeze_last=0.0)
    dino.begin_step(0.0)
    for p in dino.module.parameters():
        if p.requires_grad:
            p.grad = torch.full_like(p, 3.0)
    dino.before_update(dino.module)
    norms = [float(p.grad.norm()) for p in dino.module.parameters() if p.grad is not None]
    assert norms and max(norms) <= 0.5 + 1e-4 and min(norms) > 0.4


def test_moco_asks_each_view_for_the_other_one() -> None:
    torch.manual_seed(0)
    module = MocoModule(build_model(MOCO), MocoConfig(out=16, hidden=32)).eval()
    one, other = torch.randn(3, 3, 32, 32), torch.randn(3, 3, 32, 32)

    def query(x: torch.Tensor) -> torch.Tensor:
        return module.predictor(module.projector(module.student.embed(x)))

    def key(x: torch.Tensor) -> torch.Tensor:
        return module.teacher_projector(module.teacher.embed(x))

    expected = moco_loss(query(one), key(other)) + moco_loss(query(other), key(one))
    torch.testing.assert_close(module(group_by_size([one, other])), expected, rtol=1e-4, atol=1e-5)
    frozen = [n for n, p in module.student.named_parameters() if not p.requires_grad]
    assert frozen and all("patch_embed" in name or "pos_embed" in name for name in frozen)


@pytest.mark.parametrize("backbone", ["vit_micro", "resnet_micro"])
def test_batch_norm_of_moco_sees_one_view_at_a_time(backbone: str) -> None:
    """The published forward pass, written out: loss, gradients and running statistics."""
    config = replace(MOCO, model=replace(MOCO.model, backbone=backbone, backbone_options={}))
    module = MocoModule(build_model(config), MocoConfig(out=16, hidden=32)).train()
    by_hand = copy.deepcopy(module)
    one, other = torch.randn(4, 3, 32, 32), torch.randn(4, 3, 32, 32) + 1
    q1 = by_hand.predictor(by_hand.projector(by_hand.student.embed(one)))
    q2 = by_hand.predictor(by_hand.projector(by_hand.student.embed(other)))
    k1 = by_hand.teacher_projector(by_hand.teacher.embed(one))
    k2 = by_hand.teacher_projector(by_hand.teacher.embed(other))
    expected = moco_loss(q1, k2) + moco_loss(q2, k1)
    expected.backward()
    loss = module(group_by_size([one, other]))
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    published = dict(by_hand.named_parameters())
    for name, p in module.named_parameters():
        if p.requires_grad:
            gradient = published[name].grad
            assert p.grad is not None and gradient is not None, name
            scale = float(gradient.abs().max())
            torch.testing.assert_close(p.grad, gradient, rtol=1e-2, atol=1e-3 * scale + 1e-6)
    statistics = dict(by_hand.named_buffers())
    for name, value in module.named_buffers():
        torch.testing.assert_close(value, statistics[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("backbone", "projector", "predictor"),
    [("vit_micro", "LNALNALN", "LNALN"), ("resnet_micro", "LNALN", "LNAL")],
)
def test_heads_of_moco_are_the_published_ones(
    backbone: str, projector: str, predictor: str
) -> None:
    """L: linear without bias, N: BatchNorm, A: ReLU."""
    config = replace(MOCO, model=replace(MOCO.model, backbone=backbone, backbone_options={}))
    module = MocoModule(build_model(config), MocoConfig(out=16, hidden=32))
    letters = {nn.Linear: "L", nn.BatchNorm1d: "N", nn.ReLU: "A"}
    for head, layers in ((module.projector, projector), (module.predictor, predictor)):
        assert "".join(letters[type(layer)] for layer in head) == layers
        assert all(layer.bias is None for layer in head if isinstance(layer, nn.Linear))
        if isinstance(head[-1], nn.BatchNorm1d):
            assert not head[-1].affine


@pytest.mark.parametrize("pool", ["cls", "simpool"])
def test_positions_of_moco_are_sines_and_cosines(pool: str) -> None:
    model = build_model(replace(MOCO, model=replace(MOCO.model, pool=pool)))
    MocoModule(model, MocoConfig(out=16, hidden=32))
    encoder = model.backbone.model
    (positions,) = encoder.pos_embed.detach()  # (prefix + H W, D)
    (rows, columns), dim = encoder.patch_embed.grid_size, positions.shape[1]
    prefix = len(positions) - rows * columns
    assert prefix == (pool == "cls") and not positions[:prefix].any()
    for i, j, c in itertools.product(range(rows), range(columns), (0, 1, dim // 4 - 1)):
        omega = 1 / 10_000 ** (c / (dim // 4))
        values = positions[prefix + i * columns + j].unflatten(0, (4, -1))[:, c]
        expected = [math.sin(i * omega), math.cos(i * omega)]
        expected += [math.sin(j * omega), math.cos(j * omega)]
        torch.testing.assert_close(values, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert not encoder.pos_embed.requires_grad


def test_crops_of_moco_are_from_8_percent() -> None:
    recipe = parse_recipe(
        "task: moco\nmodel: {backbone: vit_micro}\ntrain: {}\ndata: imagenet\npaper: {}", "mine"
    )
    for config in (configure("moco"), recipe.config):
        assert isinstance(config.augment, MultiCropConfig) and config.augment.scale == (0.08, 1.0)
    augment = configure("dino").augment
    assert isinstance(augment, MultiCropConfig) and augment.scale == (0.25, 1.0)


@pytest.mark.parametrize("config", [CONFIG, MOCO])
def test_the_last_epoch_is_kept(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the first one has the highest k-NN accuracy."""
    scores = iter([5.0, 90.0, *range(80, 0, -10)])  # before training, then after each epoch
    monkeypatch.setattr(KnnValidator, "__call__", lambda self, model: {"k-NN": next(scores)})
    config = replace(config, train=replace(config.train, epochs=3))
    report = train_without_labels(squares(24), tmp_path, config)
    assert report.epoch == 3 and report.knn == 70.0 and report.knn_untrained == 5.0


def test_moco_trains_and_its_teacher_follows(tmp_path: Path) -> None:
    report = train_without_labels(squares(24), tmp_path, MOCO)
    assert report.method == "moco" and report.knn is not None
    assert load(tmp_path).head is None


@pytest.mark.parametrize("pool", ["cls", "simpool"])
@pytest.mark.parametrize("method", ["dino", "moco"])
def test_the_prior_is_of_the_students_large_views(method: str, pool: str) -> None:
    config = CONFIG if method == "dino" else MOCO
    model_config = replace(config.model, pool=pool)
    config = replace(config, model=model_config, train=replace(QUICK, sar=0.5))
    model, train = build_model(config), squares(24).split("train")
    transform, options = build_augmentation(config, model), adapted_options(config, 18)
    task = TASK_OF[method](model, train, None, config.train, transform, options)
    task.begin_step(0.0)
    (part,) = task.prepare(next(iter(task.loader)), 1)
    task.module.eval()
    whole, alone = task.loss(task.module, part), task.main_loss(task.module, part)
    with AttentionLogits(model) as seen:
        model.embed(part.groups[0])
    torch.testing.assert_close(
        whole - alone, 0.5 * spatial_entropy(seen.last()), rtol=1e-3, atol=1e-5
    )


def test_the_prior_is_of_both_views_if_batch_norm_sees_one_at_a_time() -> None:
    torch.manual_seed(0)
    config = replace(MOCO, model=replace(MOCO.model, backbone="resnet_micro", stride=4))
    assert isinstance(config.options, MocoConfig)
    module = MocoModule(build_model(config), config.options).eval()
    views = torch.randn(8, 3, 32, 32)
    with AttentionLogits(module.student) as seen:
        module(Crops([views], 4))
    with AttentionLogits(module.student) as together:
        module.student.embed(views)
    assert module.has_batch_norm
    torch.testing.assert_close(seen.last(), together.last(), rtol=1e-3, atol=1e-4)


def test_the_teacher_drops_nothing() -> None:
    drop = {"drop_path_rate": 0.5, "proj_drop_rate": 0.5}
    config = replace(CONFIG, model=replace(CONFIG.model, backbone_options=drop))
    module = DinoModule(build_model(config), DinoConfig(**SMALL)).train()  # type: ignore[arg-type]
    crops = Crops([torch.randn(4, 3, 32, 32)], 2)
    with torch.no_grad():
        one, other = module(crops), module(crops)
    assert torch.equal(one[1], other[1]) and not torch.equal(one[0], other[0])


def test_stopped_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    data = squares(24)
    whole = train_without_labels(data, tmp_path / "whole", CONFIG)
    assert whole.knn is not None and whole.images == 18
    with stopped_after(4):
        train_without_labels(data, tmp_path / "stopped", CONFIG)
    train_without_labels(data, tmp_path / "stopped", CONFIG, resume=True)
    one, other = (tmp_path / name / "model.safetensors" for name in ("whole", "stopped"))
    assert one.read_bytes() == other.read_bytes()
    (tmp_path / "stopped" / "checkpoint.pt").unlink()  # as if killed before the first one
    train_without_labels(data, tmp_path / "stopped", CONFIG, resume=True)
    assert one.read_bytes() == other.read_bytes()
    assert len((tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()) == QUICK.epochs
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "whole"))):
        train_without_labels(data, tmp_path / "whole", CONFIG)
    with pytest.raises(ValueError, match="tau"):
        configure("dino", options={"tau": 1})
