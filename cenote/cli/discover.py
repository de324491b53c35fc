"""`cenote discover`: parse, discover, write, print."""

from __future__ import annotations

import json as to_json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ._messages import (
    Failures,
    check_output_folder,
    check_photos,
    command_line,
    output_folder,
    parse_names,
    pluralize,
    report_interrupt,
    split_run,
)
from ._options import BoxFormats, Device, Workers

if TYPE_CHECKING:
    from cenote.data import Dataset


def run(
    images: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN] IMAGES...", help_behavior_hint=""),
    ],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = Path("found"),
    method: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "object",
    backbone: str = "lite0",
    weights: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
    ] = None,
    model: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None,
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: see above)")
    ] = None,
    keys: Literal["auto", "pool", "block", "map"] = "auto",
    head: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the mean)")
    ] = None,
    centre: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    pad: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    dino_positions: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    refine: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    split: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: all)")
    ] = None,
    format: BoxFormats = ("coco", "csv"),
    skip_hard: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    workers: Workers = "auto",
    device: Device = "auto",
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Find objects in photographs without labels: boxes and masks; CorLoc if there are true boxes.

    Writes boxes.json, boxes.csv (or Annotations/) and masks/, in one folder per method if there are
    several, a contact sheet, results.json, the best and worst cases if there are true boxes, and a
    report (index.html). A killed run resumes. Exit code 1: some photographs failed, the others are
    done; 2: nothing could be done.

    Args:
        images: a saved model, or none; then files, folders (searched recursively), globs, or one
            data set as for cenote fit.
        out: output folder.
        method: object (one object per photograph: what the photographs have in common), tokencut,
            lost, maskcut (up to three objects), dinoseg, dinoseg-compat; several with commas; or
            all.
        backbone: name in timm, hf-hub:OWNER/NAME, local-dir:FOLDER, hf:OWNER/NAME or hf:FOLDER
            (transformers), or lite0, whose weights need no download.
        weights: a local checkpoint of the backbone.
        model: a saved model, for instance a run of cenote fit, instead of backbone and weights.
        size: pixels of the short side that the model sees, by default the photograph's, up to 640
            and at least what it was trained on; of the object map, the side of a square, by default
            12/7 of what it was trained on (384 for 224), which costs 4.5 times as much.
        keys: features to compare; auto is SimPool's keys, the last block's, or the feature map of a
            convolutional network.
        head: attention map for dinoseg if there are several.
        centre: subtract the mean of an image's keys. If no feature is negative, as behind a ReLU,
            tokencut and maskcut always do; lost then normalises all of them together, as published.
        pad: pad photographs to whole patches, as the published LOST does, instead of resizing them.
        dino_positions: resample the position embeddings of a ViT as the published programs of DINO,
            LOST and TokenCut do, instead of timm's way.
        refine: make the object map follow the edges of the photographs: better masks, tighter
            boxes, of which fewer may be right.
        split: only this split of a data set.
        format: coco (boxes.json), voc (Annotations/*.xml), csv (boxes.csv), yolo (yolo/data.yaml,
            with copies of the photographs, to train a detector), label-studio (label-studio.json).
        skip_hard: exclude objects marked difficult or truncated from the ground truth.
        json: print JSON.
    """
    check_photos(images)

    from cenote.data import write_atomically
    from cenote.data.processes import count_workers
    from cenote.device import use_device
    from cenote.evaluate.discover import discover
    from cenote.predict.discovery import METHODS
    from cenote.predict.embedding import Loading
    from cenote.predict.open_model import open_model
    from cenote.progress import progress_bar
    from cenote.report.box_files import FILES, DiscoveredFiles
    from cenote.report.discovery import discover_command_page
    from cenote.report.html import write_page
    from cenote.report.sheet import save_picture

    started = time.monotonic()
    use_device(device)
    methods = parse_names(method, [*METHODS, "all"], "method")
    if "all" in methods:
        methods = list(METHODS)
    uses = {METHODS[name].uses for name in methods}
    for option, given, needed in (
        ("--keys", keys != "auto", "keys"),
        ("--centre", centre, "keys"),
        ("--pad", pad and "attention" not in uses, "keys"),
        ("--head", head is not None, "attention"),
        ("--refine", refine, "object map"),
    ):
        if given and needed not in uses:
            names = ", ".join(name for name, m in METHODS.items() if m.uses == needed)
            raise ValueError(f"{option} is an option of --method {names}")
    check_output_folder(out)
    failures = Failures("discover")
    folder, photos = split_run(images, model)
    dataset = _open(photos, out, methods, failures)
    if split is not None:
        dataset = dataset.split(split)
    network, _ = open_model(backbone, weights, None, folder or model)
    with (
        report_interrupt(),
        output_folder(out, "results.json"),
        progress_bar("objects", len(dataset)) as bar,
        DiscoveredFiles(dataset, out, format, methods) as files,
    ):
        report = discover(
            network,
            dataset,
            methods,
            hard=not skip_hard,
            loading=Loading(workers=count_workers(workers), progress=bar.update),
            on_result=files.write,
            progress_file=out / ".discover.jsonl",
            size=size,
            source=keys,
            head=head,
            centre=centre,
            pad=pad,
            dino_positions=dino_positions,
            refined=refine,
            folder=folder or model,
        )
    report.details = {"data": dataset.name, "backbone": network.backbone.name, "size": size}
    for message in report.unreadable:
        failures(message)
    written = [*(FILES[kind] for kind in format), "masks/", "found.jpg"]
    for name, draw in report.pictures(dataset):
        picture = draw()
        if picture is not None:
            save_picture(picture, out / name)
            written.append(name)
    results = report.to_json()
    with write_atomically(out / "results.json") as path:
        path.write_text(to_json.dumps(results, indent=2) + "\n", encoding="utf-8")
    seconds = time.monotonic() - started
    page = discover_command_page(
        results, dataset, files.photos, files.boxes, command_line(), seconds
    )
    written += write_page(out, page)
    if json:
        print(to_json.dumps(results, indent=2))
    else:
        boxes = pluralize(files.boxes, "box", "boxes")
        photographs = pluralize(files.done, "photograph")
        print(report.table())
        print(f"{boxes} in {photographs}: {', '.join(written)} in {out}")
    failures.exit()


def _open(images: Sequence[str], out: Path, methods: Sequence[str], failures: Failures) -> Dataset:
    """Open a data set with boxes, or photographs without the pictures that an earlier run wrote."""
    from cenote.data import LayoutError, open_dataset
    from cenote.data.sources import open_photographs

    if len(images) == 1 and Path(images[0]).is_dir():
        try:
            dataset = open_dataset(images[0])
            if dataset.table.boxes is not None:
                return dataset
        except LayoutError:
            pass
    written = ["masks", "found.jpg", "yolo"]
    written += [f"{name}/{folder}" for name in methods for folder in ("masks", "yolo")]
    written += [f"discover_{name}.jpg" for name in methods]
    dataset = open_photographs(images, [out / name for name in written], failures)
    if not len(dataset):
        raise ValueError("no photographs found: name files, folders or globs")
    return dataset
