"""Imports point downwards only, and light doors stay light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A command starts the web server, hence cli stands above web.
LEVELS = {
    "cli": 8,
    "api": 7,
    "web": 7,
    "reproduce": 7,
    "train": 6,
    "search": 6,
    "evaluate": 5,  # above report: a protocol draws its own figures
    "report": 4,
    "predict": 3,
    "models": 2,
}
LEVELS |= {"backbones": 1, "data": 1, "pooling": 0, "losses": 0, "metrics": 0}
LEVEL_0 = {"torch", "numpy", *sys.stdlib_module_names}
LAZY_AT_LEVEL_0 = {"scipy", "numba"}
FILES = sorted((ROOT / "cenote").rglob("*.py"))


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[str, bool]]:
    """(absolute module name, imported at import time) of every import statement."""
    tree = ast.parse(source)
    lazy = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
            base = ".".join(
                [*(parents if node.level else []), *([node.module] if node.module else [])]
            )
            names = [f"{base}.{alias.name}" for alias in node.names]  # an alias may be a module
        else:
            continue
        yield from ((name, id(node) not in lazy) for name in names)


def room(module: str) -> str:
    """cenote.pooling.gap -> pooling; the few modules beside the rooms are their own."""
    return (module + ".").split(".")[1]


def faults(source: str, module: str, is_package: bool = False) -> list[str]:
    here, found = room(module), []
    for name, at_import in imports(source, module, is_package):
        top, there = name.split(".")[0], room(name)
        if top == "cenote" and here in LEVELS and there in LEVELS and there != here:
            if LEVELS[there] >= LEVELS[here]:
                found.append(
                    f"{module} (level {LEVELS[here]}) imports {name} (level {LEVELS[there]})"
                )
        elif top != "cenote" and LEVELS.get(here) == 0 and top not in LEVEL_0 | {"__future__"}:
            if top not in LAZY_AT_LEVEL_0:
                found.append(
                    f"{module} (level 0) imports {name}: torch, numpy and the standard library only"
                )
            elif at_import:
                found.append(f"{module} imports {name} at import time: do it inside the function")
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert not faults(source, module_name(path), path.stem == "__init__")


def test_no_modules_import_each_other() -> None:
    """No cycles, imports inside functions and for annotations alone included."""
    graph: dict[str, set[str]] = {module_name(path): set() for path in FILES}
    for path in FILES:
        module, source = module_name(path), path.read_text(encoding="utf-8")
        for name, _ in imports(source, module, path.stem == "__init__"):
            target = name if name in graph else name.rpartition(".")[0]
            if target in graph:
                graph[module].add(target)
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    "folder", sorted(p.name for p in (ROOT / "cenote").iterdir() if (p / "__init__.py").exists())
)
def test_every_room_has_a_level(folder: str) -> None:
    assert folder in LEVELS


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from ..models import Head", "cenote.pooling.gap"),
        ("from .. import losses", "cenote.pooling.gap"),
        ("import cenote.data", "cenote.backbones.timm"),
        ("import timm", "cenote.pooling.gap"),
        ("import scipy.optimize", "cenote.metrics.boxes"),
        ("def f():\n    from cenote.cli import main", "cenote.web.server"),
    ],
)
def test_the_rule_catches(source: str, module: str) -> None:
    assert faults(source, module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from ..pooling import Pool", "cenote.models.head"),
        ("from ..extras import require", "cenote.metrics.boxes"),
        ("def f():\n    import scipy", "cenote.metrics.boxes"),
        ("from .base import Pool\nimport math, torch", "cenote.pooling.gap"),
    ],
)
def test_the_rule_allows(source: str, module: str) -> None:
    assert not faults(source, module)


def loaded(*programs: str) -> list[set[str]]:
    """The top-level modules that a fresh Python has loaded after each of the programs."""
    report = (
        "\nimport sys; print('MODULES', *{name.partition('.')[0] for name in sys.modules}, 'END')\n"
    )
    code = "".join(program + report for program in programs)
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return [set(part.partition("END")[0].split()) for part in out.stdout.split("MODULES")[1:]]


def test_a_pool_needs_torch_alone_and_level_0_no_torchvision() -> None:
    with_pool, with_level_0 = loaded(
        "import cenote; cenote.create_pool('simpool', 384)",
        "import cenote.pooling, cenote.losses, cenote.metrics",
    )
    assert "torch" in with_pool
    assert not with_pool & {"timm", "torchvision", "scipy", "matplotlib", "tyro", "huggingface_hub"}
    assert not with_level_0 & {"timm", "torchvision"}


def test_the_package_and_its_help_wait_for_nothing() -> None:
    package, extras = loaded("import cenote", "import cenote.extras")
    assert not (package | extras) & {"torch", "numpy"}
    for modules in loaded(
        *(f"from cenote.cli import main; main({argv!r})" for argv in (["-h"], ["--version"], ["x"]))
    ):
        assert not modules & {"torch", "tyro", "numpy"}


def test_wrong_input_of_search_does_not_wait_for_torch(tmp_path: Path) -> None:
    (tmp_path / "index.json").touch()
    for arguments in (
        [str(tmp_path / "none"), "--text", "cat"],
        [str(tmp_path)],
        [str(tmp_path), "--txt", "cat"],
        [str(tmp_path), "--text", "cat", "--since", "soon"],
        [str(tmp_path), "--text", "cat", "--max-size", "huge"],
        [str(tmp_path), "--image", str(tmp_path / "none.jpg")],
    ):
        program = f"from cenote.cli import main; assert main({['search', *arguments]!r}) == 2"
        (modules,) = loaded(program)
        assert "tyro" in modules and not modules & {"torch", "numpy"}, arguments
