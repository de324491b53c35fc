"""`cenote demo`: a list of commands, run one after the other, then a report of their results."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from .. import __version__
from ._arguments import check_output_folder, command_line, parse_names, print_message
from .demo_report import (
    choose_test_images,
    find_query,
    format_minutes,
    read_json,
    winner,
    write_report,
)

MARKER = "demo.json"  # only a folder with this file may be cleared
MAX_LOG_LINES = 4  # of a failed stage
STOP_SECONDS = 20.0  # for an interrupted stage to write its checkpoint
# Fast pools of most groups. cbam is left out: it ties with ep and is smaller, so it would be
# recommended, but its maps miss the objects (MaxBoxAccV2 22.7; a centred box has 25.8). The report
# says so. slot takes twenty times as long.
POOLS = ("gap", "max", "lse", "crow", "se", "ep", "simpool")


@dataclass(frozen=True)
class DemoOptions:
    folder: Path = Path("cenote-demo")
    images: int = 1000
    pools: tuple[str, ...] = POOLS
    seeds: int = 3


@dataclass(frozen=True)
class Stage:
    """A command that writes `folder`; it runs again when a stage that it needs runs again."""

    name: str
    folder: str
    description: str
    command: str  # words in capitals are replaced, see PLACEHOLDERS
    needs: tuple[str, ...] = ()
    resume: bool = False  # whether the command takes --resume
    output: str = ""  # the file in `folder` for what the command prints


# localize comes after evaluate, which stores the threshold chosen on validation images in the run.
# discover: at 448 pixels the grid is 14 x 14; at the images' own 128 it is 4 x 4, too coarse. On 48
# validation images CorLoc is 58.3 with lost, 54.2 with maskcut, 47.9 with tokencut.
STAGES = (
    Stage("world", "world", "draw synthetic images with complete ground truth",
          "world DIR/world --preset tiny --images IMAGES --size 128 --classes 12 --distractors 0 "
          "--domain photo cartoon sketch sepia"),
    Stage("tournament", "tournament", "compare pools on them",
          "tournament DIR/world -o DIR/tournament --pools POOLS --seeds SEEDS --epochs 10 "
          "--lr 3e-3 1e-2", ("world",), resume=True),
    Stage("fit", "run", "train with the recommended pool",
          "fit DIR/world -o DIR/run --freeze --pool POOL --lr LR --epochs 10",
          ("tournament",), resume=True),
    Stage("evaluate", "evaluation", "evaluate the trained model",
          "evaluate DIR/run DIR/world --on classify,localize,background,retrieve "
          "-o DIR/evaluation", ("fit",)),
    Stage("localize", "boxes", "predict boxes of test images",
          "localize DIR/run PHOTOS -o DIR/boxes --masks --pictures", ("evaluate",)),
    Stage("discover", "found", "find objects without any labels",
          "discover DIR/world --split test -o DIR/found --method lost --size 448", ("world",)),
    Stage("clip", "clip", "train an image-text model on captions",
          "clip DIR/world -o DIR/clip --backbone lite0 --freeze --epochs 20",
          ("world",), resume=True),
    Stage("index", "index", "make the images searchable",
          "index DIR/world -o DIR/index --model DIR/clip", ("clip",)),
    Stage("search", "search", "search for this cat, but as a sketch",
          "search DIR/index --image QUERY --text sketch --top 10 --sheet DIR/search/sheet.jpg "
          "--json --why", ("index",), output="results.json"),
)  # fmt: skip
# Evaluated when the stages before are done.
PLACEHOLDERS: dict[str, Callable[[DemoOptions], Sequence[str]]] = {
    "IMAGES": lambda demo: [str(demo.images)],
    "POOLS": lambda demo: demo.pools,
    "SEEDS": lambda demo: [str(demo.seeds)],
    "POOL": lambda demo: [winner(demo.folder)["pool"]],
    "LR": lambda demo: [f"{winner(demo.folder)['lr']:g}"],
    "PHOTOS": lambda demo: [
        f"{demo.folder}/world/{name}" for name in choose_test_images(demo.folder)
    ],
    "QUERY": lambda demo: [f"{demo.folder}/world/{find_query(demo.folder)['file']}"],
}


class StageFailed(RuntimeError):
    """The command of a stage failed."""


def run(
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = DemoOptions.folder,
    images: int = DemoOptions.images,
    pools: Annotated[tuple[str, ...], tyro.conf.arg(metavar="POOL...")] = DemoOptions.pools,
    seeds: int = DemoOptions.seeds,
    serve: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Try everything in a few minutes, without a download: data, tournament, boxes, search, report.

    Every stage is a command that is printed before it runs. An interrupted demo is resumed by the
    same command; with other options only what changes runs again. DIR contains the results of each
    stage, its messages (logs/), results.json and the report, index.html. Exit code 1: a stage
    failed; the last lines of its log are printed.

    Args:
        out: the folder for all results.
        images: how many images are drawn.
        pools: the pools of the tournament (cenote pools lists them).
        seeds: trainings of each pool.
        serve: open the page on the results at the end, as cenote serve DIR does.
    """
    from cenote.pooling import list_pools

    pools = tuple(parse_names(",".join(pools), list_pools(), "pool"))
    if images < 96:
        raise ValueError(f"--images {images}: 12 classes need at least 96, two of each to test")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    if serve:
        import_module("cenote.web")  # a missing package is reported now, not after all stages
    check_output_folder(out)
    try:
        run_stages(DemoOptions(out, images, pools, seeds))
    except StageFailed as error:
        print_message(f"cenote demo: {error}")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print_message("interrupted; the same command resumes")
        raise
    if serve:
        from . import main

        raise SystemExit(main(["serve", str(out), "--port", str(free_port())]))


def run_stages(demo: DemoOptions) -> None:
    """Run every stage that is not done, then write the report and print a summary."""
    from filelock import FileLock, Timeout
    from tqdm import tqdm

    folder = demo.folder
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ValueError(f"-o {folder} is not empty and not a demo: name another folder")
    write_json(folder / MARKER, {"demo": 1})
    try:
        with FileLock(folder / ".lock", timeout=0):
            stages = tqdm(STAGES, unit="stage", disable=None, leave=False)
            records = {stage.name: run_stage(stage, demo) for stage in stages}
    except Timeout:
        raise ValueError(f"another demo is running in {folder}: wait for it to end") from None
    is_default = demo == DemoOptions(folder)
    write_json(folder / "results.json", write_report(folder, records, command_line(), is_default))


def command_of(stage: Stage, demo: DemoOptions) -> list[str]:
    """Return the words of the command with the placeholders replaced."""
    words: list[str] = []
    for word in stage.command.split():
        if word in PLACEHOLDERS:
            words += PLACEHOLDERS[word](demo)
        else:
            words.append(word.replace("DIR/", f"{demo.folder}/"))
    return words


def run_stage(stage: Stage, demo: DemoOptions) -> dict[str, Any]:
    """Run a stage unless it is done; return its record: command, version, seconds, done."""
    title = f"{STAGES.index(stage) + 1}/{len(STAGES)} {stage.name}"
    words, folder = command_of(stage, demo), demo.folder / stage.folder
    command = shlex.join(["cenote", *words])
    if stage.output:
        command += f" > {shlex.quote(str(folder / stage.output))}"
    request, path = {"command": command, "version": __version__}, record_path(stage, demo)
    record: dict[str, Any] = read_json(path) if path.is_file() else {}
    resumable = folder.is_dir() and request.items() <= record.items()
    if resumable and record["done"]:
        print_message(f"{title}: done already")
        return record
    print_message(f"{title}: {stage.description}\n    {command}")
    if not resumable:
        forget(stage, demo)
        shutil.rmtree(folder, ignore_errors=True)
        record = {**request, "seconds": 0.0, "done": False}
    elif stage.resume:
        words.append("--resume")
    started, seconds, code = time.monotonic(), record["seconds"], 1
    write_json(path, record)
    try:
        code = run_command(stage, words, demo)
    finally:
        record |= {"seconds": seconds + time.monotonic() - started, "done": code == 0}
        write_json(path, record)
    if code:
        log = path.with_suffix(".txt")
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise StageFailed(
            "\n".join(lines[-MAX_LOG_LINES:])
            + f"\nthe stage {stage.name} failed with exit code {code}; its messages are in {log}. "
            "The same cenote demo resumes there; to run a stage again, remove its folder."
        )
    print_message(f"    done in {format_minutes(record['seconds'])}")
    return record


def forget(stage: Stage, demo: DemoOptions) -> None:
    """Delete the records and logs of a stage and of all stages that need its results."""
    for suffix in (".json", ".txt"):
        record_path(stage, demo).with_suffix(suffix).unlink(missing_ok=True)
    for later in STAGES:
        if stage.name in later.needs:
            forget(later, demo)


def run_command(stage: Stage, words: list[str], demo: DemoOptions) -> int:
    """Run `cenote WORDS` in a process that never outlives this one; return its exit code."""
    log = record_path(stage, demo).with_suffix(".txt")
    output = demo.folder / stage.folder / stage.output if stage.output else log
    output.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(log, "ab") as messages,
        open(output, "wb" if stage.output else "ab") as printed,
        subprocess.Popen(
            [sys.executable, "-m", "cenote.cli.demo", *words],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=messages,
            start_new_session=True,
        ) as child,
    ):
        try:
            return child.wait()
        except BaseException:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
            raise


def record_path(stage: Stage, demo: DemoOptions) -> Path:
    return demo.folder / "logs" / f"{stage.name}.json"


def write_json(path: Path, content: Any) -> None:
    from cenote.data.files import write_atomically

    with write_atomically(path) as temporary:
        text = json.dumps(content, indent=2, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def free_port(default: int = 8000) -> int:
    """Return the port of cenote serve if it is free, else 0 for any free port."""
    import socket

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", default))
        except OSError:
            return 0
    return default


def run_as_stage() -> int:
    """Run `cenote ARGUMENTS`; exit with all processes of it when the demo that started it is gone.

    Otherwise a killed demo would leave a stage behind, and the next demo would start another one.
    """
    from threading import Thread

    from . import main

    def exit_with_demo() -> None:
        os.read(0, 1)  # returns when the demo, which never writes, no longer holds the pipe
        os.killpg(0, signal.SIGKILL)

    # Jobs in the background of a shell script ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    Thread(target=exit_with_demo, daemon=True).start()
    return main()


if __name__ == "__main__":
    sys.exit(run_as_stage())
