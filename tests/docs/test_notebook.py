"""The notebook is what its builder writes, has outputs, and runs."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.reading import ROOT

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel", reason="runs the notebook")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", ROOT / "notebooks" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_has_the_builders_cells_with_outputs(build: ModuleType) -> None:
    saved, new = nbformat.read(build.NOTEBOOK, 4), build.new_notebook()
    assert [cell.source for cell in saved.cells] == [cell.source for cell in new.cells]
    outputs = [output for cell in saved.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    assert sum("<img" in output.get("data", {}).get("text/html", "") for output in outputs) == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_notebook_runs(build: ModuleType, tmp_path: Path) -> None:
    notebook = build.new_notebook()
    build.execute(notebook, tmp_path)
    assert (tmp_path / "tournament" / "index.html").is_file()
