"""Write and run quickstart.ipynb:

    python notebooks/build.py

The drawings are the fourth set that was tried: others were too small, too hard, or had no good answer
to the search. The notebook is its cells below and what they print; tests/docs/test_notebook.py runs them, too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("quickstart.ipynb")
CELLS = """
# Cenote in five minutes

Give it a folder of labelled images: it tells you which pooling suits your backbone and data, shows
where the model looks, draws boxes, and makes the images searchable. Everything here runs on a CPU
without a download. The first cell draws images to have some; use a folder of your own, with one
subfolder per class, instead of `photos`.
---
import cenote
from cenote.data.synthetic import World, write_world

drawings = World.preset("tiny", images=300, size=128)
write_world(drawings, "photos", progress=False)
images = cenote.open_dataset("photos")
images
---
## Which pooling suits these images?

The features of a frozen network are computed once, and each pool is trained on them with two seeds.
---
pools = ["gap", "gem", "simpool", "ep"]
result = cenote.tournament("photos", "tournament", pools=pools, seeds=2, epochs=10)
print(result.verdict)
result.table[["candidate", "accuracy", "params", "boxes"]]
---
## Where does it look?

`predict` takes a path, a PIL image, an array or a tensor, and gives the class, the map and the box.
---
photo = images.image(3)
prediction = result.model.predict(photo)
print(prediction.label, f"{prediction.score:.2f}", prediction.box)
prediction
---
## Search by text, by image, or by both
---
index = cenote.Index("index")
index.add("photos")
index.search("bird", top=5)
---
index.search(image=photo, top=4)
---
## One layer for a network of your own

A pool is an `nn.Module` that turns tokens into a vector, and its `attend` gives the map as well.
---
import torch

pool = cenote.create_pool("simpool", dim=384)
u, a = pool.attend(torch.randn(2, 196, 384), grid=(14, 14))
u.shape, a.shape
---
# More

[The commands](../docs/commands.md) do the same from a shell, and [Python](../docs/python.md) has the rest.
"""


def new_notebook() -> nbformat.NotebookNode:
    """Return the notebook without outputs; a cell that starts with # is Markdown."""
    cells = []
    for number, text in enumerate(cell.strip() for cell in CELLS.split("\n---\n")):
        new = nbformat.v4.new_markdown_cell if text[0] == "#" else nbformat.v4.new_code_cell
        cells.append(new(text, id=f"cell-{number}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in a folder; raise if one fails."""
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(folder)}}).execute()


if __name__ == "__main__":
    notebook = new_notebook()
    with tempfile.TemporaryDirectory() as folder:
        execute(notebook, Path(folder))
    for cell in notebook.cells:  # times and progress bars differ in every run
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "text/html" in output.get("data", {}):
                    del output.data["text/plain"]  # paths of this machine
    nbformat.write(notebook, NOTEBOOK)
    print(f"{NOTEBOOK}: {NOTEBOOK.stat().st_size / 1000:.0f} kB")
