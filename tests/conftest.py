import os

# Before torch is imported: bf16 matrix products can die with SIGILL on virtual machines whose CPU flags promise
# more than they hold, and AVX512_CORE keeps oneDNN below those instructions. `make test` says the same; this is for
# a bare `pytest`.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores
