"""`cenote attend`: parse, predict, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from ._messages import check_photos, output_folder, pluralize, split_run
from ._options import Device


def run(
    photos: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[RUN] PHOTO...", help_behavior_hint=""),
    ],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = Path("out"),
    backbone: str = "lite0",
    weights: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: its own)")
    ] = None,
    pool: Annotated[
        str | None, tyro.conf.arg(metavar="POOL", help_behavior_hint="(default: its own)")
    ] = None,
    model: Annotated[str | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None,
    text: Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = None,
    map: Literal["auto", "object", "own", "pool", "cls", "rollout", "cam", "gradcam"] = "auto",
    block: Annotated[
        int | Literal["all"] | None,
        tyro.conf.arg(metavar="N|all", help_behavior_hint="(default: the last)"),
    ] = None,
    head: Annotated[
        int | Literal["all"] | None,
        tyro.conf.arg(metavar="N|all", help_behavior_hint="(default: the mean)"),
    ] = None,
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: see above)")
    ] = None,
    share: float = 0.6,
    registers: bool = False,
    batch: int = 8,
    device: Device = "auto",
) -> None:
    """Show where a model looks: overlay, mask and box of each photograph, and a contact sheet.

    Writes NAME.overlay.jpg, NAME.mask.jpg, NAME.box.jpg, contact_sheet.jpg, attention.npz (the
    maps), attention.json and attention.csv (boxes in pixels of the upright photograph, predicted
    classes). Exit code 1: some photographs failed, the others are done; 2: nothing could be done.

    Args:
        photos: a saved model, or none; then files, folders (searched recursively) and globs.
        out: output folder.
        backbone: name in timm, hf-hub:OWNER/NAME, local-dir:FOLDER, hf:OWNER/NAME or hf:FOLDER
            (transformers), or lite0, whose weights need no download.
        weights: a local checkpoint of the backbone.
        pool: the pooling; by default own, the one the backbone was trained with.
        model: a saved model, instead of backbone, weights and pool; with --text an image-text
            model: text-space, open_clip/MODEL/WEIGHTS, or a folder that cenote clip wrote.
        text: show where this is, such as "a dog", by default with text-space.
        map: kind of map. object is where the objects are: what stands out from the background in
            these photographs together, or for fewer than 8 what a saved model has stored; its mask
            and box are above its threshold. own is where the pooling looks: its attention, else
            that of CLS, else the class activation map of the predicted class. auto is object for a
            backbone, whose boxes are right more often, and own with --model or --pool.
        block: of CLS attention, the block of the ViT, counted from 0; with all the contact sheet
            shows the map of each block.
        head: index of the map to show if there are several, or all for each in the contact sheet.
        size: the model sees about size x size pixels, uncropped, with the photograph's aspect
            ratio, by default 448; of an object map, a square, as cenote localize.
        share: share of the map's mass that the mask and the box contain; not for object maps.
        registers: add a test-time register to a ViT trained without registers, if patches of these
            photographs have outlier norms; for --backbone.
        batch: photographs per batch.
    """
    check_photos(photos)

    import sys

    from cenote.device import use_device
    from cenote.predict.open_model import open_model, open_text_map
    from cenote.predict.photos import PhotoPredictor
    from cenote.report.attend import attend_photos

    use_device(device)
    folder, images = split_run(photos, model)
    if folder is not None and text is not None:
        raise ValueError(f"--text needs an image-text model, {folder} has classes")
    if model is not None and text is None:
        folder = Path(model)
    bare = pool is None and folder is None and text is None
    if registers and not bare:
        raise ValueError(
            "--registers is for a ViT of --backbone, without --pool, --model and --text"
        )
    if text is None:
        network, trained = open_model(backbone, weights, pool, folder)
    elif (backbone, weights, pool, map) == ("lite0", None, None, "auto"):
        network, trained = open_text_map(model or "text-space", text), False
    else:
        raise ValueError("--text needs an image-text model, --model, and no other option of a map")
    predictor = PhotoPredictor(
        network, map, size, share, batch, head, block, trained, bare, folder, registers
    )
    with output_folder(out, "attention.json"):
        outcome = attend_photos(predictor, images, out)
    photographs = pluralize(outcome.done, "photograph")
    files = f"{out / 'contact_sheet.jpg'}, attention.npz, attention.json, attention.csv"
    print(f"{photographs}, {predictor.describe()}: {files}")
    if outcome.failed:
        print(f"cenote attend: {len(outcome.failed)} failed, see above", file=sys.stderr)
        raise SystemExit(1)
