"""`cenote predict` and `cenote embed`: parse, run a model, write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ._messages import (
    Failures,
    check_output_folder,
    check_photos,
    pluralize,
    print_message,
    report_interrupt,
    split_run,
)
from ._options import Device, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cenote.api.model import Model
    from cenote.data import Dataset
    from cenote.models import PooledModel
    from cenote.predict.embedding import Embeddings, Loading

Photos = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="[RUN] PHOTO...", help_behavior_hint=""),
]
ModelName = Annotated[
    str | None,
    tyro.conf.arg(
        aliases=["-m"], metavar="RUN|BACKBONE", help_behavior_hint="(default: RUN, or lite0)"
    ),
]
Weights = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
]
Pool = Annotated[str | None, tyro.conf.arg(metavar="POOL", help_behavior_hint="(default: its own)")]


def run(
    photos: Photos,
    out: Annotated[
        Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE.csv", help_behavior_hint="")
    ] = None,
    model: ModelName = None,
    weights: Weights = None,
    top: int = 1,
    batch: int = 32,
    workers: Workers = "auto",
    device: Device = "auto",
) -> None:
    """Predict the classes of photographs, and print them or write them to a CSV file.

    The columns are file, rank, label, score, the probability of the class, and unlike_training: 1 if
    the photograph is unlike the training images, whatever the probability, else 0, or empty for a
    model that Cenote did not train. Exit code 1: some photographs failed, the others are done.

    Args:
        photos: a saved model, or none; then files, folders (searched recursively), globs, or one
            data set as for cenote fit.
        out: the CSV file; by default its lines are printed.
        model: a saved model, or a backbone with a classifier: a timm model, hf-hub:OWNER/NAME, or
            lite0, which knows ImageNet's 1,000 classes and needs no download.
        weights: a local checkpoint of the backbone.
        top: number of classes per photograph.
        batch: photographs at a time.
    """
    check_photos(photos)

    import sys
    from functools import partial

    from cenote.data.csv_files import CsvRows, write_csv
    from cenote.options import check_number
    from cenote.predict.novelty import predict_with_novelty

    check_number("--top", top, whole=True, least=1)
    run, images = split_run(photos, model)
    network = _open(run or model, weights, None, device)
    if network.class_names is None:
        raise ValueError(f"{run or model} has no classifier: train one with cenote fit")
    names, failures = network.class_names, Failures("predict")
    class_means = network.class_means
    dataset, outputs = _run(
        partial(predict_with_novelty, class_means=class_means),
        network,
        images,
        batch,
        workers,
        failures,
    )
    logits, unlike = outputs.vectors[:, :-1], outputs.vectors[:, -1]
    scores, classes = network.network.probabilities(logits).topk(min(top, len(names)))
    rows: list[list[object]] = [["file", "rank", "label", "score", "unlike_training"]]
    for i in outputs.positions.argsort().tolist():
        photo = str(dataset.path(int(outputs.positions[i])))
        pairs = zip(scores[i].tolist(), classes[i].tolist(), strict=True)
        for rank, (score, class_id) in enumerate(pairs, 1):
            row = [photo, rank, names[class_id], f"{score:.4f}"]
            rows.append([*row, "" if class_means is None else int(unlike[i])])
    if out is None:
        CsvRows(sys.stdout, "\n").write_all(rows)
    else:
        with write_csv(out) as table:
            table.write_all(rows)
        print(f"the classes of {pluralize(len(outputs.positions), 'photograph')} are in {out}")
    if count := int((unlike == 1).sum()):
        are = "is" if count == 1 else "are"
        print_message(f"{count} {are} unlike the training images: column unlike_training")
    failures.exit()


def embed(
    photos: Photos,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE|FOLDER")],
    model: ModelName = None,
    weights: Weights = None,
    pool: Pool = None,
    batch: int = 32,
    workers: Workers = "auto",
    device: Device = "auto",
    processes: int = 1,
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None,
) -> None:
    """Write the vectors of images to a file, or those of a large collection to a folder.

    FILE.npy has the vectors (n, D) in float32, and FILE.csv beside it the path and class of each
    row; FILE.parquet has the columns file, label and vector. FOLDER gets a Parquet file for each
    shard of wds:PATTERN or parquet:PATTERN, or for 10,000 images of other data, which
    cenote index --from FOLDER makes searchable; the same command resumes and embeds only what is
    missing or has changed. Exit code 1: some images failed, the others are done.

    Args:
        photos: a saved model, or none; then files, folders (searched recursively), globs, or one
            data set as for cenote fit.
        out: a file that ends in .npy or .parquet, or a folder.
        model: a saved model, or a backbone: a timm model, hf-hub:OWNER/NAME, hf:OWNER/NAME
            (transformers), or lite0, which needs no download.
            For a folder the models of cenote index.
        weights: a local checkpoint of the backbone.
        pool: the pooling of a backbone, by default own, the one it was trained with.
        batch: images at a time.
        processes: number of processes that embed shards into a folder.
        ray: embed shards into a folder on a Ray cluster: its address, auto, or local.
    """
    check_photos(photos)

    from cenote.extras import require
    from cenote.predict.embedding import embed_dataset
    from cenote.predict.vector_files import SUFFIXES, write_vectors

    run, images = split_run(photos, model)
    if out.suffix not in SUFFIXES:
        if out.suffix:
            raise ValueError(f"{out} must end in {' or '.join(SUFFIXES)}, or be a folder")
        name = model if run is None else str(run)
        _embed_shards(images, out, name, weights, pool, batch, workers, device, processes, ray)
        return
    if processes != 1 or ray is not None:
        raise ValueError(f"--processes and --ray embed shards: name a folder instead of {out}")
    if out.suffix == ".parquet":
        require("pyarrow", extra="parquet")
    network, failures = _open(run or model, weights, pool, device), Failures("embed")
    dataset, vectors = _run(embed_dataset, network, images, batch, workers, failures)
    write_vectors(dataset, vectors, out)
    count, dim = vectors.vectors.shape
    print(f"vectors of {pluralize(count, 'image')}, {dim} dimensions: {out}")
    failures.exit()


def _embed_shards(
    photos: Sequence[str],
    folder: Path,
    model: str | None,
    weights: Path | None,
    pool: str | None,
    batch: int,
    workers: Workers,
    device: str,
    processes: int,
    ray: str | None,
) -> None:
    from functools import partial

    from cenote.data.processes import count_workers
    from cenote.device import use_device
    from cenote.extras import require
    from cenote.options import check_number
    from cenote.progress import progress_bar
    from cenote.search.shard_workers import run_here, run_processes, run_ray
    from cenote.search.vector_shards import ShardEmbedder, pending, plan_shards

    for option, value in {"--weights": weights, "--pool": pool}.items():
        if value is not None:
            raise ValueError(f"{option} is for files of vectors: leave it out, or name FILE.npy")
    for option, number in {"--batch": batch, "--processes": processes}.items():
        check_number(option, number, whole=True, least=1)
    if ray is not None and processes != 1:
        raise ValueError("give either --processes or --ray")
    require("pyarrow", extra="parquet")
    check_output_folder(folder)
    use_device(device)
    folder, failures = folder.absolute(), Failures("embed")
    tasks = plan_shards(photos)
    readers = count_workers(workers) if ray is None and processes == 1 else 0
    make_embedder = partial(ShardEmbedder, folder, model, None, batch, readers)
    embedder = make_embedder()
    embedder.describe()
    missing, images = pending(tasks, folder), 0
    if ray is not None:
        results = run_ray(missing, make_embedder, ray)
    elif processes > 1:
        results = run_processes(missing, make_embedder, processes)
    else:
        results = run_here(missing, embedder)
    with report_interrupt(), progress_bar("embed", len(missing), "shards") as bar:
        for _, result in results:
            images += result.images
            for message in result.failed:
                failures(message)
            bar.update()
    done = f"{pluralize(len(missing), 'shard')} with {pluralize(images, 'image')} embedded"
    print(f"{folder}: {done}, {len(tasks) - len(missing)} unchanged")
    failures.exit()


def _open(model: Path | str | None, weights: Path | None, pool: str | None, device: str) -> Model:
    from cenote.api.model import Model
    from cenote.device import use_device

    use_device(device)
    return Model(model or "lite0", weights=weights, pool=pool)


def _run(
    function: Callable[[PooledModel, Dataset, Loading], Embeddings],
    model: Model,
    photos: Sequence[str],
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
