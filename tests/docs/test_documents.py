"""What the documents say is true: their examples of pools, their links, their size, and that none is forgotten."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cenote.pooling import list_pools
from cenote.pooling.catalogue import page
from tests.docs.reading import ROOT, documents, python_blocks


def document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len(document("README.md").splitlines()) < 250


def test_the_pool_of_contributing_is_a_pool() -> None:
    (example,) = python_blocks(ROOT / "CONTRIBUTING.md")
    check = f"""
import cenote, torch
from cenote.pooling import landscape
exec({example!r}, {{"__name__": "cenote.pooling.focus", "__package__": "cenote.pooling"}})
pool, x = cenote.create_pool("focus", 8, tau=0.5), torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
u, a = pool.attend(x, grid=(2, 3))
for image, vector, weights in zip(x, u, a):
    cosines = torch.stack([torch.cosine_similarity(image.mean(0), token, dim=0) for token in image])
    torch.testing.assert_close(weights.flatten(), (cosines / 0.5).softmax(0))
    torch.testing.assert_close(vector, sum(w * token for w, token in zip(weights.flatten(), image)))
assert "Focus" in landscape() and "focus" in cenote.list_pools()
"""
    alone(check)


def test_a_pool_of_one_s_own_is_a_pool() -> None:
    (example,) = python_blocks(ROOT / "docs" / "how-to" / "add-a-pool.md")
    check = "x = torch.randn(3, 5, 384); torch.testing.assert_close(pool(x), x.median(1).values)"
    alone(f"{example}\nassert u.shape == (2, 384)\n{check}\n")


def alone(program: str) -> None:
    """In a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", list_pools())
def test_the_example_on_each_page_runs(name: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", page(name, [(384, (14, 14))]), flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(example, scope)
    shape = re.search(r"tokens -> (\(.*?\))", example)
    assert shape and str(tuple(scope["u"].shape)) == shape[1]


def test_documents_link_to_files_and_headings_that_exist() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target, heading in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", path.read_text(encoding="utf-8")):
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


@pytest.mark.parametrize("path", sorted((ROOT / "cenote" / "cli").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_command_is_in_the_readme_and_the_table(path: Path) -> None:
    from cenote.cli import COMMANDS

    name = path.stem.replace("_", "-")
    assert name in COMMANDS
    assert f"cenote {name}" in document("README.md")
