"""The wheel is complete and works by itself, and nothing needs modules that only POSIX has."""

import ast
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

import cenote

ROOT = Path(__file__).parents[1]
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
# Removes what Windows does not have, then imports every module.
WITHOUT_POSIX = """
import os, pkgutil, signal, socket, sys
from importlib import import_module
for module, names in ((os, ("fork", "sched_getaffinity")),
                      (signal, ("SIGKILL", "pthread_sigmask")), (socket, ("AF_UNIX",))):
    for name in names:
        delattr(module, name)
import cenote
for module in pkgutil.walk_packages(cenote.__path__, "cenote."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    command = "-m pip wheel --no-deps --no-build-isolation --disable-pip-version-check -q -w"
    subprocess.run([sys.executable, *command.split(), folder, ROOT], check=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "cenote").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= packed
    assert {name for name in packed if not name.startswith("cenote-")} <= files
    assert {"cenote/py.typed", "cenote/backbones/lite0.safetensors"} <= packed
    assert any(name.endswith("licenses/NOTICE") for name in packed)


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """The environment has the wheel alone; its dependencies are read from this environment."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    scheme = sysconfig.get_paths("venv", {"base": str(folder), "platbase": str(folder)})
    site, python = Path(scheme["purelib"]), Path(scheme["scripts"]) / "python"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel]
    subprocess.run(install, check=True)
    path = [python, "-c", "import cenote; print(cenote.__file__)"]
    assert Path(_run(path, tmp_path).strip()).is_relative_to(site)
    command = Path(scheme["scripts"]) / "cenote"
    assert "simpool/vit-small-supervised" in _run([command, "recipes"], tmp_path)
    assert "simpool/table-10" in _run([command, "reproduce"], tmp_path)
    _run([command, *["world", "w", "--preset", "tiny", "--images", "4", "--size", "64"]], tmp_path)
    _run([command, *["attend", "w/images", "-o", "maps"]], tmp_path)
    assert (tmp_path / "maps" / "contact_sheet.jpg").is_file()
    _run([command, *["index", "w/images", "-o", "ix"]], tmp_path)
    _run([command, *["search", "ix", "--text", "dog"]], tmp_path)


def test_no_module_needs_posix() -> None:
    for path in (ROOT / "cenote").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not POSIX_MODULES.intersection(names), path


@pytest.mark.slow
def test_every_module_can_be_imported_without_posix() -> None:
    _run([sys.executable, "-c", WITHOUT_POSIX], ROOT)


def _run(command: list[str | Path], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_citation_names_this_version() -> None:
    assert f"version: {cenote.__version__}" in (ROOT / "CITATION.cff").read_text("utf-8")
