"""`cenote export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from torch import Tensor

    from ..models import PooledModel

MAX_IMAGES = 128
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}


def run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER]")] = "",
    out: Annotated[
        Path | None,
        tyro.conf.arg(
            aliases=["-o"], metavar="FILE", help_behavior_hint="(default: model.onnx or model.pt2)"
        ),
    ] = None,
    format: Literal["onnx", "torch"] = "onnx",
    output: Annotated[
        Literal["logits", "embedding"] | None,
        tyro.conf.arg(
            metavar="{logits,embedding}",
            help_behavior_hint="(default: logits if there is a classifier)",
        ),
    ] = None,
    precision: Literal["fp32", "fp16", "int8"] = "fp32",
    calibrate: Annotated[
        str | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="(required for int8)")
    ] = None,
    backbone: str = "",
    pool: str = "own",
    weights: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
    ] = None,
    pretrained: bool = True,
) -> None:
    """Export a model as ONNX or as a torch.export program, and compare it with PyTorch.

    Args:
        folder: a saved model (config.json and model.safetensors).
        out: the file to write, .onnx, or .pt2 with --format torch.
        format: ONNX, or a program of torch.export.
        output: the first output; the second is the attention map of the pool, or with logits the class
            activation map of the predicted class, if there is one.
        precision: float32, or a smaller ONNX file; its inputs and outputs stay float32.
        calibrate: photographs for int8, and to compare fp16 or int8 with float32: a folder, a file,
            a glob or a data set, of which at most 128 are used.
        backbone: the name of a backbone instead of a folder, for example lite0.
        pool: the pool for the backbone, by default the one it was trained with.
        weights: a local file with the weights of the backbone.
        pretrained: whether the backbone has pretrained weights.
    """
    if bool(folder) == bool(backbone):
        raise ValueError("name either a folder of a saved model or a backbone (--backbone lite0)")
    out = out or Path(f"model{SUFFIXES[format]}")
    if out.suffix.lower() != SUFFIXES[format]:
        raise ValueError(f"-o {out}: the file must end in .onnx, or in .pt2 with --format torch")

    from ..models import create_model, load
    from ..models.export import export_model

    if folder:
        model = load(folder)
    else:
        model = create_model(backbone, pool, weights=weights, pretrained=pretrained)
    output = output or ("embedding" if model.head is None else "logits")
    images = None
    if calibrate is not None:
        images = _load_images(model, calibrate)
    print(export_model(model, out, format, output, precision, images))


def _load_images(model: PooledModel, data: str) -> Tensor:
    """Load at most 128 images of a data set or a folder, evenly spaced and preprocessed."""
    from ..data.ground_truth import evenly_spaced
    from ..data.loading import load
    from ..search.index import open_images

    dataset = open_images((data,))
    if not len(dataset):
        raise ValueError(f"no images in {data} to calibrate with")
    subset = dataset.select(evenly_spaced(range(len(dataset)), MAX_IMAGES))
    batches = load(subset, model.backbone.preprocessing.transform(), MAX_IMAGES)
    return next(iter(batches)).images
