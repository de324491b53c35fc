"""`cenote index`: parse, embed what is new, print."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._arguments import check_output_folder, pluralize, print_message

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.search.index import IndexReport
    from cenote.search.store import Store


def run(
    data: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DATA...")],
    out: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="INDEX")],
    model: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="NAME", help_behavior_hint="(default: the index's own, else text-space)"
        ),
    ] = None,
    words: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="FILE", help_behavior_hint="(default: the model's own, or ImageNet-21k's)"
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "float16"] | None, tyro.conf.arg(help_behavior_hint="(default: float32)")
    ] = None,
    approximate: Literal["auto", "yes", "no"] = "auto",
    batch: int = 32,
    workers: int = 0,
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Make images searchable, or bring an index up to date: only new and changed files are embedded.

    Files that were moved are known by their contents, deleted ones leave, broken ones are tried again next time. It can
    be killed at any moment; the same command goes on. Exit code 1: some images failed, the others are done, or another
    process is writing; 2: nothing could be done.

    Args:
        data: files, folders (and what is in them), globs, or one data set as for cenote fit.
        out: a folder, or Milvus: http://HOST:19530/NAME, or a file that ends in .db.
        model: text-space (no download), open_clip/MODEL/WEIGHTS, or a folder that cenote clip wrote.
        words: FreeDom's word list, one a line or a CSV; a small CLIP has its classes; none: no words are kept.
        precision: of the vectors of a new index in a folder.
        approximate: an index of faiss beside an index in a folder; auto makes one from 100,000 images on.
        batch: images at a time.
        workers: processes that read images.
        quiet: say nothing unless something failed, as for a scheduled job.
    """
    from cenote.options import check_number
    from cenote.search.index import Indexer, open_images, source_of
    from cenote.search.store import IndexBusy, is_milvus

    if not data:
        raise ValueError("no images: name files, folders, globs or a data set")
    check_number("--batch", batch, whole=True, least=1)
    check_number("--workers", workers, whole=True, least=0)
    if not is_milvus(out):
        check_output_folder(Path(out))
        _refuse_below(Path(out), data)
    elif precision is not None:
        raise ValueError("--precision is of an index in a folder: Milvus keeps float32")
    failed: list[str] = []
    dataset = open_images(data, () if is_milvus(out) else (Path(out),), failed.append)
    if not len(dataset):
        raise ValueError("no images found" if not failed else failed[0])
    try:
        made = _Making(out, model, words, precision)
        if made.found is None:
            _refuse_unreadable(dataset)
        store = made.store()
        with _Bar(quiet) as bar:
            report = Indexer(store, dataset, made.ready, source_of(data), batch, workers, bar).run()
        if not is_milvus(out):
            _approximate(store, made, approximate, quiet)
    except IndexBusy as busy:
        print(f"cenote index: {busy}", file=sys.stderr)
        raise SystemExit(1) from None
    failed += [*dataset.problems, *report.failed]
    for sentence in failed:
        print_message(f"skipped {sentence}")
    if not quiet:
        print(_told(report, store))
    if failed:
        print_message(f"cenote index: {len(failed)} failed, see above")
        raise SystemExit(1)


class _Making:
    """The index, the model that made it or will, and its word list; an index that is there loads them when needed."""

    def __init__(
        self, out: str, model: str | None, words: str | None, precision: str | None
    ) -> None:
        from cenote.search.places import whole_model
        from cenote.search.store import find_store

        self.out, self.precision, self.found = out, precision or "float32", find_store(out)
        there = self.found.description if self.found is not None else None
        self.made: tuple[Any, Any] | None = None
        self.name = whole_model(model or (there.model if there else "text-space"))
        given = str(Path(words).absolute()) if words not in (None, "none") else None
        self.words = (
            None if words == "none" else given or ""
        )  # empty: the model's own, or ImageNet-21k's names
        if there is not None:
            self.words = str(there.words["name"]) if there.words else None
            if (
                words is not None
                and given != self.words
                and not (given and _is_list(given, there.words))
            ):
                raise ValueError(
                    f"{out} was made with {_called(self.words)}: leave --words out, or name a new index"
                )
            if precision not in (None, there.dtype):
                raise ValueError(
                    f"{out} was made with {there.dtype}: leave --precision out, or name a new index"
                )
            self.words = given or self.words
            if (self.name, self.words) != (there.model, there.words.get("name")):
                self._move()

    def _move(self) -> None:
        """The same model, or the same word list, is somewhere else now; another is refused."""
        self.ready()
        assert self.found is not None
        there = self.found.description
        words = {**there.words, "name": self.words} if there.words else {}
        if describe := getattr(self.found, "describe", None):  # Milvus keeps what it was told first
            describe(replace(there, model=self.name, words=words))

    def store(self) -> Store:
        from cenote.search.store import IndexDescription, open_store

        if self.found is None:
            network, memory = self.ready()
            words = (
                {"name": self.words, "digest": memory.digest, "n": min(7, len(memory.words))}
                if memory
                else {}
            )
            self.found = open_store(
                self.out,
                IndexDescription(self.name, network.identity, network.dim, self.precision, words),
            )
        return self.found

    def ready(self) -> tuple[Any, Any]:
        from cenote.models.image_text import create_image_text
        from cenote.search.opening import model_of
        from cenote.search.words import load_words, remember_words

        if self.made is None:
            if self.found is not None and self.name == self.found.description.model:
                network = model_of(self.found)
                self.name = (
                    self.found.description.model
                )  # beside it, where another came to its old place
            else:
                network = create_image_text(self.name)
                if self.found is not None:
                    self.found.description.refuse_other(network, self.out)
            memory = (
                None
                if self.words is None
                else remember_words(network, load_words(self.words or None, network))
            )
            if (
                memory
                and self.found is not None
                and memory.digest != self.found.description.words["digest"]
            ):
                raise ValueError(
                    f"{_called(self.words)} is no more what {self.out} was made with: name a new index"
                )
            self.made = network, memory
        return self.made


def _refuse_below(out: Path, data: tuple[str, ...]) -> None:
    """What lies in the index's own folder is no image to be indexed, so nothing would be found."""
    for part in data:
        if Path(part).exists() and Path(part).resolve().is_relative_to(out.expanduser().resolve()):
            raise ValueError(
                f"-o {out} is where the images of {part} are: name another folder for the index"
            )


def _refuse_unreadable(dataset: Dataset) -> None:
    """An index is made once there is something to put in."""
    from cenote.data import BadImage

    first: BadImage | None = None
    for i in range(len(dataset)):
        try:
            dataset.image(i)
            return
        except BadImage as error:
            first = first or error
    raise ValueError(f"no image can be read: {first}")


def _is_list(words: str, kept: Mapping[str, Any]) -> bool:
    """Whether this file holds the index's word list."""
    from cenote.search.words import load_words, words_digest

    return words_digest(load_words(words)) == kept.get("digest")


def _called(words: str | None) -> str:
    return "no word list" if words is None else f"the word list {words or 'that is the default'}"


def _approximate(store: Any, made: _Making, wanted: str, quiet: bool) -> None:
    from cenote.search.approximate import bring_up_to_date

    memory = made.made[1] if made.made else None
    told = bring_up_to_date(store, wanted, None if memory is None else memory.vectors)
    if told and not quiet:
        print_message(told)


class _Bar:
    """Begins when there is something to do; tells the rest of the time."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __call__(self, done: int, total: int) -> None:
        if self.bar is None:
            from tqdm import tqdm

            self.bar = tqdm(total=total, unit="image", disable=self.quiet or None, file=sys.stderr)
        self.bar.update(done - self.bar.n)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
        if kind is KeyboardInterrupt:
            print_message("interrupted; the same command goes on")


def _told(report: IndexReport, store: Store) -> str:
    parts = [
        (report.embedded, "embedded"),
        (report.moved, "moved or copied"),
        (report.noted, "with other labels or times"),
    ]
    parts += [
        (report.same, "unchanged"),
        (report.removed, "removed"),
        (len(report.failed), "failed"),
    ]
    told = ", ".join(f"{number} {what}" for number, what in parts if number) or "nothing to do"
    return f"{pluralize(len(store), 'image')} in {store.where}: {told}"
