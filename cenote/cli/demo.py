"""`cenote demo`: plan, run the stages, report."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from .demo_stages import DEFAULT, Plan


def run(
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = DEFAULT.folder,
    images: int = DEFAULT.images,
    pools: Annotated[tuple[str, ...], tyro.conf.arg(metavar="POOL...")] = DEFAULT.pools,
    seeds: int = DEFAULT.seeds,
    serve: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """All of Cenote in some minutes, without a download: a world, a tournament, boxes, discovery, search, a report.

    Every stage is a command that is printed before it runs. Killed at any moment, the same command goes on where it
    was; with other options only what changes runs again. DIR holds the results of each stage, what each said (logs/),
    results.json and the report, index.html. Exit code 1: a stage failed, and the last lines of its log say why.

    Args:
        out: where everything goes.
        images: how many are drawn.
        pools: who plays the tournament (cenote pools lists them).
        seeds: trainings of each of them.
        serve: then open the page on it, as cenote serve DIR does.
    """
    from cenote.pooling import list_pools

    from ._arguments import check_output_folder, parse_names, print_message
    from .demo_running import StageFailed, only_one

    pools = tuple(
        parse_names(",".join(pools), list_pools(), "pool")
    )  # a typo is told before anything is drawn
    if images < 96:
        raise ValueError(f"--images {images}: 12 classes need at least 96, two of each to test")
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least one")
    if serve:
        import_module("cenote.web")  # what it lacks is told now, not after all stages
    check_output_folder(out)
    plan = Plan(out, images, pools, seeds)
    try:
        with only_one(out):
            _play(plan)
    except StageFailed as failed:
        print_message(f"cenote demo: {failed}")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print_message("interrupted; the same command goes on")
        raise
    if serve:
        from . import main

        raise SystemExit(main(["serve", str(out), "--port", str(free_port())]))


def free_port(usual: int = 8000) -> int:
    """The one of cenote serve, or any that is free: nobody can choose one here."""
    import socket

    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("127.0.0.1", usual))
        except OSError:
            return 0
    return usual


def _play(plan: Plan) -> None:
    from .demo_findings import findings, sentences, table
    from .demo_progress import Progress, clock
    from .demo_report import write_demo
    from .demo_running import done_before, run_stage, write
    from .demo_stages import stages, typed

    todo = stages(plan)
    records: dict[str, dict[str, Any]] = {}
    progress = Progress(todo)
    try:
        for stage in todo:
            after = " ".join(records[name]["name"] for name in stage.needs)
            record = done_before(stage, plan, after)
            before = record is not None
            if record is None:
                progress.begin(stage, typed(stage, plan, stage.command()))
                record = run_stage(stage, plan, after, progress.tick)
            progress.end(stage, record, before)
            records[stage.name] = record
    finally:
        progress.close()
    found = findings(plan)
    ran: list[dict[str, Any]] = [
        {"stage": name, **{key: record[key] for key in ("command", "seconds", "cpu_seconds")}}
        for name, record in records.items()
    ]
    command = f"cenote {shlex.join(['demo', *_given(plan)])}"
    write(plan.folder / "results.json", {"command": command, **found, "stages": ran})
    write_demo(plan, todo, records, found, command)
    told = sentences(found)
    print(table(found))
    print()
    for name in ("tournament", "evaluate", "discover", "search"):
        print(told[name])
    address = (plan.folder / "index.html").resolve().as_uri()
    print(f"\nIn {clock(sum(one['seconds'] for one in ran))} minutes. The report: {address}")
    print(f"Look around in it: cenote serve {shlex.quote(str(plan.folder))}")
    print("Your own images, a folder for each class: cenote tournament FOLDER -o RUN")


def _given(plan: Plan) -> list[str]:
    """What makes this demo another than the DEFAULT."""
    words = [] if plan.folder == DEFAULT.folder else ["-o", str(plan.folder)]
    words += [] if plan.images == DEFAULT.images else ["--images", str(plan.images)]
    words += [] if plan.pools == DEFAULT.pools else ["--pools", *plan.pools]
    return words + ([] if plan.seeds == DEFAULT.seeds else ["--seeds", str(plan.seeds)])
