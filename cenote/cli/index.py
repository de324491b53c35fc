"""`cenote index`: parse, embed what is new, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from ._messages import (
    Failures,
    check_output_folder,
    check_photos,
    fail,
    pluralize,
    print_message,
    report_interrupt,
)
from ._options import Device, Workers

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.search.index import IndexReport
    from cenote.search.store import Store

MODEL_HINT = "(default: the index's own, else text-space)"
WORDS_HINT = "(default: the model's own, or ImageNet-21k's)"


def run(
    data: Annotated[
        tuple[str, ...], Positional, arg(metavar="DATA...", help_behavior_hint="")
    ] = (),
    *,
    out: Annotated[str, arg(aliases=["-o"], metavar="INDEX")],
    shards: Annotated[
        Path | None, arg(name="from", metavar="FOLDER", help_behavior_hint="")
    ] = None,
    model: Annotated[str | None, arg(metavar="NAME", help_behavior_hint=MODEL_HINT)] = None,
    backbone: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    weights: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: its own)")
    ] = None,
    words: Annotated[str | None, arg(metavar="FILE", help_behavior_hint=WORDS_HINT)] = None,
    precision: Annotated[
        Literal["float32", "float16"] | None,
        arg(metavar="{float32,float16}", help_behavior_hint="(default: float32)"),
    ] = None,
    local: Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: none)")] = None,
    approximate: Literal["auto", "yes", "no"] = "auto",
    batch: int = 32,
    workers: Workers = "auto",
    device: Device = "auto",
    quiet: Annotated[bool, FlagCreatePairsOff] = False,
) -> None:
    """Make images searchable, or bring an index up to date.

    Only new and changed files are embedded. Moved files are recognized by their contents, deleted
    ones are removed, unreadable ones are tried again next time. The command can be killed at any
    moment; the same command resumes. Exit code 1: some images failed and the others are indexed,
    or another process is writing; 2: nothing could be done.

    Args:
        data: files, folders (searched recursively), globs, or one data set as for cenote fit.
        out: a folder, or Milvus: http://HOST:19530/NAME, or a file that ends in .db.
        shards: instead of DATA, a folder of vectors that cenote embed DATA -o FOLDER wrote.
        model: text-space (no download), open_clip/MODEL/WEIGHTS, or a folder of cenote clip; for
            search by image alone a saved model, such as a run of cenote fit.
        backbone: instead of a model, for search by image alone: timm's name, hf-hub:OWNER/NAME,
            local-dir:FOLDER, hf:OWNER/NAME or hf:FOLDER (transformers), with its own pooling.
        weights: a local checkpoint of the backbone.
        words: FreeDom's word list, one word a line or a CSV; a small CLIP has its classes; none:
            no words are stored.
        precision: of the vectors of a new index in a folder.
        local: local vectors of each image of a new index in a folder, a square number such as 16:
            cenote search --rerank maxsim compares them.
        approximate: build a faiss index beside an index in a folder; auto: from 100,000 images on.
        batch: images at a time.
        quiet: print only failures, as for a scheduled job.
    """
    if shards is not None:
        for option, value in {
            "DATA": data,
            "--model": model,
            "--backbone": backbone,
            "--words": words,
        }.items():
            if value:
                raise ValueError(f"{option} is stored in {shards}: leave it out")
        _index_shards(shards, out, precision, approximate, quiet)
        return
    check_photos(data)

    from cenote.data.processes import count_workers
    from cenote.device import use_device
    from cenote.options import check_number
    from cenote.progress import progress_of_total
    from cenote.search.index import Indexer, open_images, source_of
    from cenote.search.load import IndexSetup, find_backend
    from cenote.search.store import IndexBusy

    if not data:
        raise ValueError("no images: name files, folders, globs or a data set")
    check_number("--batch", batch, whole=True, least=1)
    model = _model_name(model, backbone, weights)
    use_device(device)
    readers = count_workers(workers)
    backend = find_backend(out)
    folder = backend.folder_of(out)
    skipped: tuple[Path, ...] = ()
    if folder is not None:
        check_output_folder(folder)
        _check_outside(folder, data)
        skipped = (folder,)
    if precision is not None and precision not in backend.dtypes:
        raise ValueError(f"--precision {precision}: {out} stores {' or '.join(backend.dtypes)}")
    failed: list[str] = []
    dataset = open_images(data, skipped, failed.append)
    if not len(dataset):
        raise ValueError(next(iter(failed), "no images found"))
    try:
        setup = IndexSetup(out, model, words, precision, local)
        if setup.store is None:
            _check_readable(dataset)
        store = setup.open()
        with report_interrupt(), progress_of_total("images", quiet) as progress:
            source = source_of(data)
            report = Indexer(store, dataset, setup.load, source, batch, readers, progress).run()
        _, memory = setup.loaded or (None, None)
        message = store.update_approximate(approximate, None if memory is None else memory.vectors)
    except IndexBusy as error:
        fail("index", str(error))
    failed += [*dataset.problems, *report.failed]
    if message and not quiet:
        print_message(message)
    failures = Failures("index")
    for failure in failed:
        failures(failure)
    if not quiet:
        print(_summary(report, store))
    failures.exit()


def _model_name(model: str | None, backbone: str | None, weights: Path | None) -> str | None:
    """Return the name that the index stores: timm/BACKBONE/FILE for a backbone."""
    if backbone is None:
        if weights is not None:
            raise ValueError(f"--weights {weights} needs the name of the backbone: --backbone NAME")
        return model
    if model is not None:
        raise ValueError("give either --model or --backbone")
    if weights is None:
        return f"timm/{backbone}"
    if ":" in backbone:
        raise ValueError(f"--weights {weights}: '{backbone}' has its own, leave it out")
    if not weights.is_file():
        raise FileNotFoundError(2, "no such weights file", str(weights))
    return f"timm/{backbone}/{weights}"


def _index_shards(
    shards: Path, out: str, precision: str | None, approximate: str, quiet: bool
) -> None:
    from dataclasses import replace

    from cenote.progress import progress_bar
    from cenote.search.load import find_store, load_model, load_word_memory, open_store
    from cenote.search.store import IndexBusy
    from cenote.search.vector_shards import count_images, index_shards, read_description

    description = replace(read_description(shards), dtype=precision or "float16")
    store, failures = find_store(out), Failures("index")
    if store is None:
        store = open_store(out, description)
    elif store.description.identity != description.identity:
        model = store.description.model
        raise ValueError(f"{out} was made with the model '{model}': name another index")
    try:
        with report_interrupt(), progress_bar("index", count_images(shards), hidden=quiet) as bar:
            report = index_shards(store, shards, bar.update)
        texts = None
        if approximate != "no" and store.description.words:
            texts = load_word_memory(store, load_model(store)).vectors
        message = store.update_approximate(approximate, texts)
    except IndexBusy as error:
        fail("index", str(error))
    if message and not quiet:
        print_message(message)
    for failure in report.failed:
        failures(failure)
    if not quiet:
        counts = f"{report.added} added, {report.same} unchanged"
        print(f"{pluralize(len(store), 'image')} in {store.where}: {counts}")
    failures.exit()


def _check_outside(folder: Path, data: tuple[str, ...]) -> None:
    """Raise ValueError if the images are in the folder of the index, which is not searched."""
    for name in data:
        if Path(name).exists() and Path(name).resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"-o {folder} contains the images of {name}: name another folder for the index"
            )


def _check_readable(dataset: Dataset) -> None:
    """Raise ValueError if no image can be read: an empty index is not created."""
    from cenote.data import BadImage

    errors = []
    for i in range(len(dataset)):
        try:
            dataset.image(i)
            return
        except BadImage as error:
            errors.append(error)
    raise ValueError(f"no image can be read: {errors[0]}")


def _summary(report: IndexReport, store: Store) -> str:
    counts = {
        "embedded": report.embedded,
        "moved or copied": report.moved,
        "with other labels or times": report.noted,
        "unchanged": report.same,
        "removed": report.removed,
        "failed": len(report.failed),
    }
    summary = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{pluralize(len(store), 'image')} in {store.where}: {summary or 'nothing to do'}"
