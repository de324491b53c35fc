from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro


def run(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER]")] = "",
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("model.onnx"),
    format: Literal["onnx", "torch"] = "onnx",
    output: Literal["logits", "embedding"] = "logits",
    backbone: str = "",
    pool: str = "gap",
    weights: Path | None = None,
    pretrained: bool = True,
) -> None:
    """Write a model as ONNX or as a torch.export program with two outputs, and check it against PyTorch.

    Args:
        folder: a saved model (config.json and model.safetensors).
        out: the file to write.
        format: ONNX, or a program of torch.export.
        output: what comes before the attention map.
        backbone: instead of a folder, a backbone by name, for example lite0.
        pool: the pool of that backbone.
        weights: a local file of that backbone's weights.
        pretrained: whether that backbone is a trained one.
    """
    from ..models import create_model, load
    from ..models.export import describe, export_model

    if bool(folder) == bool(backbone):
        raise ValueError(
            "name a saved model's folder, or a backbone (--backbone lite0), and not both"
        )
    model = (
        load(folder)
        if folder
        else create_model(backbone, pool, weights=weights, pretrained=pretrained)
    )
    print(describe(export_model(model, out, format, output)))
