"""SAR in every family it is for: its loss joins a step, its gradient reaches the attention, its rows have names."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cenote.cli import main
from cenote.data.transforms import train_transform
from cenote.losses import spatial_entropy
from cenote.models import PooledModel, create_model, load
from cenote.models.attention_maps import AttentionLogits
from cenote.models.surgery import ROWS, LastBlock
from cenote.train.config import OptimizationConfig
from cenote.train.configure import configure
from cenote.train.engine import Engine
from cenote.train.fit import fit
from cenote.train.tasks.supervised import Supervised
from tests.synthetic import squares

QUICK = OptimizationConfig(epochs=1, batch=4, lr=1e-3, sar=0.01)
SWIN = {"embed_dim": 24, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2), "window_size": 5}
# Backbone, pool, side, the last grid: the CLS token's attention, or the pool's own where there is no CLS token.
FAMILIES: list[tuple[str, str, int, int, dict[str, Any]]] = [
    ("vit_tiny_patch16_224", "cls", 224, 14, {"depth": -10}),
    ("deit_tiny_patch16_224", "cls", 96, 6, {"depth": -10}),
    ("deit_tiny_distilled_patch16_224", "cls", 96, 6, {"depth": -10}),
    ("cait_xxs24_224", "cls", 96, 6, {"depth": -22}),
    ("xcit_nano_12_p16_224", "cls", 96, 6, {}),
    ("pvt_v2_b0", "simpool", 160, 5, {}),
    ("swin_tiny_patch4_window7_224", "simpool", 160, 5, SWIN),
    ("coat_lite_tiny", "simpool", 128, 4, {"keep_cls": True}),
    ("coat_tiny", "simpool", 128, 4, {"keep_cls": True}),
    ("convnext_atto", "simpool", 160, 5, {}),
]


def step(
    model: PooledModel, side: int, folder: Path, settings: OptimizationConfig = QUICK
) -> Supervised:
    data = squares(4)
    task = Supervised(
        model, data.split("train"), data.split("val"), settings, train_transform(side)
    )
    engine = Engine(task, settings, folder)
    engine.train_step(next(iter(task.loader)))
    return task


@pytest.mark.parametrize(
    ("name", "pool", "side", "grid", "options"), FAMILIES, ids=[row[0] for row in FAMILIES]
)
def test_a_step_and_its_gradient(
    name: str, pool: str, side: int, grid: int, options: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = create_model(name, pool, 3, img_size=side, **options)
    with AttentionLogits(model.train()) as seen:
        model(torch.randn(2, 3, side, side))
    assert seen.last().shape[2:] == (grid, grid)
    loss = spatial_entropy(seen.last())
    loss.backward()
    moved = [
        n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0
    ]
    assert loss > 0, "one component alone has no entropy to lose: another seed is needed"
    assert any(n.startswith("pool.") if pool == "simpool" else "attn" in n for n in moved)
    assert any(n.startswith("backbone.") for n in moved) and not any(
        n.startswith("head") for n in moved
    )
    model.zero_grad()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    step(model, side, tmp_path)
    assert all(p.isfinite().all() for p in model.parameters())
    assert any(
        not torch.equal(before[n], p)
        for n, p in model.named_parameters()
        if n.startswith("backbone.")
    )


@pytest.mark.parametrize("pool", ["cls", "simpool"])
@pytest.mark.parametrize("row", ["sar", *ROWS])
def test_the_rows_of_table_1b_with_the_loss(row: str, pool: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = create_model("vit_micro", pool, 3, last_block=row)
    task = step(model, 64, tmp_path)
    assert task.sar is not None and task.sar.weight == 0.01
    (part,) = task.prepare(next(iter(task.loader)), 1)
    model.eval()
    with AttentionLogits(model) as seen:
        model(part.inputs)
    whole, task.sar = task.loss(model, part), None
    torch.testing.assert_close(
        whole - task.loss(model, part), 0.01 * spatial_entropy(seen.last()), rtol=1e-3, atol=1e-5
    )


def test_a_model_without_a_cls_token_is_refused() -> None:
    with pytest.raises(ValueError, match="swin_tiny_patch4_window7_224"):
        create_model("swin_tiny_patch4_window7_224", "cls", 3, **SWIN)
    with pytest.raises(ValueError, match=r"\blast_block\b"):
        create_model("pvt_v2_b0", "simpool", 3, last_block="sar")


def test_fine_tuning_keeps_the_last_block(tmp_path: Path) -> None:
    """With or without the loss, the skip connections do not come back [SAR App. D.3]."""
    model_options = {"backbone": "vit_micro", "pool": "cls", "scratch": True, "last_block": "sar"}
    first_config = configure("fit", **model_options, epochs=1, batch=8, sar=0.01)
    fit(squares(24), tmp_path / "first", first_config)
    other = squares(24)
    other = other.select([i for i in range(24) if i % 3 != 2])
    fit(other, tmp_path / "second", configure("fit", weights=tmp_path / "first", epochs=1, batch=8))
    first, second = load(tmp_path / "first"), load(tmp_path / "second")
    for model in (first, second):
        last: Any = model.backbone.model.blocks[-1]
        assert (
            isinstance(last, LastBlock)
            and not last.msa_skip
            and isinstance(last.norm2, torch.nn.Identity)
        )
    assert second.config["last_block"] == "sar" and second.head is not None
    with pytest.raises(ValueError, match="--last-block"):
        configure("fit", weights=tmp_path / "first", last_block="A")


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = [
        "fit",
        "world/tiny",
        "--scratch",
        "--backbone",
        "vit_micro",
        "--epochs",
        "1",
        "-o",
        str(tmp_path / "run"),
    ]
    assert main([*whole, "--pool", "cls", "--last-block", "F"]) == 0
    assert load(tmp_path / "run").config["last_block"] == "F"
    assert '"sar": 0.01' in (tmp_path / "run" / "results.json").read_text()
    small = [
        "fit",
        "world/tiny",
        "--scratch",
        "--backbone",
        "vit_micro",
        "--size",
        "32",
        "--epochs",
        "1",
    ]
    assert (
        main(
            [
                *small,
                "--pool",
                "simpool",
                "--keep-cls",
                "--sar",
                "0.02",
                "-o",
                str(tmp_path / "kept"),
            ]
        )
        == 0
    )
    assert load(tmp_path / "kept").config["keep_cls"] is True
    assert '"sar": 0.02' in (tmp_path / "kept" / "results.json").read_text()
    capsys.readouterr()
    for wrong in (["--backbone", "resnet10t"], ["--freeze"], ["--freeze", "--sar", "0.01"]):
        given = [
            "fit",
            "world/tiny",
            "--last-block",
            "sar",
            "--epochs",
            "1",
            *wrong,
            "-o",
            str(tmp_path / "no"),
        ]
        assert main(given) == 2
        assert capsys.readouterr().err.count("\n") == 1
