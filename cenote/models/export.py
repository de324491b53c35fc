"""A model as one file for other programs: ONNX, or a `torch.export` program."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import torch
from timm.layers import padding
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

from ..extras import require
from .pooled import PooledModel

OPSET = 20  # the newest that PyTorch's exporter writes without converting
TOLERANCE = 1e-4
Output = Literal["logits", "embedding"]
Format = Literal["onnx", "torch"]


class OutputAndMap(nn.Module):
    """`(output, map)` for images, or `(output,)` where the pool has no map of its own."""

    def __init__(self, model: PooledModel, output: Output = "logits") -> None:
        super().__init__()
        if output == "logits" and model.head is None:
            raise ValueError("this model has no head, so it gives no logits: output='embedding'")
        self.model, self.output = model, output

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        u, a = self.model.pool_features(self.model.features(images))
        u = self.model.refine(u)
        if self.output == "logits":
            assert self.model.head is not None
            u = self.model.head(u)
        return (u,) if a is None else (u, a)


@dataclass(frozen=True)
class Exported:
    """What was written: shapes are words where they are free, and `step` is what image sizes are
    multiples of.
    """

    path: Path
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    step: int
    difference: float  # the largest to PyTorch, at another batch and size than the traced one


def export_model(
    model: PooledModel, path: str | Path, format: Format = "onnx", output: Output = "logits"
) -> Exported:
    """Trace, check against PyTorch, and only then let the file have its name."""
    if format not in ("onnx", "torch"):
        raise ValueError(f"format is 'onnx' or 'torch', got '{format}'")
    if output not in ("logits", "embedding"):
        raise ValueError(f"output is 'logits' or 'embedding', got '{output}'")
    path = Path(path)
    if format == "onnx":
        for module in ("onnx", "onnxscript", "onnxruntime"):
            require(module, extra="onnx")  # before the work, not after it
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "no such folder", str(path.parent))
    training = model.training
    wrapper = OutputAndMap(model, output).eval()
    try:
        with torch.no_grad():
            program, size, step, free = trace(wrapper)
            partial = path.with_name(
                f".{path.stem[:80]}-{uuid4().hex}{'.onnx' if format == 'onnx' else '.pt2'}"
            )
            try:
                (_write_onnx if format == "onnx" else _write_program)(program, partial, output)
                difference, shapes = _compare(wrapper, partial, format, _another(size, step, free))
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(partial, path)
            finally:
                partial.unlink(missing_ok=True)
    finally:
        model.train(training)
    height, width = ("height", "width") if free else map(str, size)
    names = dict(zip((output, "map"), shapes, strict=False))
    return Exported(
        path, {"images": ("batch", "3", height, width)}, _named(names, free), step, difference
    )


def trace(wrapper: OutputAndMap) -> tuple[ExportedProgram, tuple[int, int], int, bool]:
    """The program, the traced image size, what sizes are multiples of, and whether they are free at
    all.
    """
    backbone = wrapper.model.backbone
    native = backbone.preprocessing.size
    step = math.ceil(max(backbone.stride()))
    height = max(native // step, 3) * step
    size = (
        height,
        height + step,
    )  # not square and not the native size: neither may become a condition
    padded = any("Same" in type(module).__name__ for module in backbone.modules())
    if (
        padded
    ):  # its padding depends on the size, and is a constant for multiples of the stride only
        sides: Any = (step * Dim("rows", min=2), step * Dim("columns", min=2))
    else:
        sides = (Dim.AUTO, Dim.AUTO)
    parameter = next(wrapper.parameters(), torch.empty(0))
    with _without_conditions(backbone.model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        with suppress(Exception):
            program = _export(
                wrapper,
                parameter.new_zeros(2, 3, *size),
                {0: Dim.DYNAMIC, 2: sides[0], 3: sides[1]},
            )
            if not any(isinstance(side, int) for side in _input_shape(program)[2:]):
                return (
                    program,
                    size,
                    step if padded or hasattr(backbone.model, "patch_embed") else 1,
                    True,
                )
        size = (native // step * step or step,) * 2
        try:
            return (
                _export(wrapper, parameter.new_zeros(2, 3, *size), {0: Dim.DYNAMIC}),
                size,
                step,
                False,
            )
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0][:300]
            raise ValueError(
                f"'{backbone.name}' cannot be exported: {type(error).__name__}: {reason}"
            ) from error


def _export(wrapper: OutputAndMap, images: Tensor, shapes: dict[int, Any]) -> ExportedProgram:
    return torch.export.export(wrapper, (images,), dynamic_shapes={"images": shapes})


def _input_shape(program: ExportedProgram) -> tuple[Any, ...]:
    (name,) = program.graph_signature.user_inputs
    node = next(
        node for node in program.graph.nodes if node.op == "placeholder" and node.name == name
    )
    return tuple(node.meta["val"].shape)


@contextmanager
def _without_conditions(encoder: nn.Module) -> Iterator[None]:
    """Two functions of timm decide by the image size, and a trace would take each decision as a
    law.

    Position embeddings are left alone at their own size: resampled to it, they stay as they are.
    "Same" padding is computed anew for every size: for multiples of the stride it is always the
    same.
    """
    places: list[tuple[Any, str, Any]] = [
        (sys.modules[type(encoder).__module__], "resample_abs_pos_embed", _resample),
        (
            padding,
            "get_same_padding",
            lambda x, kernel, stride, dilation: max((kernel - 1) * dilation + 1 - stride, 0),
        ),
    ]
    places = [place for place in places if hasattr(place[0], place[1])]
    originals = [getattr(module, name) for module, name, _ in places]
    for module, name, ours in places:
        setattr(module, name, ours)
    try:
        yield
    finally:
        for (module, name, _), function in zip(places, originals, strict=True):
            setattr(module, name, function)


def _resample(
    posemb: Tensor,
    new_size: list[int],
    old_size: list[int] | None = None,
    num_prefix_tokens: int = 1,
    interpolation: str = "bicubic",
    antialias: bool = True,
    verbose: bool = False,
) -> Tensor:
    prefix, patches = (
        posemb[:, :num_prefix_tokens],
        posemb[:, num_prefix_tokens:],
    )  # (1, p, D), (1, N, D)
    side = round(patches.shape[1] ** 0.5)
    grid = (
        patches.float().unflatten(1, tuple(old_size or (side, side))).permute(0, 3, 1, 2)
    )  # (1, D, H, W)
    grid = F.interpolate(grid, size=list(new_size), mode=interpolation, antialias=antialias)
    return torch.cat([prefix, grid.flatten(2).mT.to(posemb.dtype)], 1)


def _another(size: tuple[int, int], step: int, free: bool) -> tuple[int, int, int, int]:
    """A batch and a size that were not traced, square as users' images are."""
    return (3, 3, *size) if not free else (3, 3, size[0] + 2 * step, size[0] + 2 * step)


def _write_program(program: ExportedProgram, path: Path, output: str) -> None:
    torch.export.save(program, path)


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


def _compare(
    wrapper: OutputAndMap, path: Path, format: Format, size: tuple[int, int, int, int]
) -> tuple[float, list[tuple[int, ...]]]:
    """The largest difference of the written file to PyTorch, relative where values exceed 1, and
    PyTorch's shapes.
    """
    like = next(wrapper.parameters(), torch.empty(0))
    images = torch.rand(size, generator=torch.Generator().manual_seed(0)).to(like)
    expected = wrapper(images)
    outputs = (
        _run_onnx(path, images) if format == "onnx" else torch.export.load(path).module()(images)
    )
    worst = 0.0
    for reference, output in zip(expected, outputs, strict=True):
        scale = max(1.0, float(reference.abs().max()))
        difference = float((reference.float() - output.float()).abs().max()) / scale
        if not difference <= (
            TOLERANCE if reference.dtype == torch.float32 else 1e-2
        ):  # NaN is not small either
            raise RuntimeError(
                f"the exported file differs from PyTorch by {difference:.1e}: it was not kept"
            )
        worst = max(worst, difference)
    return worst, [tuple(reference.shape) for reference in expected]


def _run_onnx(path: Path, images: Tensor) -> list[Tensor]:
    runtime: Any = require("onnxruntime", extra="onnx")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [
        torch.from_numpy(value) for value in session.run(None, {"images": images.cpu().numpy()})
    ]


def _named(shapes: dict[str, tuple[int, ...]], free: bool) -> dict[str, tuple[str, ...]]:
    named = {}
    for name, (_, *sizes) in shapes.items():
        sides = ["rows", "columns"] if name == "map" and free else list(map(str, sizes[-2:]))
        named[name] = (
            ("batch", *map(str, sizes[:-2]), *sides)
            if name == "map"
            else ("batch", *map(str, sizes))
        )
    return named


def describe(exported: Exported) -> str:
    """The file, its inputs and outputs, and how far it is from PyTorch, in lines."""
    lines = [f"{exported.path}  {exported.path.stat().st_size / 1e6:.1f} MB"]
    for kind, shapes in (("input ", exported.inputs), ("output", exported.outputs)):
        lines += [f"  {kind}  {name} ({', '.join(shape)})" for name, shape in shapes.items()]
    if exported.step > 1:
        lines.append(f"  height and width are multiples of {exported.step}")
    return "\n".join([*lines, f"  largest difference to PyTorch: {exported.difference:.1e}"])
