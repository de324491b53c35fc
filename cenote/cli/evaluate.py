"""`cenote evaluate`: parse, judge, print."""

from __future__ import annotations

import json as to_json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


def run(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    on: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "classify",
    out: Annotated[
        Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")
    ] = None,
    split: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: see below)")
    ] = None,
    batch: int = 64,
    workers: int = 0,
    seed: int = 0,
    without_match: Literal["exclude", "miss"] = "exclude",
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """How good a saved model is, in one way or several.

    classify: top-1 and top-5. knn: 10 and 20 nearest neighbours among the training images. linear: a linear probe on
    the model's vectors. retrieve: Recall@K, P@1, R-precision and MAP@R among the judged images, or of queries against
    a gallery. localize: boxes and pixels of its maps, against the truth. discover: objects found without labels.
    segment: a linear layer on frozen patch features, where there are masks. background: ImageNet-9's eight
    backgrounds of images that have masks. corruption: ImageNet-C's fifteen corruptions at five severities, which
    takes 76 passes over the images.

    Args:
        folder: a saved model, for instance a run of cenote fit.
        data: as for cenote fit.
        on: what is asked: classify, knn, linear, retrieve, localize, discover, segment, background, corruption;
            several with commas.
        out: also write results.json, pictures and a report of them (index.html) there.
        split: which images are judged; by default test, or what was held out of the data that the run was trained on,
            or all.
        batch: images at a time.
        workers: processes that read images.
        seed: of backgrounds and corruptions.
        without_match: of retrieve, what becomes of queries that have nothing to find.
        json: print JSON.
    """
    import torch

    from cenote.cli._arguments import check_output_folder, parse_names, print_message
    from cenote.cli._judging import GO_ON, PROTOCOLS
    from cenote.cli._retrieving import fold_note
    from cenote.cli._session import Session
    from cenote.data import open_dataset, write_atomically
    from cenote.models import load
    from cenote.train.judged import judged_parts

    names = parse_names(on, PROTOCOLS, "protocol")
    check_output_folder(out)
    opened = open_dataset(data)
    parts = judged_parts(folder, opened, split)
    model = load(folder).eval().to("cuda" if torch.cuda.is_available() else "cpu")
    whole = opened if split is None else None
    session = Session(folder, model, parts, out, batch, workers, seed, whole, without_match)
    if note := fold_note(folder):
        print_message(note)
    reports: dict[str, Any] = {"split": parts.name, "images": len(parts.judged)}
    for place, name in enumerate(names):
        try:
            found, text = PROTOCOLS[name](session)
        except KeyboardInterrupt:
            if out is not None and name in GO_ON:
                print_message("interrupted; the same command goes on")
            raise
        reports[name] = _without_nan(found)
        if not json:
            print(("\n" if place else "") + (f"{name}\n{text}" if len(names) > 1 else text))
        if out is not None:  # after each of them: the next may take an hour
            with write_atomically(out / "results.json") as temporary:
                temporary.write_text(to_json.dumps(reports, indent=2, allow_nan=False) + "\n")
            session.write_page(reports)
            session.tidy()
    if json:
        print(to_json.dumps(reports, indent=2, allow_nan=False))
    elif out is not None:
        print(f"\nreport: {out / 'index.html'}")


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: the accuracy of no readable image is null there."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
