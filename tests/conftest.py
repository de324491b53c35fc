import os
from functools import cache
from pathlib import Path
from typing import Any

# Before torch is imported: bf16 matrix products can die with SIGILL on virtual machines whose CPU flags promise
# more than they hold, and AVX512_CORE keeps oneDNN below those instructions. `make test` says the same; this is for
# a bare `pytest`.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
# Before pymilvus is imported, as the library does: the connection of one test writes to the stderr of another.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What tests share is made by one worker: all of tests/web shares a server, and the tests of a file its fixtures of
    scope "module"; every other test goes wherever there is room.

    Not by marks and --dist loadgroup: xdist 3.8 loses them with pytest 9.2, without a word.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.startswith("tests/web/"):
                return "tests/web"
            return file if _shares(config.rootpath / file) else nodeid

    return Together(config, log) if config.getoption("dist") == "load" else None


@cache
def _shares(file: Path) -> bool:
    return 'scope="module"' in file.read_text(encoding="utf-8")
