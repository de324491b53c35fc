"""ONNX files in float16 and int8, and what the lower precision costs on real images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..extras import require
from ..unit import unit

Precision = Literal["fp32", "fp16", "int8"]
PRECISIONS = ("fp32", "fp16", "int8")
LAYERS = ("Conv", "MatMul", "Gemm")
# Quantized with the layer before them, whose range they limit. LayerNorm, softmax, residual sums and
# products of two activations stay in float32: with them in int8, the vectors of a ViT are lost.
ACTIVATIONS = ("Clip", "Relu")
# The first layers stay in float32: 3 of lite0's 49 raise the cosine by about 0.002 (on pets).
FLOAT_LAYERS = 3
BATCH = 8  # images at a time, for calibration and for comparison


@dataclass(frozen=True)
class PrecisionLoss:
    """Outputs of a file compared with the float32 model on real images."""

    images: int
    cosine: float  # mean
    least_cosine: float
    top1: float  # share of images with the same class, or for vectors the same nearest image
    output: str

    def __str__(self) -> str:
        same = "class" if self.output == "logits" else "nearest image"
        cosine = f"cosine {self.cosine:.5f} (least {self.least_cosine:.5f})"
        return f"{cosine}, same {same} {100 * self.top1:.1f}%, on {self.images} images"


def convert_onnx(path: Path, precision: Precision, images: Tensor | None) -> None:
    """Convert a float32 file in place; inputs and outputs stay float32. int8 needs images."""
    onnx: Any = require("onnx", extra="onnx")
    if precision == "fp16":
        float16: Any = require("onnxruntime.transformers.float16", extra="onnx")
        onnx.save(float16.convert_float_to_float16(onnx.load(path), keep_io_types=True), path)
    elif precision == "int8":
        assert images is not None
        _quantize(path, images)


def _quantize(path: Path, images: Tensor) -> None:
    """Quantize weights per output channel, activations by their extremes on the images."""
    onnx: Any = require("onnx", extra="onnx")
    quantization: Any = require("onnxruntime.quantization", extra="onnx")
    preprocess: Any = require("onnxruntime.quantization.shape_inference", extra="onnx")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter(images.split(BATCH))

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self.batches, None)
            return None if batch is None else {"images": batch.numpy()}

    with TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        preprocess.quant_pre_process(path, prepared, skip_symbolic_shape=True)
        graph = onnx.load(prepared).graph
        weights = {tensor.name for tensor in graph.initializer}
        layers = [i for i, node in enumerate(graph.node) if weights.intersection(node.input[1:2])]
        layers = [i for i in layers if graph.node[i].op_type in LAYERS]
        end = layers[: FLOAT_LAYERS + 1][-1]
        excluded = [
            node.name
            for i, node in enumerate(graph.node)
            if i < end or (node.op_type in LAYERS and i not in layers)
        ]
        quantization.quantize_static(
            prepared,
            path,
            Reader(),
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            op_types_to_quantize=[*LAYERS, *ACTIVATIONS],
            extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]},
            nodes_to_exclude=excluded,
        )


def measure_loss(
    reference: Callable[[Tensor], Tensor],
    converted: Callable[[Tensor], Tensor],
    images: Tensor,
    output: str,
) -> PrecisionLoss:
    """Compare two functions from images to logits or vectors (N, D)."""
    expected, outputs = (
        torch.cat([function(batch).flatten(1).float() for batch in images.split(BATCH)])
        for function in (reference, converted)
    )
    cosine = F.cosine_similarity(expected, outputs)
    top1 = (_top1(expected, output) == _top1(outputs, output)).float().mean()
    values = float(cosine.mean()), float(cosine.min()), float(top1)
    return PrecisionLoss(len(images), *values, output)


def _top1(outputs: Tensor, output: str) -> Tensor:
    if output == "logits":
        return outputs.argmax(1)
    u = unit(outputs)
    return (u @ u.T).fill_diagonal_(-torch.inf).argmax(1)
