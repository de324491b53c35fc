"""Run a frozen model on batches of images."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from ..device import half_precision, is_out_of_memory

log = logging.getLogger(__name__)


class Inference:
    """Call `forward` with images on a device; accelerators compute in half precision if `half`.

    If the device runs out of memory, this and all later batches are computed in smaller parts.
    """

    def __init__(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, half: bool = True
    ) -> None:
        self.forward, self.device, self.half = forward, device, half
        self.max_batch: int | None = None  # known when the memory was exhausted

    def __call__(self, images: Tensor) -> Tensor:
        size = full = min(self.max_batch or len(images), len(images))
        while (output := self._compute(images, size)) is None:
            size //= 2
            if self.device.type != "cpu":
                torch.get_device_module(self.device).empty_cache()
        if size < full:
            self.max_batch = size
            message = "%s ran out of memory with %d images at a time: continuing with %d"
            log.warning(message, self.device, full, size)
        return output

    def _compute(self, images: Tensor, size: int) -> Tensor | None:
        """Return the output of parts of `size` images, None if the device runs out of memory."""
        try:
            with half_precision(self.device) if self.half else nullcontext():
                parts = [part.to(self.device, non_blocking=True) for part in images.split(size)]
                return torch.cat([self.forward(part) for part in parts])
        except RuntimeError as error:
            if size == 1 or not is_out_of_memory(error):
                raise
            return None
