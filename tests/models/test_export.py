"""An exported file gives PyTorch's numbers, at batches and sizes it was not traced at."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm.layers.padding
import torch
from timm.layers import pos_embed_sincos
from timm.models import vision_transformer
from torch import Tensor

from cenote.extras import MissingExtra
from cenote.models import PooledModel, create_model
from cenote.models.export import OutputAndMap, export_model
from tests.toy_models import NARROW

TINY_VIT = ("vit_tiny_patch16_224", {"depth": -11, "embed_dim": 48})
RESNET = ("resnet18", NARROW)
CONVNEXT = ("convnext_atto", {"depths": (1, 1, 1, 1)})


def make(which: tuple[str, dict[str, Any]], pool: str, num_classes: int = 5) -> PooledModel:
    torch.manual_seed(0)
    return create_model(which[0], pool, num_classes, **which[1]).eval()


def images(*size: int) -> Tensor:
    return torch.rand(*size, generator=torch.Generator().manual_seed(1))


def onnx_of(path: Path) -> tuple[Any, Callable[[Tensor], list[Tensor]]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session, lambda x: [
        torch.from_numpy(out) for out in session.run(None, {"images": x.numpy()})
    ]


@torch.no_grad()
def assert_agrees(
    given: Callable[[Tensor], Any], model: PooledModel, *sizes: tuple[int, int, int, int]
) -> None:
    for size in sizes:
        x = images(*size)
        logits, maps = given(x)
        _, a = model.pool_features(model.features(x))
        assert a is not None and maps.shape == a.shape and a.shape[-2:] == model.features(x).grid
        # At another size, position embeddings are resampled, by a kernel of the runtime's own: 2e-4
        # was seen.
        assert (logits - model(x)).abs().max() <= 5e-4 and (maps - a).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("which", "step"),
    [
        (TINY_VIT, 16),
        pytest.param(RESNET, 1, marks=pytest.mark.slow),
        pytest.param(CONVNEXT, 1, marks=pytest.mark.slow),
        pytest.param(("lite0", {}), 32, marks=pytest.mark.slow),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_onnx_at_other_batches_and_sizes(which: Any, step: int, tmp_path: Path) -> None:
    import onnx

    model = make(which, "simpool")
    made = export_model(model, tmp_path / "m.onnx")
    session, run = onnx_of(made.path)
    assert [i.name for i in session.get_inputs()] == ["images"]
    assert [o.name for o in session.get_outputs()] == ["logits", "map"]
    assert_agrees(run, model, (1, 3, 224, 224), (4, 3, 96, 160), (2, 3, 256, 64))
    assert made.step == step and made.difference < 1e-4
    assert made.outputs == {"logits": ("batch", "5"), "map": ("batch", "1", "rows", "columns")}
    assert max(o.version for o in onnx.load(made.path).opset_import) >= 20
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_torch_program_at_other_batches_and_sizes(tmp_path: Path) -> None:
    model = make(RESNET, "simpool")
    model.train()
    made = export_model(model, tmp_path / "m.pt2", "torch")
    assert model.training  # as it was
    program = torch.export.load(made.path).module()
    assert_agrees(program, model.eval(), (1, 3, 224, 224), (4, 3, 100, 61))
    text = str(made)
    assert (
        str(made.path) in text
        and "images (batch, 3, height, width)" in text
        and f"{made.difference:.1e}" in text
    )


@pytest.mark.parametrize("format", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
@torch.no_grad()
def test_rotary_positions_at_other_sizes(format: Any, tmp_path: Path) -> None:
    """DINOv3 divides positions by the size of the grid, which must not become a constant."""
    dinov3 = {"depth": 1, "embed_dim": 48, "num_heads": 3}
    model = make(("vit_tiny_patch16_dinov3_qkvb", {"backbone_options": dinov3}), "own", 0)
    for parameter in model.backbone.parameters():
        if parameter.ndim == 2:
            parameter.mul_(20)  # attention that depends on positions
    made = export_model(model, tmp_path / "m", format, output="embedding")
    assert made.inputs == {"images": ("batch", "3", "height", "width")}
    run = onnx_of(made.path)[1] if format == "onnx" else torch.export.load(made.path).module()
    x = images(1, 3, 320, 160)
    assert (run(x)[0] - model.embed(x)).abs().max() < 1e-5
    x = images(1, 3, 160, 320)
    assert (run(x)[0] - model.embed(x)).abs().max() < 1e-5


@pytest.mark.slow
def test_a_pool_without_a_map_has_one_output(tmp_path: Path) -> None:
    model = make(TINY_VIT, "cls", 0)
    made = export_model(model, tmp_path / "m.onnx", output="embedding")
    session, run = onnx_of(made.path)
    assert [o.name for o in session.get_outputs()] == ["embedding"] and made.outputs == {
        "embedding": ("batch", "48")
    }
    with torch.no_grad():
        assert (
            run(images(1, 3, 64, 128))[0] - model.embed(images(1, 3, 64, 128))
        ).abs().max() < 1e-4


def test_tracing_leaves_timm_as_it_was(tmp_path: Path) -> None:
    grid = pos_embed_sincos._build_grid
    before = vision_transformer.resample_abs_pos_embed, timm.layers.padding.get_same_padding
    export_model(make(TINY_VIT, "gap"), tmp_path / "m.pt2", "torch")
    assert (
        vision_transformer.resample_abs_pos_embed,
        timm.layers.padding.get_same_padding,
    ) == before
    assert pos_embed_sincos._build_grid is grid


def test_a_file_that_differs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.pt2").write_text("old")
    model = make(RESNET, "gap")
    real = OutputAndMap.forward
    calls: list[int] = []

    def drifting(self: OutputAndMap, images: Tensor) -> tuple[Tensor, ...]:
        calls.append(1)
        return tuple(
            out + (0.0 if torch.compiler.is_compiling() else 0.01) for out in real(self, images)
        )

    monkeypatch.setattr(OutputAndMap, "forward", drifting)
    with pytest.raises(RuntimeError, match=r"\de-0\d"):  # the difference
        export_model(model, tmp_path / "m.pt2", "torch")
    assert (
        calls
        and [p.name for p in tmp_path.iterdir()] == ["m.pt2"]
        and (tmp_path / "m.pt2").read_text() == "old"
    )


def test_refusals_come_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(RESNET, "gap", 0)
    with pytest.raises(ValueError, match="--output embedding"):
        export_model(model, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="'tf'"):
        export_model(model, tmp_path / "m.onnx", "tf")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        export_model(model, tmp_path / "nowhere" / "m.onnx", output="embedding")

    def missing(module: str, extra: str) -> Any:
        raise MissingExtra(f"{module} {extra}")

    monkeypatch.setattr("cenote.models.export.require", missing)
    with pytest.raises(MissingExtra, match="onnx onnx"):
        export_model(model, tmp_path / "m.onnx", output="embedding")


COMPILED = [
    (TINY_VIT, "simpool"),
    pytest.param(TINY_VIT, "cls", marks=pytest.mark.slow),
    pytest.param(TINY_VIT, "gap", marks=pytest.mark.slow),
    (RESNET, "simpool"),
    pytest.param(RESNET, "gap", marks=pytest.mark.slow),
    *[
        pytest.param(w, p, marks=pytest.mark.slow)
        for w in (CONVNEXT, ("lite0", {}))
        for p in ("gap", "simpool")
    ],
]


@pytest.mark.parametrize(("which", "pool"), COMPILED, ids=str)
def test_compiles_without_graph_breaks(which: Any, pool: str) -> None:
    torch._dynamo.reset()
    model = make(which, pool)
    # lite0 computes its padding from the size: a graph for all sizes at once takes PyTorch minutes
    # of algebra.
    dynamic = False if which[0] == "lite0" else None
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for size in (64, 96):  # the second size is another graph, not an error
        x = images(2, 3, size, size)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
