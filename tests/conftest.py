import os

# Before torch is imported: one oneDNN instruction set everywhere, so that half-precision results do not
# depend on the machine's CPU. `make test` says the same; this is for a bare `pytest`.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores
