"""`cenote predict` and `cenote embed`: parse, run a model, write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ._messages import Failures, check_photos, pluralize, report_interrupt
from ._options import Device, Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from cenote.api.model import Model
    from cenote.data import Dataset
    from cenote.models import PooledModel
    from cenote.predict.embedding import Embeddings, Loading

Photos = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="PHOTO...", help_behavior_hint=""),
]
ModelName = Annotated[str, tyro.conf.arg(aliases=["-m"], metavar="RUN|BACKBONE")]
Weights = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
]
Pool = Annotated[str | None, tyro.conf.arg(metavar="POOL", help_behavior_hint="(default: its own)")]


def run(
    photos: Photos,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE.csv")],
    model: ModelName = "lite0",
    weights: Weights = None,
    top: int = 1,
    batch: int = 32,
    workers: Workers = "auto",
    device: Device = "auto",
) -> None:
    """Predict the classes of photographs, and write them to a CSV file.

    The columns are file, rank, label and score, the probability of the class. Exit code 1: some
    photographs failed, the others are done.

    Args:
        photos: files, folders (searched recursively), globs, or one data set as for cenote fit.
        out: the CSV file.
        model: a saved model, or a backbone with a classifier: a timm model, hf-hub:OWNER/NAME, or
            lite0, which knows ImageNet's 1,000 classes and needs no download.
        weights: a local checkpoint of the backbone.
        top: number of classes per photograph.
        batch: photographs at a time.
    """
    check_photos(photos)

    import csv

    from cenote.data import write_atomically
    from cenote.options import check_number
    from cenote.predict.embedding import predict_logits

    check_number("--top", top, whole=True, least=1)
    network = _open(model, weights, None, device)
    if network.class_names is None:
        raise ValueError(f"{model} has no classifier: train one with cenote fit")
    names, failures = network.class_names, Failures("predict")
    dataset, logits = _run(predict_logits, network, photos, batch, workers, failures)
    probabilities = network.network.probabilities(logits.vectors)
    scores, classes = probabilities.topk(min(top, len(names)))
    with write_atomically(out) as path, path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "rank", "label", "score"])
        for i in logits.positions.argsort().tolist():
            photo = dataset.path(int(logits.positions[i]))
            pairs = zip(scores[i].tolist(), classes[i].tolist(), strict=True)
            for rank, (score, class_id) in enumerate(pairs, 1):
                writer.writerow([photo, rank, names[class_id], f"{score:.4f}"])
    print(f"the classes of {pluralize(len(logits.positions), 'photograph')} are in {out}")
    failures.exit()


def embed(
    photos: Photos,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE")],
    model: ModelName = "lite0",
    weights: Weights = None,
    pool: Pool = None,
    batch: int = 32,
    workers: Workers = "auto",
    device: Device = "auto",
) -> None:
    """Write the vectors of images to a file.

    FILE.npy has the vectors (n, D) in float32, and FILE.csv beside it the path and class of each
    row; FILE.parquet has the columns file, label and vector. Exit code 1: some images failed, the
    others are done.

    Args:
        photos: files, folders (searched recursively), globs, or one data set as for cenote fit.
        out: a file that ends in .npy or .parquet.
        model: a saved model, or a backbone: a timm model, hf-hub:OWNER/NAME, hf:OWNER/NAME
            (transformers), or lite0, which needs no download.
        weights: a local checkpoint of the backbone.
        pool: the pooling of a backbone, by default own, the one it was trained with.
        batch: images at a time.
    """
    check_photos(photos)

    from cenote.extras import require
    from cenote.predict.embedding import embed_dataset
    from cenote.predict.vector_files import SUFFIXES, write_vectors

    if out.suffix not in SUFFIXES:
        raise ValueError(f"{out} must end in {' or '.join(SUFFIXES)}")
    if out.suffix == ".parquet":
        require("pyarrow", extra="parquet")
    network, failures = _open(model, weights, pool, device), Failures("embed")
    dataset, vectors = _run(embed_dataset, network, photos, batch, workers, failures)
    write_vectors(dataset, vectors, out)
    count, dim = vectors.vectors.shape
    print(f"vectors of {pluralize(count, 'image')}, {dim} dimensions: {out}")
    failures.exit()


def _open(model: str, weights: Path | None, pool: str | None, device: str) -> Model:
    from cenote.api.model import Model
    from cenote.device import use_device

    use_device(device)
    return Model(model, weights=weights, pool=pool)


def _run(
    function: Callable[[PooledModel, Dataset, Loading], Embeddings],
    model: Model,
    photos: tuple[str, ...],
    batch: int,
    workers: Workers,
    failures: Failures,
) -> tuple[Dataset, Embeddings]:
    """Open the photographs and compute a function of them, with a progress bar."""
    from cenote.data.processes import count_workers
    from cenote.options import check_number
    from cenote.predict.embedding import Loading
    from cenote.progress import progress_bar
    from cenote.search.index import open_images

    check_number("--batch", batch, whole=True, least=1)
    dataset = open_images(photos, on_missing=failures)
    if not len(dataset):
        raise ValueError("no photographs found: name files, folders or globs")
    with report_interrupt(), progress_bar("images", len(dataset)) as bar:
        loading = Loading(batch, count_workers(workers), bar.update)
        outputs = function(model.network, dataset, loading)
    for message in outputs.bad:
        failures(message)
    return dataset, outputs
