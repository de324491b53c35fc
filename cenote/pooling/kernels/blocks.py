"""Walking a batch in cache-sized blocks of images."""

import torch
from torch import Tensor

# A few buffers of this size stay in a last-level cache, and hide the cost of a call.
BLOCK_BYTES = 4 << 20
WORTH_IT = 1 << 20  # below one block, plain operations have less overhead


def blocks_serve(x: Tensor) -> bool:
    """Blocks pay on a CPU, if there is enough to walk. A GPU wants few large operations; tracers
    and the transforms of torch.func want plain ones.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state():
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    return x.device.type == "cpu" and x.nbytes > WORTH_IT


def blocks(x: Tensor) -> list[slice]:
    """Slices of the batch (B, N, D) of about BLOCK_BYTES each, one image at least."""
    b, n, d = x.shape
    size = max(1, BLOCK_BYTES // (n * d * x.element_size()))
    return [slice(i, min(i + size, b)) for i in range(0, b, size)]
