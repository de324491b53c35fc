"""The stages of `cenote demo`: each is a command that a user could type."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Quick ones of most groups. Chosen after a look at the outcome on this very world: with cbam, which ties with ep for
# the first place and is smaller, the demo would show cbam's maps, which point beside the objects (MaxBoxAccV2 22.7, a
# box in the middle has 25.8). The report says so. slot takes twenty times as long.
POOLS = ("gap", "max", "lse", "crow", "se", "ep", "simpool")
QUERY = "cat"  # this one ...
STYLE = "sketch"  # ... but as that
TOP = 10
# At 448 pixels the grid is 14 x 14; at the images' own 128 it is 4 x 4, and nothing is found. On 48 validation images
# CorLoc was 58.3 with lost, 54.2 with maskcut, 47.9 with tokencut, and 22.9 with a box in the middle.
FINDER, FINE = "lost", "448"


@dataclass(frozen=True)
class Plan:
    """What the user chose."""

    folder: Path
    images: int
    pools: tuple[str, ...]
    seeds: int

    def at(self, name: str) -> str:
        return str(self.folder / name)

    def is_default(self) -> bool:
        """Wherever it goes."""
        return replace(self, folder=DEFAULT.folder) == DEFAULT


DEFAULT = Plan(Path("cenote-demo"), 1000, POOLS, 3)


@dataclass(frozen=True)
class Stage:
    name: str
    folder: str  # of its own, below the demo's
    about: str
    seconds: float  # on two cores that do nothing else
    command: Callable[
        [], list[str]
    ]  # called when the stages before are done: it may look at what they found
    needs: tuple[
        str, ...
    ] = ()  # stages whose results it uses: when one of them runs again, so does this
    resume: bool = (
        False  # whether the command must be told to go on; the others do so by themselves
    )
    output: str = ""  # the file below the demo's folder that takes what it prints


def typed(stage: Stage, plan: Plan, words: list[str]) -> str:
    """As a user would type it."""
    into = f" > {shlex.quote(plan.at(stage.output))}" if stage.output else ""
    return f"cenote {shlex.join(words)}{into}"


def stages(plan: Plan) -> list[Stage]:
    world, run, clip, index = (plan.at(name) for name in ("world", "run", "clip", "index"))
    work = plan.images / 1000  # the costs below are those of 1000 images
    played = len(plan.pools) * (plan.seeds + 1) / (len(POOLS) * 4)

    def drawn() -> list[str]:
        shape = [
            "--preset",
            "tiny",
            "--images",
            str(plan.images),
            "--size",
            "128",
            "--classes",
            "12",
        ]
        return [
            "world",
            world,
            *shape,
            "--distractors",
            "0",
            "--domain",
            "photo",
            "cartoon",
            "sketch",
            "sepia",
        ]

    def tournament() -> list[str]:
        short = ["--seeds", str(plan.seeds), "--epochs", "10", "--lr", "3e-3", "1e-2"]
        return ["tournament", world, "-o", plan.at("tournament"), "--pools", *plan.pools, *short]

    def fit() -> list[str]:
        pool, rate = winner(plan)
        return [
            "fit",
            world,
            "-o",
            run,
            "--freeze",
            "--pool",
            pool,
            "--lr",
            f"{rate:g}",
            "--epochs",
            "10",
        ]

    def localize() -> list[str]:
        shown = [plan.at(f"world/{name}") for name in photographs(plan)]
        return ["localize", run, *shown, "-o", plan.at("boxes"), "--masks", "--pictures"]

    def find() -> list[str]:
        return [
            "discover",
            world,
            "--split",
            "test",
            "-o",
            plan.at("found"),
            "--method",
            FINDER,
            "--size",
            FINE,
        ]

    def learn_texts() -> list[str]:
        return ["clip", world, "-o", clip, "--backbone", "lite0", "--freeze", "--epochs", "20"]

    def fill() -> list[str]:
        return ["index", world, "-o", index, "--model", clip]

    def search() -> list[str]:
        asked = ["--image", plan.at(f"world/{query(plan)['file']}"), "--text", STYLE]
        return [
            "search",
            index,
            *asked,
            "--top",
            str(TOP),
            "--sheet",
            plan.at("search/sheet.jpg"),
            "--json",
            "--why",
        ]

    def judge() -> list[str]:
        return [
            "evaluate",
            run,
            world,
            "--on",
            "classify,localize,background,retrieve",
            "-o",
            plan.at("evaluation"),
        ]

    trained = 10 + 30 * work + 60 * work * played  # features, then all contenders
    about = "judge it: classes, boxes, backgrounds, neighbours"
    asked = f"this {QUERY}, but as a {STYLE}"
    return [
        Stage(
            "world",
            "world",
            f"draw {plan.images} images of which every truth is known",
            3 + 7 * work,
            drawn,
        ),
        Stage(
            "tournament",
            "tournament",
            "which pooling suits them",
            trained,
            tournament,
            ("world",),
            True,
        ),
        Stage("fit", "run", "train the winner", 6 + 4 * work, fit, ("tournament",), True),
        Stage("evaluate", "evaluation", about, 8 + 54 * work, judge, ("fit",)),
        # After evaluate, which leaves the threshold that validation images chose in the run.
        Stage(
            "localize",
            "boxes",
            "boxes of test images, from a model that saw no box",
            7,
            localize,
            ("evaluate",),
        ),
        Stage(
            "discover", "found", "find objects without any labels", 5 + 20 * work, find, ("world",)
        ),
        Stage(
            "clip",
            "clip",
            "learn what is said of the images",
            7 + 14 * work,
            learn_texts,
            ("world",),
            True,
        ),
        Stage("index", "index", "make them searchable", 7 + 24 * work, fill, ("clip",)),
        Stage("search", "search", asked, 6, search, ("index",), output="search/results.json"),
    ]


def read_json(path: Path) -> Any:
    """What a stage left; a sentence where somebody damaged it since."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else "damaged"
        raise ValueError(
            f"{path}: {told}; remove its folder, and the same command makes it again"
        ) from None


def winner(plan: Plan) -> tuple[str, float]:
    """The pool that the tournament recommends, and the rate that suited it."""
    report = read_json(plan.folder / "tournament" / "results.json")
    if report["recommended"] is None:
        raise ValueError(f"no pool finished the tournament: see {plan.at('tournament/table.txt')}")
    return next(
        (row["pool"], row["lr"])
        for row in report["standings"]
        if row["name"] == report["recommended"]
    )


def query(plan: Plan) -> dict[str, Any]:
    """The truth of the photograph that shows a single object largest; of the test split, if it has any."""
    wanted = [one for one in _truths(plan) if one["label"] == QUERY and one["domain"] == "photo"]
    if not wanted:
        raise ValueError(
            f"none of the {plan.images} images is the photograph of a {QUERY}: --images takes more"
        )

    def clearness(one: dict[str, Any]) -> tuple[bool, bool, float]:
        areas = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in one["boxes"]]
        return one["split"] == "test", len(areas) == 1, max(areas, default=0.0)

    return max(wanted, key=clearness)


def photographs(plan: Plan, most: int = 8) -> list[str]:
    """Test images, each of another class, photographs where there are any."""
    judged = [one for one in _truths(plan) if one["split"] == "test"]
    firsts: dict[str, str] = {}
    for one in sorted(judged, key=lambda one: one["domain"] != "photo"):
        firsts.setdefault(one["label"], one["file"])
    return list(firsts.values())[:most]


def _truths(plan: Plan) -> Iterator[dict[str, Any]]:
    path = plan.folder / "world" / "annotations.jsonl"
    try:
        yield from [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        raise ValueError(
            f"{path} is missing or damaged: remove its folder, and the same command draws it again"
        ) from None
