"""`cenote discover`: parse, find, write, print."""

from __future__ import annotations

import json as to_json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._arguments import check_output_folder, parse_names, pluralize, print_message, report_interrupt

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.predict.discovery.results import Sighting

SHEET = 40  # pictures on the contact sheet


def run(
    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES...")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = Path("found"),
    method: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "tokencut",
    backbone: str = "lite0",
    weights: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    model: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None,
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: its own, up to 640)")
    ] = None,
    keys: Literal["auto", "pool", "block", "map"] = "auto",
    head: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the mean)")
    ] = None,
    centre: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    split: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: all)")
    ] = None,
    format: tuple[Literal["coco", "voc", "csv"], ...] = ("coco", "csv"),
    skip_hard: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    workers: int = 0,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Find the objects in photographs without any labels: boxes and masks; and CorLoc where there are true boxes.

    Writes boxes.json, boxes.csv (or Annotations/) and masks/, in a folder of its own for each of several methods, a
    contact sheet of what was found, results.json, the best and worst cases where truth is known, and a report
    (index.html). A run that was killed goes on where it was. Exit code 1: some photographs failed, the others are done;
    2: nothing could be done.

    Args:
        images: files, folders (and what is in them), globs, or one data set as for cenote fit.
        out: where everything goes.
        method: tokencut, lost, maskcut (up to three objects), dinoseg, dinoseg-compat; several with commas; or all.
        backbone: timm's name, or lite0, whose weights need no download.
        weights: a local checkpoint of the backbone.
        model: a saved model, for instance a run of cenote fit, instead of backbone and weights.
        size: pixels of the short side, as the model sees it; small photographs are enlarged to what it was trained on.
        keys: what is compared; auto is SimPool's keys, the last block's, or the feature map of a convolutional net.
        head: which attention map dinoseg takes where there are several.
        centre: take the mean of an image's keys off them (done anyway where no feature is negative).
        split: of a data set, only this split.
        format: coco (boxes.json), voc (Annotations/*.xml), csv (boxes.csv).
        skip_hard: leave objects marked difficult or truncated out of the truth.
        workers: processes that read images.
        json: print JSON.
    """
    from tqdm import tqdm

    from cenote.evaluate.discover import METHODS, discover
    from cenote.predict.open_model import open_model
    from cenote.report.discovery import table, write_pages
    from cenote.report.html import write_page
    from cenote.report.html.found import discover_page

    from ._arguments import command_line

    started = time.monotonic()
    methods = parse_names(method, [*METHODS, "all"], "method")
    methods = list(METHODS) if "all" in methods else methods
    check_output_folder(out)
    failed: list[str] = []
    dataset = _open(images, out, methods, failed)
    dataset = dataset if split is None else dataset.split(split)
    network = open_model(backbone, weights, None, model, print_message).model
    with (
        report_interrupt(),
        tqdm(total=len(dataset), unit="photo", disable=None, file=sys.stderr) as bar,
        ExitStack() as files,
    ):
        each = _Writing(dataset, out, files, methods, format)
        report = discover(
            network, dataset, methods, not skip_hard, workers=workers, progress=bar.update, each=each,
            journal=out / ".sightings.jsonl", size=size, source=keys, head=head, centre=True if centre else None,
        )  # fmt: skip
        each.finish()
    report = {"data": dataset.name, "backbone": network.backbone.name, "size": size, **report}
    for sentence in report["unreadable"]:
        print_message(f"skipped {sentence}")
    pages = write_pages(report, dataset, out)
    _write(out / "results.json", report)
    seconds = time.monotonic() - started
    pages += write_page(
        out, discover_page(report, dataset, each.cases, each.boxes, command_line(), seconds)
    )
    if json:
        print(to_json.dumps(report, indent=2))
    else:
        print(table(report))
        found = f"{pluralize(each.boxes, 'box', 'boxes')} in {pluralize(each.done, 'photograph')}"
        print(f"{found}: {', '.join([*each.names, *pages])} in {out}")
    failed += report["unreadable"]
    if failed:
        print_message(f"cenote discover: {len(failed)} failed, see above")
        raise SystemExit(1)


class _Writing:
    """Boxes and masks of every image go to their files as they come; a page of pictures is kept."""

    def __init__(
        self,
        dataset: Dataset,
        out: Path,
        files: ExitStack,
        methods: Sequence[str],
        format: Sequence[str],
    ) -> None:
        from cenote.data.truth import spread
        from cenote.predict.photos import names_for

        self.dataset, self.out, self.methods = dataset, out, methods
        self.stack, self.format = files, format
        self.writers: dict[str, Any] = {}
        self.paths = [dataset.path(i) for i in range(len(dataset))]
        self.files = names_for(self.paths)
        self.shown = set(spread(list(range(len(dataset))), max(12, SHEET // len(methods))))
        self.entries: list[Any] = []
        self.cases: dict[str, list[Any]] = {name: [] for name in methods}  # of the page
        self.done = self.boxes = 0
        kinds = {"coco": "boxes.json", "voc": "Annotations/", "csv": "boxes.csv"}
        self.names = [*(kinds[kind] for kind in format), "masks/", "found.jpg"]

    def __call__(self, sighting: Sighting) -> None:
        from cenote.data.write_boxes import ImageBoxes, open_writers
        from cenote.report.discovery import draw_found, enlarged
        from cenote.report.html.found import found_case
        from cenote.report.sheet import Entry

        i, size = sighting.position, sighting.size
        if (
            not self.writers
        ):  # only now: what goes wrong before the first image leaves nothing behind
            folders = {
                name: self.out / name if len(self.methods) > 1 else self.out
                for name in self.methods
            }
            opened = {
                name: open_writers(folder, self.format, True) for name, folder in folders.items()
            }
            self.writers = {
                name: self.stack.enter_context(writers) for name, writers in opened.items()
            }
        for method, found in sighting.found.items():
            masks = [enlarged(mask, size) for mask in found.masks]
            boxes = found.boxes.round().astype(int).tolist()
            entry = ImageBoxes(
                self.paths[i], self.files[i], size, None, boxes, [1.0] * len(boxes), masks
            )
            for writer in self.writers[method]:
                writer.add(entry)
            self.boxes += len(boxes)
        if i in self.shown:
            photo = self.dataset.image(i)
            pictures = [
                draw_found(photo, found.boxes, found.masks) for found in sighting.found.values()
            ]
            self.entries.append(Entry(pictures, self.paths[i].name))
            for method, found in sighting.found.items():
                self.cases[method].append(found_case(photo, found.boxes, self.paths[i].name))
        self.done += 1

    def finish(self) -> None:
        from cenote.data import write_atomically
        from cenote.report.discovery import NAMES
        from cenote.report.sheet import contact_sheet

        if self.entries:
            heading = " · ".join(NAMES[name] for name in self.methods)
            with write_atomically(self.out / "found.jpg") as path:
                contact_sheet(self.entries, heading).save(path, quality=92, subsampling=0)


def _open(images: Sequence[str], out: Path, methods: Sequence[str], failed: list[str]) -> Dataset:
    """A data set with boxes as it is; any other folder is photographs, but for what an earlier run wrote there."""
    from cenote.data import LayoutError, open_dataset
    from cenote.data.sources import open_photographs

    def skipped(sentence: str) -> None:
        failed.append(sentence)
        print_message(f"skipped {sentence}")

    if len(images) == 1 and Path(images[0]).is_dir():
        try:
            dataset = open_dataset(images[0])
            if dataset.table.boxes is not None:
                return dataset
        except LayoutError:
            pass
    own = [out / "masks", *(out / name / "masks" for name in methods)]
    dataset = open_photographs(images, own, skipped)
    pictures = {"found.jpg", *(f"discover_{name}.jpg" for name in methods)}
    kept = [
        i
        for i in range(len(dataset))
        if not (_is_in(dataset.path(i), out) and dataset.path(i).name in pictures)
    ]
    if not kept:
        raise ValueError(
            "no photographs found" if failed else "no photographs: name files, folders or globs"
        )
    return dataset.select(kept)


def _is_in(path: Path, folder: Path) -> bool:
    return path.resolve().parent == folder.resolve()


def _write(path: Path, report: Mapping[str, Any]) -> None:
    from cenote.data import write_atomically

    with write_atomically(path) as temporary:
        temporary.write_text(to_json.dumps(report, indent=2) + "\n", encoding="utf-8")
