"""A corruption as one step of a torchvision pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2

from .registry import checked, corrupt


class Corrupt(v2.Transform):  # type: ignore[misc]  # torchvision has no types
    """Of 8-bit RGB, Pillow's or a tensor (3, H, W); its seed comes from torch's generator, which the loader seeds.

    Boxes and masks stay as they are, as in the published protocol: what moves, moves by a few pixels.
    """

    def __init__(self, name: str, severity: int = 3) -> None:
        super().__init__()
        checked(name, severity)
        self.name, self.severity = name, severity

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"seed": int(torch.randint(2**62, ()))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if isinstance(inpt, Image.Image):
            return corrupt(inpt, self.name, self.severity, params["seed"])
        if not (isinstance(inpt, tv_tensors.Image) or type(inpt) is Tensor):
            return inpt
        if inpt.dtype != torch.uint8 or inpt.ndim != 3:
            raise ValueError(
                f"Corrupt takes 8-bit images (3, H, W), got {inpt.dtype} {tuple(inpt.shape)}"
            )
        pixels = np.ascontiguousarray(inpt.permute(1, 2, 0).numpy())
        changed = torch.from_numpy(
            corrupt(pixels, self.name, self.severity, params["seed"])
        ).permute(2, 0, 1)
        return (
            tv_tensors.wrap(changed, like=inpt) if isinstance(inpt, tv_tensors.Image) else changed
        )

    def extra_repr(self) -> str:
        return f"{self.name}, severity={self.severity}"
