"""A script or a module in one process or, under torchrun, in several."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).parents[2]


def in_processes(count: int, *command: str, **environment: str) -> str:
    """What it prints; it ends well."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] * (count > 1)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    run = [sys.executable, *torchrun, *command]
    done = subprocess.run(run, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def by_one_and_by_two(script: str, folder: Path, *arguments: str) -> tuple[Path, Path]:
    """The folders that the script, which is given one first, leaves alone and in company."""
    (folder / "learn.py").write_text(script)
    alone, together = folder / "1", folder / "2"
    for count, out in enumerate((alone, together), 1):
        out.mkdir()
        in_processes(count, str(folder / "learn.py"), str(out), *arguments)
    return alone, together


def same_weights(read: Callable[[Path], dict[str, Tensor]], paths: tuple[Path, Path], rtol: float, atol: float) -> None:
    alone, together = map(read, paths)
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        torch.testing.assert_close(together[name], value, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")
