"""Run the cells of a table: each command once, in a folder that any number of processes share.

The folder of a command is named after its words. A command is done if results.json has the numbers
that the cells read; one that was interrupted is resumed. Cells and tables with the same command
share its result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.files import try_lock
from .papers import PLACEHOLDER, Item, by_placeholder, fill

INTERRUPTED = 130  # exit code
logger = logging.getLogger(__name__)
RESUMABLE = ("fit", "metric", "dino", "moco", "tournament")
OPTION = re.compile(r"--[a-z]")
RESULTS, CHECKPOINT = "results.json", "checkpoint.pt"


@dataclass(frozen=True)
class Job:
    """A command line without `cenote` and -o, and the folder that it writes."""

    words: tuple[str, ...]
    folder: Path
    scores: frozenset[str] = frozenset()  # what cells read: KEY/... of results.json

    @property
    def done(self) -> bool:
        return (self.folder / RESULTS).exists() and not self.missing()

    def missing(self) -> list[str]:
        """Return the scores that results.json does not have."""
        return [score for score in sorted(self.scores) if self.find(score) == []]

    def find(self, score: str) -> list[float | None]:
        """Return a list of the number in results.json, None for NaN; empty if it is not there."""
        path = self.folder / RESULTS
        if not path.exists():
            return []
        content = json.loads(path.read_text(encoding="utf-8"))
        for key in score.split("/"):
            if isinstance(content, list):
                content = {element["name"]: element for element in content}
            if not content or key not in content:
                return []
            content = content[key]
        return [content]

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def line(self) -> str:
        return shlex.join(["cenote", *self.words, "-o", str(self.folder)])


@dataclass(frozen=True)
class Cell:
    """A number of a table for one seed: its commands by name, and where the number is."""

    row: str
    column: str
    seed: int
    jobs: dict[str, Job]
    score: str

    def number(self) -> float | None:
        """Return the number in results.json; None if it is not there yet."""
        command, _, score = self.score.partition("/")
        return next(iter(self.jobs[command].find(score)), None)


def make_cells(
    item: Item, scale: str, inputs: Mapping[str, str], seeds: int, out: Path
) -> list[Cell]:
    """Return the cells of a scale whose inputs are given, the first seed of all before the second."""
    cells = []
    for seed, (row, column) in itertools.product(range(seeds), item.cells):
        at = item.columns[column]
        if at.scales and scale not in at.scales:
            continue
        values = {**inputs, "data": inputs.get(at.data, ""), "title": row, "seed": str(seed)}
        arguments = item.arguments(row, column, scale)
        score = fill(at.score or item.score, values | arguments)
        command, _, key = score.partition("/")
        if _misses_arguments(item, scale, arguments):
            continue
        lines = _needed_for(
            command, {name: fill(line, arguments) for name, line in item.commands.items()}
        )
        placeholders = set(PLACEHOLDER.findall(" ".join(lines.values()))) - {"data"}
        if {at.data} | (placeholders & set(item.inputs)) <= set(inputs):
            jobs = _make_jobs(lines, values, out)
            jobs[command] = replace(jobs[command], scores=frozenset([key]))
            cells.append(Cell(row, column, seed, jobs, score))
    return cells


def _misses_arguments(item: Item, scale: str, arguments: Mapping[str, str]) -> bool:
    """Return whether a row has placeholders of other scales only."""
    other = {name for at in item.scales.values() for name in by_placeholder(at, "scale")}
    used = PLACEHOLDER.findall(" ".join(arguments.values()))
    return not {*used} & other <= {*by_placeholder(item.scales[scale], "scale")}


def _needed_for(command: str, lines: Mapping[str, str]) -> dict[str, str]:
    """Return the line of a command and those of the earlier commands whose folders it uses."""
    needed = {command}
    for name in reversed(list(lines)):
        if name in needed:
            needed |= set(PLACEHOLDER.findall(lines[name])) & set(lines)
    return {name: line for name, line in lines.items() if name in needed}


def _make_jobs(lines: Mapping[str, str], values: dict[str, str], out: Path) -> dict[str, Job]:
    """Return the commands of a cell; each may use the folders of those before it."""
    jobs: dict[str, Job] = {}
    for name, line in lines.items():
        words = _last_of_each(shlex.split(line))
        # Moving OUT must not change the name.
        names = values | {step: job.folder.name for step, job in jobs.items()}
        digest = hashlib.sha1("\n".join(fill(word, names) for word in words).encode()).hexdigest()
        folders = values | {step: str(job.folder) for step, job in jobs.items()}
        folder = out / "runs" / f"{words[0]}-{digest[:10]}"
        jobs[name] = Job(tuple(fill(word, folders) for word in words), folder)
    return jobs


def _last_of_each(words: Sequence[str]) -> list[str]:
    """Drop each option that a later one of the same name replaces."""
    options: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        if OPTION.match(word):
            name = word
            options[name] = []
        options[name].append(word)
    return list(itertools.chain.from_iterable(options.values()))


def list_jobs(cells: Sequence[Cell]) -> list[Job]:
    """Return each command of the cells once, with the scores that all of them read."""
    jobs: dict[Path, Job] = {}
    for cell in cells:
        for job in cell.jobs.values():
            declared = jobs.get(job.folder, job)
            jobs[job.folder] = replace(job, scores=declared.scores | job.scores)
    return list(jobs.values())


def run_in_process(job: Job) -> int:
    """Run a command in another process, with its output in the log; return its exit code."""
    words = [sys.executable, "-m", "cenote", *job.words, "-o", str(job.folder)]
    if job.folder.exists() and job.words[0] in RESUMABLE:
        words.append("--resume")
    with (
        open(job.log, "ab") as log,
        subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()  # Ctrl-C reaches it as well: it saves its checkpoint
            raise


def run_cells(cells: Sequence[Cell], run: Callable[[Job], int] = run_in_process) -> Iterator[Job]:
    """Run the missing commands; yield each that has ended. A failure is reported and skipped.

    If two fail alike before any cell has a number, the others are not tried.
    """
    jobs = list_jobs(cells)
    missing = sum(not job.done for job in jobs)
    skipped, errors = set[Path](), list[str]()
    started, ended = time.monotonic(), 0
    for number, job in enumerate(jobs, 1):
        line = job.line  # it may have the folder of an epoch
        needs = {other.folder for other in jobs if other != job and str(other.folder) in line}
        if job.done or needs & skipped:
            continue
        lock = try_lock(job.folder.with_suffix(".lock"))
        if lock is None:
            logger.info("%d of %d runs in another process", number, len(jobs))
            skipped.add(job.folder)
            continue
        try:
            if job.done:
                continue
            remaining = ""
            if ended:
                minutes = (time.monotonic() - started) / ended * (missing - ended) / 60
                remaining = f", about {minutes:.0f} min left"
            logger.info("%d of %d%s: %s", number, len(jobs), remaining, job.line)
            if (code := run(job)) == INTERRUPTED:
                raise KeyboardInterrupt
            if code:
                errors.append(_last_line(job.log))
                logger.error("exit code %d: %s", code, errors[-1])
                skipped.add(job.folder)
            elif job.done:
                (job.folder / CHECKPOINT).unlink(missing_ok=True)
            else:
                errors.append(f"no {', '.join(job.missing())} in {RESULTS}")
                logger.error("%s: see %s", errors[-1], job.log)
            ended += 1
            repeated = len(errors) > len(set(errors))
            if repeated and all(cell.number() is None for cell in cells):
                raise ValueError(f"two commands failed alike: {errors[-1]}")
        finally:
            lock.release()
        yield job


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "no output")
