"""ONNX files of lower precision: float32 outside, and the loss that is reported."""

from pathlib import Path

import pytest
import torch

from cenote.models.export import export_model
from cenote.models.precision import FLOAT_LAYERS, measure_loss
from tests.toy_models import narrow_resnet


def photographs(count: int = 8) -> torch.Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@torch.no_grad()
def test_the_loss_is_that_of_the_file(precision: str, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    model, images = narrow_resnet(), photographs()
    made = export_model(model, tmp_path / "m.onnx", precision=precision, images=images)  # type: ignore[arg-type]
    session = onnxruntime.InferenceSession(str(made.path), providers=["CPUExecutionProvider"])
    floats = {value.type for value in (*session.get_inputs(), *session.get_outputs())}
    assert floats == {"tensor(float)"}
    logits = torch.from_numpy(session.run(None, {"images": images[1::2].numpy()})[0])
    cosine = torch.cosine_similarity(logits, model(images[1::2]))
    assert made.loss is not None and made.loss.images == 4
    assert made.loss.cosine == pytest.approx(float(cosine.mean()), abs=1e-3)
    assert cosine.min() > 0.9 and "compared with float32: cosine" in str(made)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    graph = onnx.load(made.path).graph
    if precision == "int8":
        quantized = {
            name for node in graph.node if "Dequant" in node.op_type for name in node.output
        }
        layers = [node for node in graph.node if node.op_type == "Conv"]
        in_int8 = [node.input[1] in quantized for node in layers]
        assert in_int8.count(False) == FLOAT_LAYERS and not in_int8[0]  # the file is sorted anew
    else:
        half = [tensor.name for tensor in graph.initializer if tensor.data_type == 10]
        assert len(half) > 20


def test_the_loss_of_known_outputs() -> None:
    images = torch.eye(3)
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
    changed = torch.tensor([[2.0, 0.0], [0.0, 1.0], [4.0, 3.0]])
    functions = (lambda x: x @ logits), (lambda x: x @ changed)
    loss = measure_loss(*functions, images, "logits")
    assert loss.cosine == pytest.approx((1 + 1 + 24 / 25) / 3)
    assert loss.least_cosine == pytest.approx(24 / 25) and loss.top1 == pytest.approx(2 / 3)
    # The third vector is nearest to the second, and after the change to the first.
    loss = measure_loss(*functions, images, "embedding")
    assert loss.top1 == pytest.approx(2 / 3)


def test_what_is_refused(tmp_path: Path) -> None:
    model, path = narrow_resnet(), tmp_path / "m.onnx"
    with pytest.raises(ValueError, match="--calibrate DATA"):
        export_model(model, path, precision="int8")
    with pytest.raises(ValueError, match="at least 4"):
        export_model(model, path, precision="int8", images=photographs(3))
    with pytest.raises(ValueError, match="ONNX only"):
        export_model(model, path, "torch", precision="fp16")
    assert not list(tmp_path.iterdir())
