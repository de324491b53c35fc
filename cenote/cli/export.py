"""`cenote export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro


def run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER]")] = "",
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("model.onnx"),
    format: Literal["onnx", "torch"] = "onnx",
    output: Annotated[
        Literal["logits", "embedding"] | None,
        tyro.conf.arg(
            metavar="{logits,embedding}",
            help_behavior_hint="(default: logits if there is a classifier)",
        ),
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
        out: the file to write.
        format: ONNX, or a program of torch.export.
        output: the first output; the second is the attention map of the pool, or with logits the class
            activation map of the predicted class, if there is one.
        backbone: the name of a backbone instead of a folder, for example lite0.
        pool: the pool for the backbone, by default the one it was trained with.
        weights: a local file with the weights of the backbone.
        pretrained: whether the backbone has pretrained weights.
    """
    from ..models import create_model, load
    from ..models.export import export_model

    if bool(folder) == bool(backbone):
        raise ValueError("name either a folder of a saved model or a backbone (--backbone lite0)")
    if folder:
        model = load(folder)
    else:
        model = create_model(backbone, pool, weights=weights, pretrained=pretrained)
    output = output or ("embedding" if model.head is None else "logits")
    print(export_model(model, out, format, output))
