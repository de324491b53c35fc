"""What the documents say is true: their examples of pools, their links, their size, and that none is forgotten."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from cenote.cli import COMMANDS, MODULES
from cenote.pooling import list_pools
from cenote.pooling.registry import ENTRIES
from cenote.report.pools import page
from tests.docs.reading import ROOT, documents, python_blocks


def document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(document("README.md").splitlines()) < 100


def test_a_pool_of_one_s_own_is_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = python_blocks(ROOT / "docs" / "how-to" / "add-a-pool.md")
    monkeypatch.setattr(
        "cenote.pooling.registry.ENTRIES", dict(ENTRIES)
    )  # it is registered for this test alone
    scope: dict[str, Any] = {"__name__": "a_module_of_ones_own"}
    exec(example, scope)
    x = torch.randn(3, 5, 384)
    assert scope["u"].shape == (2, 384)
    torch.testing.assert_close(scope["pool"](x), x.median(1).values)


@pytest.mark.parametrize("name", list_pools())
def test_the_example_on_each_page_runs(name: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", page(name, [(384, (14, 14))]), flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(example, scope)
    shape = re.search(r"tokens -> (\(.*?\))", example)
    assert shape and str(tuple(scope["u"].shape)) == shape[1]


def test_documents_link_to_files_and_headings_that_exist() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target, heading in re.findall(
            r"\]\(([^)#:]*)#?([^):]*)\)", path.read_text(encoding="utf-8")
        ):
            found = path.parent / target if target else path
            assert found.exists(), f"{path.name}: {target}"
            if heading:
                assert heading in headings(found), f"{path.name}: {target}#{heading}"


def headings(path: Path) -> set[str]:
    """As a browser of Markdown names them: lower case, hyphens for spaces, nothing else but letters and digits."""
    lines = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_every_document_can_be_reached_from_the_index() -> None:
    seen, todo = set[Path](), [ROOT / "docs" / "index.md"]
    while todo:
        path = todo.pop().resolve()
        if path not in seen and path.suffix == ".md":
            seen.add(path)
            targets = re.findall(r"\]\(([^)#:]+)[^)]*\)", path.read_text(encoding="utf-8"))
            todo += [path.parent / target for target in targets]
    assert {path.resolve() for path in documents()} <= seen


def test_every_command_is_in_the_table_and_in_the_list_of_commands() -> None:
    files = [
        path
        for path in (ROOT / "cenote" / "cli").glob("*.py")
        if "\ndef run(" in path.read_text("utf-8")
    ]
    assert {path.stem.replace("_", "-") for path in files} | set(MODULES) == set(COMMANDS)
    assert not [name for name in COMMANDS if f"cenote {name}" not in document("docs/commands.md")]
