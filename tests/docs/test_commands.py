"""Every command of the documents is accepted by its own parser, and the commands of a page run in their order.

Commands run made small, in one folder for each page; the page's Python runs in one scope. By default the pages in QUICK
run, and one command of each kind that they do not have; the other pages are slow. What no test can run here is only
parsed; shrinking.py has the reasons.
"""

from __future__ import annotations

import gc
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.reading import ROOT, Command, Python, documents, inline, name_of, steps, typed
from tests.docs.running import exists, parse, release_memory, run
from tests.docs.shrinking import NOT_RUN, reason, shrunk

POOLS = ROOT / "docs" / "pools"  # test_documents.py runs theirs
# Their Python registers a pool; test_contributing.py and test_documents.py run it.
ALONE = ("CONTRIBUTING.md", "docs/how-to/add-a-pool.md")
PAGES = {name_of(path): path for path in documents() if path.parent != POOLS and steps(path)}
QUICK = (
    "README.md",
    "docs/commands.md",
    "docs/getting-started.md",
    "docs/metric.md",
    "docs/models.md",
)
RUN = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name, path in PAGES.items()
    if any(isinstance(step, Python) or reason(step.text) is None for step in steps(path))
]


def given() -> dict[str, Any]:
    """What the pages take for granted: images, and unit vectors with their labels."""
    torch.manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(12, 256), dim=1)
    return {
        "images": torch.randn(2, 3, 64, 64),
        "embeddings": torch.nn.functional.normalize(torch.randn(8, 512), dim=1),
        "labels": torch.arange(8) % 4,
        "similarity": torch.rand(3, 5),
        "label": torch.rand(3, 5),
        "vectors": vectors,
        "image": vectors[0],
    }


def check(
    command: Command, page: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Parse a command; fail with its place in the documents."""
    try:
        parse(command.words, monkeypatch)
    except (SystemExit, ValueError, AssertionError, OSError) as error:
        pytest.fail(
            f"{page}:{command.line}: {command.text}\n{error}\n{capfd.readouterr().err[-2000:]}"
        )


def execute(
    command: Command, page: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Run a command, made small; fail with its place in the documents."""
    if run(command.words, monkeypatch):
        printed = capfd.readouterr()
        pytest.fail(
            f"{page}:{command.line}: {command.text}\n{printed.out[-1000:]}\n{printed.err[-2000:]}"
        )
    release_memory()


@pytest.mark.timeout(600)  # a minute for the longest page, on a machine that has nothing else to do
@pytest.mark.parametrize("name", RUN)
def test_a_page_does_what_it_says(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gc.collect()
    if name not in ALONE:
        run_python(name)
    release_memory()
    for command in typed(PAGES[name]):
        if reason(command.text) is None:
            execute(command, name, monkeypatch, capfd)


def run_python(name: str) -> None:
    """The blocks of a page, in one scope. They use no files that its commands write."""
    scope = given()
    for step in steps(PAGES[name]):
        if isinstance(step, Python):
            exec(compile(step.text, f"{name}:{step.line}", "exec"), scope)
    if name == "README.md":
        assert tuple(scope["a"].shape) == (2, 1, 14, 14)
        assert tuple(scope["u"].shape) == (2, 384)


def test_each_command_runs_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """For each command that no quick page has, the first line that needs no other command before it."""
    lines = [(name, command) for name, path in PAGES.items() for command in typed(path)]
    lines = [
        (name, command)
        for name, command in lines
        if command.words[0] == "cenote" and not reason(command.text)
    ]
    seen = {command.words[1] for name, command in lines if name in QUICK}
    for name, command in lines:
        if command.words[1] not in seen and Path(command.words[2]).exists():
            seen.add(command.words[1])
            execute(command, name, monkeypatch, capfd)
    assert seen == {command.words[1] for _, command in lines}


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_is_parsed(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for step in steps(PAGES[name]):
        if isinstance(step, Command):
            check(step, name, monkeypatch, capfd)
        else:
            compile(step.text, f"{name}:{step.line}", "exec")


@pytest.mark.parametrize("path", [path for path in documents() if inline(path)], ids=name_of)
def test_commands_within_sentences_are_commands(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in inline(path):
        if len(command.words) <= 2 or re.search(
            r"\.\.\.|<", command.text
        ):  # `cenote fit`: a name, not a line
            assert exists(command.words), f"{name_of(path)}:{command.line}: {command.text}"
        else:
            check(command, name_of(path), monkeypatch, capfd)


def test_what_is_not_run_is_still_written_somewhere() -> None:
    """The list of reasons has no entry that nothing needs."""
    texts = [command.text for path in PAGES.values() for command in typed(path)]
    assert not [
        pattern for pattern in NOT_RUN if not any(re.search(pattern, text) for text in texts)
    ]


def test_small_is_what_was_asked_for_but_smaller() -> None:
    small = shrunk(
        shlex.split("cenote fit h --freeze --backbone lite0 --lr 0.001 0.003 --epochs 12 -o r")
    )
    assert (
        shlex.join(small)
        == "cenote fit h --freeze --backbone lite0 -o r --epochs 1 --lr 0.003 --size 64"
    )
    micro = "--backbone resnet_micro --weights resnet_micro.safetensors"
    assert shlex.join(shrunk(shlex.split("cenote fit h --freeze -o r"))).endswith(micro)
    assert shrunk(shlex.split("cenote tournament d --pools gem -o t"))[:6] == shlex.split(
        "cenote tournament d --pools gem -o"
    )
