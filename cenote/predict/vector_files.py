"""Files of vectors: .npy with a table beside it, or .parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..data import Dataset
from ..data.csv_files import write_csv
from ..data.files import write_atomically
from ..data.table import readable_name
from ..extras import require
from .embedding import Embeddings

SUFFIXES = (".npy", ".parquet")


def write_vectors(dataset: Dataset, embeddings: Embeddings, path: Path) -> None:
    """Write the vectors of a data set in its order, with the path and class of each image."""
    order = embeddings.positions.argsort()
    vectors = embeddings.vectors[order].numpy()
    records = [dataset[i] for i in embeddings.positions[order].tolist()]
    files = [str(dataset.root / record.image) for record in records]
    labels = [record.label for record in records]
    if path.suffix == ".parquet":
        arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
        kind = arrow.list_(arrow.float32(), vectors.shape[1])
        columns = {
            "file": [readable_name(file) for file in files],
            "label": arrow.array(labels, arrow.string()),
            "vector": arrow.FixedSizeListArray.from_arrays(vectors.ravel(), type=kind),
        }
        with write_atomically(path) as temporary:
            parquet.write_table(arrow.table(columns), temporary)
        return
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors)
    with write_csv(path.with_suffix(".csv")) as table:
        table.write(["file", "label"])
        for row in zip(files, labels, strict=True):
            table.write(row)
