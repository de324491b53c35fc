"""What the documents say is run, not believed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cenote.pooling import list_pools
from cenote.pooling.catalogue import page

ROOT = Path(__file__).parent.parent


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_s_example_runs() -> None:
    (example,) = blocks(document("README.md"))
    scope: dict[str, object] = {}
    exec(example, scope)
    assert tuple(scope["a"].shape) == (2, 1, 14, 14)  # type: ignore[attr-defined]
    assert tuple(scope["u"].shape) == (2, 512)  # type: ignore[attr-defined]


def test_the_readme_is_short() -> None:
    assert len(document("README.md").splitlines()) < 250


def test_the_pool_of_contributing_is_a_pool() -> None:
    (example,) = blocks(document("CONTRIBUTING.md"))
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
"""  # its own process, or every later test would meet a pool that is not there
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", list_pools())
def test_the_example_on_each_page_runs(name: str) -> None:
    text = page(name, [(384, (14, 14))])
    (example,) = blocks(text)
    scope: dict[str, object] = {}
    exec(example, scope)
    shape = re.search(r"tokens -> (\(.*?\))", example)
    assert shape and str(tuple(scope["u"].shape)) == shape[1]  # type: ignore[attr-defined]


def test_documents_link_to_files_that_exist() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.mark.parametrize("path", sorted((ROOT / "cenote" / "cli").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_command_is_in_the_readme_and_the_table(path: Path) -> None:
    from cenote.cli import COMMANDS

    name = path.stem.replace("_", "-")
    assert name in COMMANDS
    assert f"cenote {name}" in document("README.md")
