"""A model as one file for other programs: ONNX, or a `torch.export` program."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from timm.layers import padding, pos_embed_sincos
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

from ..data.files import temporary_path
from ..extras import require
from ..options import check_choice
from .cam import cam, why_no_cam
from .pooled import PooledModel
from .precision import PRECISIONS, Precision, PrecisionLoss, convert_onnx, measure_loss

OPSET = 20  # the newest that PyTorch's exporter writes without converting
TOLERANCE = {torch.float32: 1e-4}
HALF_TOLERANCE = 1e-2
Output = Literal["logits", "embedding"]
Format = Literal["onnx", "torch"]
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}


class OutputAndMap(nn.Module):
    """`(output, map)` for images: the pool's own map, or the class activation map of the largest
    logit; `(output,)` where there is neither.
    """

    def __init__(self, model: PooledModel, output: Output = "logits") -> None:
        super().__init__()
        check_choice("output", output, ("logits", "embedding"))
        if output == "logits" and model.head is None:
            raise ValueError("this model has no classifier, so no logits: --output embedding")
        self.model, self.output = model, output

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.model.features(images)
        u, a = self.model.pool_features(features)
        u = self.model.refine(u)
        if self.output == "logits":
            assert self.model.head is not None
            u = self.model.head(u)
            if a is None and not why_no_cam(self.model):
                a = cam(self.model, features)
        if a is None:
            return (u,)
        return u, a


@dataclass(frozen=True)
class Exported:
    """What was written. Free shapes are words; image sizes are multiples of `step`."""

    path: Path
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    step: int
    difference: float  # the largest to PyTorch, at another batch and size than the traced one
    loss: PrecisionLoss | None = None  # of a lower precision, on real images

    def __str__(self) -> str:
        lines = [f"{self.path}  {self.path.stat().st_size / 1e6:.1f} MB"]
        if "map" not in self.outputs:
            lines[0] += "  no map: this pool has none, and no class activation map"
        for kind, shapes in (("input ", self.inputs), ("output", self.outputs)):
            lines += [f"  {kind}  {name} ({', '.join(shape)})" for name, shape in shapes.items()]
        if self.step > 1:
            lines.append(f"  height and width are multiples of {self.step}")
        if self.loss:
            return "\n".join([*lines, f"  compared with float32: {self.loss}"])
        return "\n".join([*lines, f"  largest difference to PyTorch: {self.difference:.1e}"])


@dataclass(frozen=True)
class Trace:
    """A traced model, its image size, what sizes are multiples of, and whether they are free."""

    program: ExportedProgram
    size: tuple[int, int]
    step: int
    free: bool

    def another_shape(self) -> tuple[int, int, int, int]:
        """A batch and a size that were not traced, square as users' images are."""
        if not self.free:
            return (3, 3, *self.size)
        side = self.size[0] + 2 * self.step
        return (3, 3, side, side)

    def input_shape(self) -> tuple[str, ...]:
        return ("batch", "3", *(("height", "width") if self.free else map(str, self.size)))

    def output_shape(self, name: str, shape: torch.Size, model: PooledModel) -> tuple[str, ...]:
        sizes = [str(size) for size in shape[1:]]
        if name == "map" and self.free and model.tokens != "summary":  # which has layers x 2
            sizes[-2:] = ["rows", "columns"]
        return ("batch", *sizes)


def export_model(
    model: PooledModel,
    path: str | Path,
    format: Format = "onnx",
    output: Output = "logits",
    precision: Precision = "fp32",
    images: Tensor | None = None,
) -> Exported:
    """Trace, check against PyTorch, and only then let the file have its name.

    `images` (N, 3, H, W), preprocessed, are for a lower precision: every other one calibrates int8,
    and the rest measures the loss.
    """
    check_choice("format", format, SUFFIXES)
    check_choice("precision", precision, PRECISIONS)
    if precision != "fp32" and format != "onnx":
        raise ValueError(f"precision {precision} is for ONNX only, got the format {format}")
    if precision == "int8" and images is None:
        raise ValueError("int8 needs images to calibrate with: --calibrate DATA")
    if images is not None and len(images) < 4:
        raise ValueError(f"at least 4 readable images are needed to calibrate, got {len(images)}")
    path = Path(path)
    if format == "onnx":
        for module in ("onnx", "onnxscript", "onnxruntime"):
            require(module, extra="onnx")  # before the work, not after it
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "no such folder", str(path.parent))
    training = model.training
    wrapper = OutputAndMap(model, output).eval()
    partial = temporary_path(path.parent, SUFFIXES[format])
    try:
        with torch.no_grad():
            traced = trace(wrapper)
            if format == "onnx":
                _write_onnx(traced.program, partial, output)
                _describe_onnx(partial, traced, model)
            else:
                torch.export.save(traced.program, partial)
            difference, shapes = _compare(wrapper, partial, traced.another_shape())
            loss = None
            if precision != "fp32":
                convert_onnx(partial, precision, None if images is None else images[::2])
            if precision == "fp16":
                shape = traced.another_shape()
                difference, _ = _compare(wrapper, partial, shape, HALF_TOLERANCE)
            if precision != "fp32" and images is not None:
                loss = _loss(wrapper, partial, images[1::2])
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
        model.train(training)
    names = zip((output, "map"), shapes, strict=False)
    outputs = {name: traced.output_shape(name, shape, model) for name, shape in names}
    inputs = {"images": traced.input_shape()}
    return Exported(path, inputs, outputs, traced.step, difference, loss)


def trace(wrapper: OutputAndMap) -> Trace:
    """Trace with free image sizes, or with the native one where the model does not allow it."""
    backbone = wrapper.model.backbone
    native = backbone.preprocessing.size
    step = math.ceil(max(backbone.stride()))
    height = max(native // step, 3) * step
    size = (height, height + step)  # not square, not native: neither may become a condition
    padded = any("Same" in type(module).__name__ for module in backbone.modules())
    sides: Any = (Dim.AUTO, Dim.AUTO)
    if padded:  # its padding depends on the size, and is constant for multiples of the stride only
        sides = (step * Dim("rows", min=2), step * Dim("columns", min=2))
    parameter = next(wrapper.parameters(), torch.empty(0))
    with _without_conditions(backbone.model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        with suppress(Exception):
            shapes = {0: Dim.DYNAMIC, 2: sides[0], 3: sides[1]}
            program = _export(wrapper, parameter.new_zeros(2, 3, *size), shapes)
            if not any(isinstance(side, int) for side in _input_shape(program)[2:]):
                if not padded and not hasattr(backbone.model, "patch_embed"):
                    step = 1
                free = Trace(program, size, step, True)
                # Raises if the trace took the size for a constant, which ONNX would not notice.
                program.module()(parameter.new_zeros(free.another_shape()))
                return free
        size = (native // step * step or step,) * 2
        try:
            program = _export(wrapper, parameter.new_zeros(2, 3, *size), {0: Dim.DYNAMIC})
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0][:300]
            raise ValueError(
                f"'{backbone.name}' cannot be exported: {type(error).__name__}: {reason}"
            ) from error
    return Trace(program, size, step, False)


def _export(wrapper: OutputAndMap, images: Tensor, shapes: dict[int, Any]) -> ExportedProgram:
    return torch.export.export(wrapper, (images,), dynamic_shapes={"images": shapes})


def _input_shape(program: ExportedProgram) -> tuple[Any, ...]:
    (name,) = program.graph_signature.user_inputs
    inputs = (node for node in program.graph.nodes if node.op == "placeholder")
    return tuple(next(node for node in inputs if node.name == name).meta["val"].shape)


@contextmanager
def _without_conditions(encoder: nn.Module) -> Iterator[None]:
    """Replace three functions of timm that would make the image size a constant of the trace.

    Position embeddings are left alone at their own size: resampled to it, they stay as they are.
    "Same" padding is computed anew for every size: for multiples of the stride it is always the
    same. DINOv3's rotary positions divide by `float(size)`.
    """
    build_grid = pos_embed_sincos._build_grid

    def same_padding(x: Any, kernel: int, stride: int, dilation: int) -> int:
        return max((kernel - 1) * dilation + 1 - stride, 0)

    def centred_grid(shape: Any, grid_type: str = "index", **options: Any) -> Tensor:
        kind = (grid_type, options.get("normalize_coords"), options.get("grid_indexing"))
        if kind != ("centered", "separate", "ij"):
            return build_grid(shape, grid_type, **options)
        # Also without arange(0.5, size), of floats, which torch.export.save does not know.
        sides = [(torch.arange(n) + 0.5 + options["grid_offset"]) / n for n in shape]
        return 2 * torch.stack(torch.meshgrid(sides, indexing="ij"), -1) - 1

    originals = []
    for module, name, ours in (
        (sys.modules[type(encoder).__module__], "resample_abs_pos_embed", _resample),
        (padding, "get_same_padding", same_padding),
        (pos_embed_sincos, "_build_grid", centred_grid),
    ):
        if hasattr(module, name):
            originals.append((module, name, getattr(module, name)))
            setattr(module, name, ours)
    try:
        yield
    finally:
        for original in originals:
            setattr(*original)


def _resample(
    posemb: Tensor,
    new_size: list[int],
    old_size: list[int] | None = None,
    num_prefix_tokens: int = 1,
    interpolation: str = "bicubic",
    antialias: bool = True,
    verbose: bool = False,
) -> Tensor:
    """timm's `resample_abs_pos_embed`, without its question whether the size is the same."""
    prefix, patches = posemb[:, :num_prefix_tokens], posemb[:, num_prefix_tokens:]  # (1, N, D)
    side = round(patches.shape[1] ** 0.5)
    grid = patches.float().unflatten(1, tuple(old_size or (side, side)))
    grid = grid.permute(0, 3, 1, 2)  # (1, D, H, W)
    grid = F.interpolate(grid, size=list(new_size), mode=interpolation, antialias=antialias)
    return torch.cat([prefix, grid.flatten(2).mT.to(posemb.dtype)], 1)


def _write_onnx(program: ExportedProgram, path: Path, output: str) -> None:
    names = [output, "map"][: len(program.graph_signature.user_outputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            program,
            (),
            path,
            input_names=["images"],
            output_names=names,
            opset_version=OPSET,
            dynamo=True,
            external_data=False,  # one file is one model
            verbose=False,
        )


def _describe_onnx(path: Path, traced: Trace, model: PooledModel) -> None:
    """Name the free axes, and add the class names and the preprocessing as metadata in JSON."""
    onnx: Any = require("onnx", extra="onnx")
    file = onnx.load(path)
    del file.graph.value_info[:]  # of inner values, by the exporter's names of axes
    for value in (*file.graph.input, *file.graph.output):
        axes = value.type.tensor_type.shape.dim
        names = traced.input_shape()
        if value.name != "images":
            shape = torch.Size(axis.dim_value for axis in axes)
            names = traced.output_shape(value.name, shape, model)
        for axis, name in zip(axes, names, strict=True):
            if axis.dim_param:
                axis.dim_param = name
    preprocessing = asdict(model.backbone.preprocessing)
    del preprocessing["scaled_decoding"]  # does not change what the model needs
    metadata = {"preprocessing": json.dumps(preprocessing)}
    if model.class_names is not None:
        metadata["class_names"] = json.dumps(list(model.class_names))
    onnx.helper.set_model_props(file, metadata)
    onnx.save(file, path)


def _compare(
    wrapper: OutputAndMap,
    path: Path,
    shape: tuple[int, int, int, int],
    tolerance: float | None = None,
) -> tuple[float, list[torch.Size]]:
    """The largest difference of the file to PyTorch, relative above 1, and PyTorch's shapes."""
    like = next(wrapper.parameters(), torch.empty(0))
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(like)
    expected = wrapper(images)
    run = _run_onnx if path.suffix == ".onnx" else _run_program
    worst = 0.0
    for reference, output in zip(expected, run(path, images), strict=True):
        scale = max(1.0, float(reference.abs().max()))
        difference = float((reference.float() - output.float()).abs().max()) / scale
        limit = tolerance or TOLERANCE.get(reference.dtype, HALF_TOLERANCE)
        if not difference <= limit:  # NaN is refused, too
            raise RuntimeError(
                f"the exported file differs from PyTorch by {difference:.1e}: it was not kept"
            )
        worst = max(worst, difference)
    return worst, [reference.shape for reference in expected]


def _loss(wrapper: OutputAndMap, path: Path, images: Tensor) -> PrecisionLoss:
    session = _open_onnx(path)

    def converted(batch: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"images": batch.numpy()})[0])

    return measure_loss(lambda batch: wrapper(batch)[0], converted, images, wrapper.output)


def _run_program(path: Path, images: Tensor) -> tuple[Tensor, ...]:
    outputs: tuple[Tensor, ...] = torch.export.load(path).module()(images)
    return outputs


def _run_onnx(path: Path, images: Tensor) -> tuple[Tensor, ...]:
    outputs = _open_onnx(path).run(None, {"images": images.cpu().numpy()})
    return tuple(torch.from_numpy(value) for value in outputs)


def _open_onnx(path: Path) -> Any:
    runtime: Any = require("onnxruntime", extra="onnx")
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
