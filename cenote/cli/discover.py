"""`cenote discover`: parse, discover, write, print."""

from __future__ import annotations

import json as to_json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._arguments import (
    check_output_folder,
    command_line,
    parse_names,
    pluralize,
    print_message,
    report_interrupt,
)

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.predict.discovery import DiscoveryResult

PHOTOS_PER_SHEET = 40
MIN_PHOTOS = 12  # on the contact sheet, for each of several methods
FILES = {"coco": "boxes.json", "voc": "Annotations/", "csv": "boxes.csv"}


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
    """Find objects in photographs without labels: boxes and masks; CorLoc if there are true boxes.

    Writes boxes.json, boxes.csv (or Annotations/) and masks/, in one folder per method if there are
    several, a contact sheet, results.json, the best and worst cases if there are true boxes, and a
    report (index.html). A killed run resumes. Exit code 1: some photographs failed, the others are
    done; 2: nothing could be done.

    Args:
        images: files, folders (searched recursively), globs, or one data set as for cenote fit.
        out: output folder.
        method: tokencut, lost, maskcut (up to three objects), dinoseg, dinoseg-compat; several with
            commas; or all.
        backbone: name in timm, or lite0, whose weights need no download.
        weights: a local checkpoint of the backbone.
        model: a saved model, for instance a run of cenote fit, instead of backbone and weights.
        size: pixels of the short side that the model sees; small photographs are enlarged to what
            it was trained on.
        keys: features to compare; auto is SimPool's keys, the last block's, or the feature map of a
            convolutional network.
        head: attention map for dinoseg if there are several.
        centre: subtract the mean of an image's keys (always done if no feature is negative).
        split: only this split of a data set.
        format: coco (boxes.json), voc (Annotations/*.xml), csv (boxes.csv).
        skip_hard: exclude objects marked difficult or truncated from the ground truth.
        workers: processes that read images.
        json: print JSON.
    """
    from tqdm import tqdm

    from cenote.data import write_atomically
    from cenote.evaluate.discover import discover
    from cenote.evaluate.run import save_picture
    from cenote.predict.discovery import METHODS
    from cenote.predict.embedding import Loading
    from cenote.predict.open_model import open_model
    from cenote.report.discovery import discover_command_page
    from cenote.report.html import write_page

    started = time.monotonic()
    methods = parse_names(method, [*METHODS, "all"], "method")
    if "all" in methods:
        methods = list(METHODS)
    check_output_folder(out)
    failed: list[str] = []
    dataset = _open(images, out, methods, failed)
    if split is not None:
        dataset = dataset.split(split)
    network, _ = open_model(backbone, weights, None, model)
    with (
        report_interrupt(),
        tqdm(total=len(dataset), unit="photo", disable=None, file=sys.stderr) as bar,
        ExitStack() as files,
    ):
        writer = _ResultWriter(dataset, out, files, methods, format)
        report = discover(
            network,
            dataset,
            methods,
            hard=not skip_hard,
            loading=Loading(workers=workers, progress=bar.update),
            on_result=writer.add,
            progress_file=out / ".sightings.jsonl",
            size=size,
            source=keys,
            head=head,
            centre=centre or None,
        )
        writer.finish()
    report.details = {"data": dataset.name, "backbone": network.backbone.name, "size": size}
    for message in report.unreadable:
        print_message(f"skipped {message}")
    written = [*(FILES[kind] for kind in format), "masks/", "found.jpg"]
    for name, draw in report.pictures(dataset):
        picture = draw()
        if picture is not None:
            save_picture(picture, out / name)
            written.append(name)
    results = report.to_json()
    with write_atomically(out / "results.json") as path:
        path.write_text(to_json.dumps(results, indent=2) + "\n", encoding="utf-8")
    page = discover_command_page(
        results, dataset, writer.photos, writer.boxes, command_line(), time.monotonic() - started
    )
    written += write_page(out, page)
    if json:
        print(to_json.dumps(results, indent=2))
    else:
        print(report.table())
        boxes = pluralize(writer.boxes, "box", "boxes")
        photographs = pluralize(writer.done, "photograph")
        print(f"{boxes} in {photographs}: {', '.join(written)} in {out}")
    failed += report.unreadable
    if failed:
        print_message(f"cenote discover: {len(failed)} failed, see above")
        raise SystemExit(1)


class _ResultWriter:
    """Write boxes and masks of every image as they come, and a contact sheet at the end."""

    def __init__(
        self,
        dataset: Dataset,
        out: Path,
        files: ExitStack,
        methods: Sequence[str],
        formats: Sequence[str],
    ) -> None:
        from cenote.data.ground_truth import evenly_spaced
        from cenote.predict.photos import unique_names

        self.dataset, self.out, self.methods = dataset, out, methods
        self.files, self.formats = files, formats
        self.writers: dict[str, Any] = {}
        self.paths = [dataset.path(i) for i in range(len(dataset))]
        self.names = unique_names(self.paths)
        shown = max(MIN_PHOTOS, PHOTOS_PER_SHEET // len(methods))
        self.shown = set(evenly_spaced(range(len(dataset)), shown))
        self.entries: list[Any] = []  # of the contact sheet
        self.photos: dict[str, list[Any]] = {name: [] for name in methods}  # of the page
        self.done = self.boxes = 0

    def add(self, result: DiscoveryResult) -> None:
        from cenote.data.write_boxes import ImageBoxes
        from cenote.report.discovery import enlarged

        i, size = result.position, result.size
        if not self.writers:
            self._open_writers()
        for method, objects in result.objects.items():
            masks = [enlarged(mask, size) for mask in objects.masks]
            boxes = objects.boxes.round().astype(int).tolist()
            scores = [1.0] * len(boxes)
            entry = ImageBoxes(self.paths[i], self.names[i], size, None, boxes, scores, masks)
            for writer in self.writers[method]:
                writer.add(entry)
            self.boxes += len(boxes)
        if i in self.shown:
            self._draw(result)
        self.done += 1

    def _open_writers(self) -> None:
        """Open the files with the first image: an error before it leaves nothing behind."""
        from cenote.data.write_boxes import open_writers

        for name in self.methods:
            folder = self.out / name if len(self.methods) > 1 else self.out
            writers = open_writers(folder, self.formats, True)
            self.writers[name] = self.files.enter_context(writers)

    def _draw(self, result: DiscoveryResult) -> None:
        from cenote.report.blocks import boxed_photo
        from cenote.report.discovery import draw_discovered
        from cenote.report.sheet import SheetEntry

        photo, name = self.dataset.image(result.position), self.paths[result.position].name
        pictures = []
        for method, objects in result.objects.items():
            pictures.append(draw_discovered(photo, objects.boxes, objects.masks))
            self.photos[method].append(boxed_photo(photo, objects.boxes, name))
        self.entries.append(SheetEntry(pictures, name))

    def finish(self) -> None:
        from cenote.data import write_atomically
        from cenote.report.discovery import method_title
        from cenote.report.sheet import contact_sheet

        if self.entries:
            heading = " · ".join(method_title(name) for name in self.methods)
            with write_atomically(self.out / "found.jpg") as path:
                contact_sheet(self.entries, heading).save(path, quality=92, subsampling=0)


def _open(images: Sequence[str], out: Path, methods: Sequence[str], failed: list[str]) -> Dataset:
    """Open a data set with boxes, or photographs without the pictures that an earlier run wrote."""
    from cenote.data import LayoutError, open_dataset
    from cenote.data.sources import open_photographs

    def skip(message: str) -> None:
        failed.append(message)
        print_message(f"skipped {message}")

    if len(images) == 1 and Path(images[0]).is_dir():
        try:
            dataset = open_dataset(images[0])
            if dataset.table.boxes is not None:
                return dataset
        except LayoutError:
            pass
    masks = [out / "masks", *(out / name / "masks" for name in methods)]
    dataset = open_photographs(images, masks, skip)
    pictures = {"found.jpg", *(f"discover_{name}.jpg" for name in methods)}
    written = {(out / name).resolve() for name in pictures}
    positions = [i for i in range(len(dataset)) if dataset.path(i).resolve() not in written]
    if not positions:
        if failed:
            raise ValueError("no photographs found")
        raise ValueError("no photographs: name files, folders or globs")
    return dataset.select(positions)
