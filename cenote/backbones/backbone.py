"""A timm model as `Features`: whatever it returns, maps or tokens, channels first or last."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..device import is_out_of_memory
from .cls import class_tokens, remove_class_tokens
from .families import MERGES, READERS, STRIDES, family_of, num_channels, projects_to_texts
from .preprocessing import Preprocessing
from .sources import Options
from .transformers_encoder import TransformersEncoder


class Features(NamedTuple):
    """Patch tokens, their grid, and a CLS token where there is one."""

    tokens: Tensor  # (B, N, D), N = H W, in reading order; registers are not among them
    grid: tuple[int, int]  # (H, W)
    cls: Tensor | None = None  # (B, D)
    # (B, R, D), what else the encoder's own pooling uses: registers, or a vector of each other map.
    registers: Tensor | None = None

    def tensors(self) -> dict[str, Any]:
        """Return the fields that are tensors, by name."""
        return {k: v for k, v in self._asdict().items() if isinstance(v, Tensor)}

    def to(self, device: torch.device) -> Features:
        return self._replace(**{name: x.to(device) for name, x in self.tensors().items()})

    def all_tokens(self, registers: bool = False) -> Tensor:
        """Return [CLS; patches], with the registers between them if asked for, (B, 1 + R + N, D)."""
        cls = None if self.cls is None else self.cls[:, None]
        behind = self.registers if registers else None
        return torch.cat([x for x in (cls, behind, self.tokens) if x is not None], 1)


class Backbone(nn.Module):
    """A timm model up to its last feature map of `dim` channels."""

    def __init__(
        self, model: nn.Module, name: str, preprocessing: Preprocessing | None = None
    ) -> None:
        super().__init__()
        self.model, self.name, self.family = model, name, family_of(model)
        self.dim = num_channels(model)
        self.preprocessing = preprocessing or Preprocessing.of(model)
        # Of `create_backbone`, to create the same architecture again; None if it is unknown.
        self.options: Options | None = None
        self.arguments: Options = {}  # of the architecture, from a folder or the hub
        self.source: dict[str, str] | None = None  # name and digest of such weights
        self.registers = 0  # tokens behind CLS that `Features` have: for the model's own pooling
        # By block, those whose activations move to a test-time register: `models/registers.py`.
        self.register_neurons: dict[int, list[int]] = {}

    @property
    def has_cls(self) -> bool:
        return len(class_tokens(self.model)) > 0

    @property
    def prefix(self) -> int:
        """Tokens in front of the patches: CLS and registers."""
        count = getattr(self.model, "num_prefix_tokens", None)
        tokens = count or sum(token.shape[1] for token in class_tokens(self.model).values())
        return int(tokens) + bool(self.register_neurons)

    def forward(self, images: Tensor) -> Features:
        size = (images.shape[-2], images.shape[-1])
        if torch.compiler.is_compiling() or size == self.native_size():
            return self._read(images, size)
        try:
            return self._read(images, size)
        except (AssertionError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and is_out_of_memory(error):
                raise
            raise ValueError(self._bad_size(size, error)) from error

    def _read(self, images: Tensor, size: tuple[int, int]) -> Features:
        if self.family in READERS:
            out, prefix = READERS[self.family](self.model, images)
        else:
            out, prefix = self.model.forward_features(images), None  # type: ignore[operator]
        return self.as_features(out, size, prefix)

    def as_features(
        self, out: Tensor, size: tuple[int, int], prefix: Tensor | None = None
    ) -> Features:
        """Return the features from the model's output for images of this height and width.

        Without a separate `prefix` a sequence begins with CLS and registers.
        """
        if out.ndim == 4:
            if not self.is_channels_first(out):
                out = out.permute(0, 3, 1, 2)
            features = Features(out.flatten(2).transpose(1, 2), (out.shape[2], out.shape[3]))
        else:
            if prefix is None:
                prefix, out = out[:, : self.prefix], out[:, self.prefix :]
            features = Features(out, self._grid(out.shape[1], size))
        if prefix is not None and self.has_cls:
            features = features._replace(cls=prefix[:, 0])
        if prefix is not None and self.registers:
            start = int(self.has_cls)
            features = features._replace(registers=prefix[:, start : start + self.registers])
        return features

    def is_channels_first(self, out: Tensor) -> bool:
        """Return whether a map of the model is (B, D, H, W), and not (B, H, W, D)."""
        return getattr(self.model, "output_fmt", "NCHW") != "NHWC" and out.shape[1] == self.dim

    def _grid(self, n: int, size: tuple[int, int]) -> tuple[int, int]:
        """Return the grid of n tokens: image size over stride, never the root of n."""
        h, w = self.stride()
        for k in (1, self._merged()):
            for rounded in (_floor, _ceil):
                grid = rounded(size[0], h * k), rounded(size[1], w * k)
                if grid[0] * grid[1] == n:
                    return grid
        pixels = f"{size[0]}x{size[1]} pixels"
        raise ValueError(f"'{self.name}' has {n} tokens for {pixels}: no grid of its stride {h:g}")

    def attention_grid(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Return the grid of the last block's keys, which is coarser than the tokens' in CvT."""
        stride = getattr(self.model, "key_stride", 1)
        return -(-grid[0] // stride), -(-grid[1] // stride)

    def stride(self) -> tuple[float, float]:
        """Return the pixels from one position of the map to the next, down and across."""
        info: Any = getattr(self.model, "feature_info", None) or [{"reduction": None}]
        stride = info[-1]["reduction"] or self._of_patches("patch_size")
        if self.family in STRIDES:
            stride = STRIDES[self.family](self.model)
        if not stride:
            raise ValueError(f"'{self.name}' says neither its stride nor its patch size")
        if isinstance(stride, int | float):
            return stride, stride
        return stride[0], stride[1]

    def _merged(self) -> int:
        """Return how many patches become one token, in each direction."""
        attribute = MERGES.get(self.family)
        if attribute is None:
            return 1
        return next(
            (getattr(m, attribute) for m in self.model.modules() if hasattr(m, attribute)), 1
        )

    def _of_patches(self, attribute: str) -> Any:
        return getattr(getattr(self.model, "patch_embed", None), attribute, None)

    def native_size(self) -> tuple[int, int]:
        """Return the height and width that the model was made for."""
        size = self._of_patches("img_size") or [self.preprocessing.size] * 2
        return size[0], size[1]

    def _bad_size(self, size: tuple[int, int], error: Exception) -> str:
        problem = f"'{self.name}' cannot take images of {size[0]}x{size[1]} pixels"
        patch = self._of_patches("patch_size")
        if patch is not None:
            m = (patch if isinstance(patch, int) else patch[0]) * self._merged()
            if size[0] % m or size[1] % m:
                h, w = (max(round(side / m), 1) * m for side in size)
                return f"{problem}: height and width must be multiples of {m}, for example {h}x{w}"
        (h, w), reason = self.native_size(), (str(error).splitlines() or [""])[0][:200]
        remedy = "img_size=... makes it with another"
        if isinstance(self.model, TransformersEncoder):
            remedy = "resize the images to it"
        return f"{problem}, its size is {h}x{w} ({remedy}): {reason}"

    def classifier(self) -> nn.Linear | None:
        """Return the model's last linear layer, if it predicts classes."""
        layer = getattr(self.model, "get_classifier", nn.Identity)()
        if not isinstance(layer, nn.Linear) or projects_to_texts(self.model, layer.out_features):
            return None
        return layer

    def remove_cls(self) -> None:
        """Remove the CLS token from the encoder, not only from its output. Registers stay."""
        remove_class_tokens(self.model, self.name)

    def set_depth(self, change: int) -> None:
        """Drop the last `-change` blocks, or add `change` new ones [SimPool Table 9]."""
        blocks: Any = getattr(self.model, "blocks", None)
        stacked = isinstance(blocks, nn.Sequential | nn.ModuleList)
        if not stacked or not hasattr(self.model, "patch_embed") or change <= -len(blocks):
            raise ValueError(
                f"the depth of '{self.name}' cannot change by {change}: it takes a plain stack of "
                "more transformer blocks"
            )
        if change < 0:
            self.model.blocks = blocks[:change]
        for _ in range(change):
            blocks.append(_fresh_copy(blocks[-1]))

    def final_norm(self) -> nn.Module | None:
        """Return the last LayerNorm inside `forward_features`, if there is one."""
        norm = getattr(self.model, "norm", None)
        if isinstance(norm, nn.Identity) or not isinstance(norm, nn.Module):
            return None
        return norm


# Of whole numbers without a float between, which torch.export.save does not know.


def _floor(side: int, step: float) -> int:
    return side // step if isinstance(step, int) else math.floor(side / step)


def _ceil(side: int, step: float) -> int:
    return -(-side // step) if isinstance(step, int) else math.ceil(side / step)


def _fresh_copy(block: nn.Module) -> nn.Module:
    block = copy.deepcopy(block)
    for module in block.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    return block
