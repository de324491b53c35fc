"""Every command of the documents works: a page's run in the order in which they stand, in one folder, made small.

So does their Python, in one scope for each page. What no test can run here (shrinking.py says why) is read by
the command's own parser, and so are commands within sentences. Whatever is neither fails.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.reading import ROOT, Python, documents, inline, name_of, steps, typed
from tests.docs.running import exists, parse, run
from tests.docs.shrinking import NOT_RUN, reason, shrunk

POOLS = ROOT / "docs" / "pools"  # test_documents.py runs theirs
ALONE = ("CONTRIBUTING.md", "docs/how-to/add-a-pool.md")  # their Python registers a pool; test_documents.py runs it
PAGES = {name_of(path): path for path in documents() if path.parent != POOLS and steps(path)}


def given() -> dict[str, Any]:
    """What the pages take for granted: pictures, and vectors of length one with their labels."""
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


@pytest.mark.timeout(600)  # a minute for the longest page, on a machine that has nothing else to do
@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_what_it_says(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scope = given()
    for step in steps(PAGES[name]):
        where = f"{name}:{step.line}: {step.text}"
        if isinstance(step, Python):
            if name not in ALONE:
                exec(compile(step.text, where, "exec"), scope)
        elif reason(step.text) is not None:
            try:
                parse(step.words, monkeypatch)
            except (SystemExit, ValueError, AssertionError) as wrong:
                pytest.fail(f"{where}\n{wrong}\n{capfd.readouterr().err[-2000:]}")
        elif run(step.words, monkeypatch):
            said = capfd.readouterr()
            pytest.fail(f"{where}\n{said.out[-1000:]}\n{said.err[-2000:]}")
    if name == "README.md":
        assert tuple(scope["a"].shape) == (2, 1, 14, 14)
        assert tuple(scope["u"].shape) == (2, 512)


@pytest.mark.parametrize("path", [path for path in documents() if inline(path)], ids=name_of)
def test_commands_within_sentences_are_commands(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in inline(path):
        where = f"{name_of(path)}:{command.line}: {command.text}"
        if len(command.words) <= 2 or re.search(r"\.\.\.|<", command.text):  # `cenote fit`: a name, not a line
            assert exists(command.words), where
            continue
        try:
            parse(command.words, monkeypatch)
        except (SystemExit, ValueError, AssertionError, OSError) as wrong:
            pytest.fail(f"{where}\n{wrong}\n{capfd.readouterr().err[-2000:]}")


def test_what_is_not_run_is_still_written_somewhere() -> None:
    """The list of reasons has no entry that nothing needs."""
    texts = [command.text for path in PAGES.values() for command in typed(path)]
    assert not [pattern for pattern in NOT_RUN if not any(re.search(pattern, text) for text in texts)]


def test_small_is_what_was_asked_for_but_smaller() -> None:
    small = shrunk(shlex.split("cenote fit h --freeze --lr 0.001 0.003 --epochs 12 -o r"))
    assert shlex.join(small) == "cenote fit h --freeze -o r --epochs 1 --lr 0.003"
    assert shrunk(shlex.split("cenote tournament d --pools gem -o t"))[:6] == shlex.split(
        "cenote tournament d --pools gem -o"
    )
