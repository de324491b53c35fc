"""`cenote clip`: parse, train, print. Its options are the fields of train/config.py with `flag`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ._messages import check_data
from ._options import Device
from ._training import Data, Flag, Out, config_of, exit_if_stopped, options_type

if TYPE_CHECKING:
    from cenote.train.reports import ClipReport

ClipOptions = options_type("clip")
Options = Annotated[Any, tyro.conf.arg(name="", constructor=ClipOptions)]


def run(
    data: Data,
    out: Out,
    options: Options = ClipOptions(),  # noqa: B008
    resume: Flag = False,
    device: Device = "auto",
) -> None:
    """Train a small image-text model with a contrastive loss, as CLIP does.

    The texts of an image are its captions, with and without its domain, and short texts made of its
    class, domain and attributes; every epoch draws one. A text that is true of several images of a
    step is not a negative of any of them. After every epoch: zero-shot classification of classes
    and domains, and recall between images and texts. RUN contains the model (cenote index DATA
    --model RUN), results.json and metrics.jsonl; cenote attend RUN reads its image encoder. A run
    that is killed and resumed ends with the same weights; torchrun spreads it over processes, whose
    images and texts are compared with each other.

    Args:
        data: a folder, a list with captions, NAME:FOLDER, or world/domains and its siblings.
        out: folder of the run.
        resume: resume the run in RUN.
    """
    check_data(data)

    from cenote.data import open_dataset
    from cenote.device import use_device
    from cenote.predict.distributed import is_main_process
    from cenote.train.clip import train_clip

    use_device(device)
    config = config_of("clip", options)
    with exit_if_stopped("clip"):
        report = train_clip(open_dataset(data), out, config, resume=resume)
    if is_main_process():
        print(summary(report))
        print(f"saved in {out}")


def summary(report: ClipReport) -> str:
    """Return a line for each split that was evaluated."""
    lines = []
    for split, scores in (("val", report.val), ("test", report.test)):
        if scores is not None:
            names = [name for name in scores if name != "images"]
            text = ", ".join(f"{name.replace('_', ' ')} {scores[name]:.1f}" for name in names)
            lines.append(f"{split}, {scores['images']} images, in percent: {text}")
    return "\n".join(lines)
