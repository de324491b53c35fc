"""Kill commands at random moments, resume them, and compare with undisturbed runs:
`python benchmarks/kills.py -o FOLDER [--kills 4] [--only fit-vit,index] [--seed 0]`.

A command runs once undisturbed. Then it is killed (SIGKILL) and resumed until it has been killed
`--kills` times, and once more to its end. A kill counts only if a checkpoint or finished work was
on the disk. Weights are compared bit for bit, tables and results without their times, indexes by
entries and vectors. Commands are forked from this process, which has imported torch already; the
torchrun case starts processes of its own. FOLDER/kills.json is the table. About ten minutes of CPU
time.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SMALL = "--epochs 6 --batch 16 --workers 0"
EVERY_STEP = "checkpoint_minutes=0"  # a checkpoint after every step
MICRO = "--backbone vit_micro --size 32 --scratch"
CASES = {  # options after the data, and what is on the disk when there is something to resume
    "fit-frozen": (
        f"fit WORLD --freeze --pool gap {SMALL} --settings {EVERY_STEP}",
        "checkpoint.pt",
    ),
    "fit-vit": (
        f"fit WORLD {MICRO} {SMALL} --settings {EVERY_STEP} mixup=1 cutmix=1 ema=0.9 plateau=2",
        "checkpoint.pt",
    ),
    "fit-resnet": (
        f"fit WORLD --backbone resnet_micro --scratch {SMALL} --settings {EVERY_STEP}",
        "checkpoint.pt",
    ),
    "fit-torchrun": (f"fit WORLD {MICRO} {SMALL} --settings {EVERY_STEP}", "checkpoint.pt"),
    "metric": (
        f"metric WORLD --backbone resnet_micro --scratch --dim 16 {SMALL} --settings {EVERY_STEP}",
        "checkpoint.pt",
    ),
    "dino": (f"dino WORLD --size 32 --local 2 {SMALL} --settings {EVERY_STEP}", "checkpoint.pt"),
    "moco": (f"moco WORLD --size 32 {SMALL} --settings {EVERY_STEP}", "checkpoint.pt"),
    "clip": (f"clip WORLD --size 32 {SMALL} --settings {EVERY_STEP}", "checkpoint.pt"),
    "tournament": (
        "tournament WORLD --pools gap gem max --seeds 3 --epochs 20 --batch 16 --workers 0",
        "**/*.pt",
    ),
    "probe": ("probe WORLD --seeds 2 --epochs 20 --batch 16 --workers 0", "**/*.json"),
    "sweep": (
        f"sweep WORLD {MICRO} --trials 4 {SMALL} --settings {EVERY_STEP}",
        "trials/*/checkpoint.pt",
    ),
    "index": ("index WORLD --batch 2 --workers 0", "vectors-0.bin"),
    "index-workers": ("index WORLD --batch 2 --workers 2", "vectors-0.bin"),
    "localize": ("localize PHOTOS --batch 2 --workers 0", ".localize.jsonl"),
    "discover": ("discover PHOTOS --method object,lost --workers 0", ".discover.jsonl"),
    "embed": ("embed PHOTOS --batch 8 --workers 0", "**/*.parquet"),
    "background": ("evaluate RUN WORLD --on background --batch 8 --workers 0", ".background.json"),
    "corruption": ("evaluate RUN WORLD --on corruption --batch 8 --workers 0", ".corruption.json"),
    "segment": ("evaluate RUN WORLD --on segment --batch 8 --workers 0", "**/checkpoint.pt"),
}
HAS_RESUME = ("fit", "metric", "dino", "moco", "clip", "tournament", "probe")
TIMES = ("second", "speed", "time", "date", "made", "versions", "ms", "hours")  # parts of keys
SKIPPED = (
    ".lock",
    "lock",
    ".trial.lock",
    "command.txt",
    "config.json",
    "page.json",
    "plan.json",
    "speed.json",
)


class Outcome(NamedTuple):
    case: str
    kills: int  # with a checkpoint behind
    early: int  # before there was one
    same: bool
    note: str = ""


def arguments_of(case: str, folder: Path) -> list[str]:
    names = {"WORLD": "world", "PHOTOS": "photos", "RUN": "trained"}
    words = {word: str(folder / name) for word, name in names.items()}
    command, data, *options = [words.get(word, word) for word in CASES[case][0].split()]
    return [command, data, "-o", "out", *options] if command != "evaluate" else [
        command, data, *options, "-o", "out"
    ]  # fmt: skip


def start(case: str, arguments: list[str], work: Path) -> int:
    """Start a command in `work`; return its process, which leads a group."""
    if case.endswith("torchrun"):
        words = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=2",
            "-m",
            "cenote",
        ]
        with open(work / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, *words, *arguments],
                cwd=work, stdout=log, stderr=log, start_new_session=True,
            ).pid  # fmt: skip
    process = os.fork()
    if process:
        return process
    os.setsid()
    os.chdir(work)
    log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 99
    try:
        from cenote.cli import main

        code = main(arguments)
    finally:
        sys.stdout.flush()
        os._exit(code)


def wait(process: int, seconds: float) -> int | None:
    """Return the exit code of a process; None if it still runs after this time."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.01)


def run_killed(
    case: str, arguments: list[str], work: Path, kills: int, seconds: float
) -> tuple[int, int]:
    """Kill and resume; return the number of kills with and without something to resume."""
    out, counted, early = work / "out", 0, 0
    resume = ["--resume"] * (arguments[0] in HAS_RESUME)
    for _ in range(3 * kills):
        if counted == kills:
            break
        process = start(case, arguments + (resume if out.is_dir() else []), work)
        while not has_saved(case, work) and wait(process, 0) is None:
            time.sleep(0.005)
        try:
            code = wait(process, random.uniform(0, seconds * 0.8))
        except ChildProcessError:  # it ended before there was anything
            code = 0
        if code is not None:
            break
        has_work = has_saved(case, work)
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        counted, early = counted + has_work, early + (not has_work)
    return counted, early


def finish(case: str, arguments: list[str], work: Path) -> float:
    """Run to the end; return the seconds from the first saved work on."""
    process, begun, code = start(case, arguments, work), time.monotonic(), None
    first = 0.0
    while code is None and time.monotonic() - begun < 1200:
        code = wait(process, 0.005)
        if not first and has_saved(case, work):
            first = time.monotonic()
    if code != 0:
        ending = (work / "log").read_text(errors="replace")[-500:]
        raise RuntimeError(f"{case} ended with {code}: {ending}")
    return time.monotonic() - (first or begun)


def has_saved(case: str, work: Path) -> bool:
    """Return whether a checkpoint or finished work is on the disk."""
    try:
        return any(path.stat().st_size > 0 for path in (work / "out").glob(CASES[case][1]))
    except FileNotFoundError:  # replaced in this moment
        return True


def results(folder: Path) -> dict[str, Any]:
    """Return what a command has written, without times."""
    if (folder / "images.sqlite").exists():
        entries, vectors = index_contents(folder)
        return {"entries": entries, "vectors": vectors}
    readers: dict[str, Callable[[Path], Any]] = {
        ".json": lambda path: without_times(json.loads(path.read_text())),
        ".csv": lambda path: without_seconds(path.read_text()),
        ".safetensors": digest, ".npy": digest, ".parquet": digest, ".png": digest,
    }  # fmt: skip
    return {
        str(path.relative_to(folder)): readers[path.suffix](path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in readers and path.name not in SKIPPED
        and not path.name.startswith(".") and path.is_file()
    }  # fmt: skip


def index_contents(folder: Path) -> tuple[list[Any], Any]:
    import torch

    from cenote.search.load import find_store

    store = find_store(folder)
    assert store is not None
    sample = sorted(store.sample(1 << 30), key=lambda pair: pair[1].path)
    vectors = store.vectors(torch.tensor([row for row, _ in sample]))
    return [(entry.path, entry.label) for _, entry in sample], vectors.numpy()


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_times(inner)
            for key, inner in value.items()
            if not any(part in str(key).lower() for part in TIMES) and key != "table"
        }
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def are_equal(expected: Any, actual: Any) -> bool:
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        # PyTorch computes the first images of each process, OpenVINO the others.
        return expected.shape == actual.shape and np.allclose(expected, actual, atol=1e-5)
    return bool(expected == actual)


def without_seconds(text: str) -> list[dict[str, str]]:
    return [without_times(row) for row in csv.DictReader(text.splitlines())]


def digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def run_case(case: str, folder: Path, kills: int) -> Outcome:
    arguments = arguments_of(case, folder)
    base = [word for word in arguments if word != "--resume"]
    undisturbed, killed = folder / case / "undisturbed", folder / case
    undisturbed.mkdir(parents=True)
    seconds = finish(case, base, undisturbed)
    os.environ["CENOTE_CACHE"] = str(folder / "cache")
    counted = early = 0
    rounds = 0
    expected, same, note = results(undisturbed / "out"), True, ""
    while counted < kills and rounds < 2 * kills:
        work = killed / str(rounds)
        work.mkdir()
        more, before = run_killed(case, base, work, kills - counted, seconds)
        counted, early, rounds = counted + more, early + before, rounds + 1
        resume = ["--resume"] * (base[0] in HAS_RESUME)
        if not (work / "out" / "results.json").exists() or base[0] not in ("tournament",):
            finish(case, base + resume * (work / "out").is_dir(), work)
        actual = results(work / "out")
        names = {*expected, *actual}
        different = [n for n in names if not are_equal(expected.get(n), actual.get(n))]
        if different:
            same, note = False, f"{work}: {', '.join(sorted(different)[:4])}"
    return Outcome(case, counted, early, same, note)


def prepare(folder: Path) -> None:
    from cenote.cli import main
    from cenote.data.synthetic import World, write_world

    world = World.preset("small", images=96, size=64, domains=("photo", "sketch"))
    write_world(world, folder / "world", progress=False)
    (folder / "photos").mkdir()
    for path in sorted((folder / "world" / "images").rglob("*.png"))[:24]:
        shutil.copy(path, folder / "photos" / path.name)
    arguments = ["fit", str(folder / "world"), "-o", str(folder / "trained")]
    if main([*arguments, *MICRO.split(), "--epochs", "2", "--workers", "0"]):
        raise SystemExit("the model could not be trained")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = options.out.absolute()
    os.environ["CENOTE_CACHE"], os.environ["CENOTE_RESIDENT"] = str(folder / "cache"), "0"
    random.seed(options.seed)
    if not (folder / "trained" / "results.json").exists():
        preparing = os.fork()  # threads of this process would not exist in forked ones
        if not preparing:
            prepare(folder)
            os._exit(0)
        if os.waitpid(preparing, 0)[1]:
            raise SystemExit("the preparation failed")
    import timm  # noqa: F401
    import torch

    import cenote.api
    import cenote.models.image_text
    import cenote.search.index
    import cenote.train.fit  # noqa: F401

    torch.set_num_threads(1)
    outcomes = []
    for case in options.only.split(","):
        try:
            outcome = run_case(case, folder, options.kills)
        except RuntimeError as error:
            outcome = Outcome(case, 0, 0, False, str(error))
        outcomes.append(outcome._asdict())
        print(json.dumps(outcomes[-1]), flush=True)
        (folder / "kills.json").write_text(json.dumps(outcomes, indent=1))
    kills = sum(outcome["kills"] for outcome in outcomes)
    print(
        f"{kills} kills with something to resume; all the same: {all(o['same'] for o in outcomes)}"
    )


if __name__ == "__main__":
    main()
