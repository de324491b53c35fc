"""Commands keep freed memory: a large block that was freed is not taken from the system page by page again."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from cenote.allocator import keep_memory
if sys.argv[1] == "keep":
    assert keep_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(8 << 20)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_blocks_are_used_again() -> None:
    kept, given_back = (
        int(
            subprocess.run(
                [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True
            ).stdout
        )
        for how in ("keep", "plain")
    )
    assert kept * 10 < given_back
