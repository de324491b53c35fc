"""Embed shards in this process, in several, or on a Ray cluster: the same files from each."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from socket import create_connection
from threading import Thread
from typing import Any

import torch

from ..extras import require
from .vector_shards import Progress, ShardEmbedder, ShardResult, ShardTask

log = logging.getLogger(__name__)
CONNECT_SECONDS = 10
ATTEMPTS = 3  # pools of processes, if one of them is killed
MakeEmbedder = Callable[[], ShardEmbedder]  # called in each process
Results = Iterator[tuple[ShardTask, ShardResult]]


def run_here(
    tasks: Sequence[ShardTask], embedder: ShardEmbedder, progress: Progress | None = None
) -> Results:
    """Embed one shard after the other; `progress` receives the number of images."""
    for task in tasks:
        yield task, embedder(task, progress)


def run_processes(
    tasks: Sequence[ShardTask], make_embedder: MakeEmbedder, processes: int
) -> Results:
    """Embed in processes of one thread each; after a kill the missing shards are tried again."""
    remaining = {task.name: task for task in tasks}
    for attempt in range(1, ATTEMPTS + 1):
        pool = ProcessPoolExecutor(
            processes, get_context("spawn"), initializer=_start, initargs=(make_embedder,)
        )
        with pool:
            futures = {pool.submit(_embed, task): task for task in remaining.values()}
            try:
                for future in as_completed(futures):
                    task = futures[future]
                    yield task, future.result()
                    del remaining[task.name]
                return
            except BrokenProcessPool:
                if attempt == ATTEMPTS:
                    raise RuntimeError(
                        "processes were killed again and again, maybe for want of memory: "
                        "the same command with fewer --processes resumes"
                    ) from None
                log.warning("a process was killed: its shard is embedded again")


_embedder: ShardEmbedder | None = None  # of a process of the pool


def _start(make_embedder: MakeEmbedder) -> None:
    global _embedder
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _embedder = make_embedder()


def _end_with_parent() -> None:
    """End this process if its parent is killed: it would wait for tasks for ever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _embed(task: ShardTask) -> ShardResult:
    assert _embedder is not None
    return _embedder(task)


def run_ray(tasks: Sequence[ShardTask], make_embedder: MakeEmbedder, address: str) -> Results:
    """Embed on a Ray cluster, `auto` for the one of this machine.

    There is an actor for each GPU, or each CPU if there are no GPUs. The folders of images and of
    vectors must be on a file system that all machines share.
    """
    if not tasks:
        return
    ray = require("ray", extra="ray")
    data = require("ray.data", extra="ray")
    try:
        if ":" in address:  # Ray itself tries for minutes
            host, _, port = address.removeprefix("ray://").rpartition(":")
            create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(address=None if address == "local" else address, ignore_reinit_error=True)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"--ray {address} cannot be reached: {reason}") from None
    resources = ray.cluster_resources()
    unit = "GPU" if resources.get("GPU") else "CPU"
    actors = max(1, min(len(tasks), int(resources.get(unit, 1))))
    rows = data.from_items(
        [{"position": i} for i in range(len(tasks))], override_num_blocks=len(tasks)
    ).map(
        _RayEmbedder,
        fn_constructor_args=(list(tasks), make_embedder),
        compute=data.ActorPoolStrategy(size=actors),
        num_cpus=int(unit == "CPU"),
        num_gpus=int(unit == "GPU"),
    )
    for row in rows.iter_rows():
        yield tasks[row["position"]], ShardResult(row["images"], list(row["failed"]))


class _RayEmbedder:
    """An actor that holds the model."""

    def __init__(self, tasks: list[ShardTask], make_embedder: MakeEmbedder) -> None:
        torch.set_num_threads(1)
        self.tasks, self.embedder = tasks, make_embedder()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        result = self.embedder(self.tasks[row["position"]])
        return {"position": row["position"], "images": result.images, "failed": result.failed}
