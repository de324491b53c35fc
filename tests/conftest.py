import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

# Set before torch is imported. bf16 matrix products can die with SIGILL on virtual machines whose CPU flags promise
# more than the CPU has; AVX512_CORE keeps oneDNN below those instructions. The Makefile sets the same two: these lines
# are for a bare `pytest`.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers share the cores
# Set before pymilvus is imported: an open connection of one test would write to the stderr of another.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# No command leaves a process behind; the tests of the resident process switch it on.
os.environ["CENOTE_RESIDENT"] = "0"

import pytest
import torch

if "OMP_NUM_THREADS" in os.environ:
    torch.set_num_threads(
        int(os.environ["OMP_NUM_THREADS"])
    )  # torch itself never takes more than there are cores


# A shell starts background jobs with SIGINT ignored, which tests send and child processes inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """A test's random numbers do not depend on the tests that ran before it in the same process."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def freed_memory() -> Iterator[None]:
    """Return freed memory to the system after a test that used much: a command that runs in the test process tells
    glibc to keep it (cenote.allocator), and a process runs thousands of tests."""
    before = _resident_gigabytes()
    yield
    if _resident_gigabytes() > before + 0.1:
        gc.collect()
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)  # of glibc


def _resident_gigabytes() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux
        return 0.0
    return pages * resource.getpagesize() / 1e9


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send tests that share fixtures to the same worker: all of tests/web, and files with fixtures of scope "module".

    Every other test goes to the next free worker. Marks and --dist loadgroup would do the same, but xdist 3.8 loses
    the marks with pytest 9.2, silently.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByFixtures(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.startswith("tests/web/"):
                return "tests/web"
            return file if _has_module_fixtures(config.rootpath / file) else nodeid

    return ByFixtures(config, log) if config.getoption("dist") == "load" else None


@cache
def _has_module_fixtures(file: Path) -> bool:
    return 'scope="module"' in file.read_text(encoding="utf-8")


# The peak memory of every test process stands at the end of the run: it should stay below 2.5 GB.
_peaks: dict[str, float] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker_output = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        unit = 1e9 if sys.platform == "darwin" else 1e6  # bytes or kilobytes
        worker_output["peak_gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    if "peak_gigabytes" in getattr(node, "workeroutput", {}):
        _peaks[node.gateway.id] = node.workeroutput["peak_gigabytes"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _peaks:
        rows = ", ".join(f"{name} {peak:.1f} GB" for name, peak in sorted(_peaks.items()))
        terminalreporter.write_line(f"peak memory: {rows}")
