"""`cenote clip`: parse, train, print."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._fit_options import Flag, Pairs
from ._unlabelled import open_to

if TYPE_CHECKING:
    from cenote.train.clip_choices import ClipChoices


@dataclass(frozen=True)
class ClipArguments:
    backbone: Annotated[str | None, open_to("resnet_micro", "NAME")] = None
    """a timm model; resnet_micro and vit_micro learn from scratch, lite0 is trained and needs no download."""
    pool: Annotated[str | None, open_to("gap", "NAME")] = None
    """a pool (cenote pools lists them), or cls."""
    pool_options: Pairs = ()
    """of the pool, such as gamma=2."""
    tokens: Annotated[
        Literal["patches", "all", "cls"] | None, open_to("patches", "{patches,all,cls}")
    ] = None
    """what is pooled: patches, all of them with the CLS token, or cls alone."""
    weights: Annotated[Path | None, open_to("", "FILE")] = None
    """a checkpoint of the backbone to begin with."""
    freeze: Flag = False
    """keep the backbone as it is: pool, embedding and texts learn on features that are computed once."""
    scratch: Flag = False
    """begin with random weights."""
    stride: Annotated[Literal[1, 2, 4] | None, open_to("1", "{1,2,4}")] = None
    """a map so many times finer: the last one or two stages of a CNN keep their resolution."""
    texts: Annotated[
        Literal["both", "captions", "templates"] | None,
        open_to("both", "{both,captions,templates}"),
    ] = None
    """captions: templates only where there is none; templates: class, domain and attributes; or both."""
    dim: Annotated[int | None, open_to("128")] = None
    """numbers of a vector."""
    width: Annotated[int | None, open_to("128")] = None
    """of the text transformer."""
    layers: Annotated[int | None, open_to("2")] = None
    """of it."""
    heads: Annotated[int | None, open_to("4")] = None
    """of it."""
    crop: Annotated[float | None, open_to("0.5", "X")] = None
    """the smallest share of a picture that a training step sees; with --freeze it sees all of it."""
    epochs: Annotated[int | None, open_to("60")] = None
    """passes over the images."""
    batch: Annotated[int | None, open_to("128")] = None
    """images a step, over all processes: each is compared with all texts of its step."""
    lr: Annotated[float | None, open_to("1e-3", "X")] = None
    """the rate."""
    size: Annotated[int | None, open_to("the backbone's")] = None
    """pixels of a side."""
    seed: Annotated[int | None, open_to("0")] = None
    """of weights, order, crops and texts."""
    workers: Annotated[int | None, open_to("0")] = None
    """processes that read images."""
    settings: Pairs = ()
    """others, such as weight_decay=0.1 warmup=5 clip=1 ema=0.999 amp=bf16 tensorboard=true."""

    def choices(self) -> ClipChoices:
        """Checked: a typo is told before the images are read."""
        from cenote.train.choices import parse_options
        from cenote.train.clip_choices import DEFAULTS, ClipChoices
        from cenote.train.recipes import parse_settings

        names = ["backbone", "pool", "tokens", "weights", "stride", "size", "crop", "texts"]
        names += ["dim", "width", "layers", "heads"]
        asked: dict[str, Any] = {name: getattr(self, name) for name in names}
        numbers = {
            name: getattr(self, name) for name in ("epochs", "batch", "lr", "seed", "workers")
        }
        given = {
            name: value for name, value in numbers.items() if value is not None
        } | parse_options(self.settings)
        if "warmup" not in given and "epochs" in given:  # a short run has no time for a long one
            given["warmup"] = min(DEFAULTS.warmup, float(given["epochs"]) / 10)
        made = ClipChoices(
            **{name: value for name, value in asked.items() if value is not None},
            freeze=self.freeze,
            scratch=self.scratch,
            pool_options=parse_options(self.pool_options),
            settings=parse_settings(given, "cenote clip", DEFAULTS),
        )
        made.check()
        return made


def run(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="RUN")],
    given: Annotated[ClipArguments, tyro.conf.arg(name="")] = ClipArguments(),
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Train a small image-text model: images and what is said of them draw together, as in CLIP.

    What is said of an image are its captions, with its domain and without, and short texts made of its class, domain
    and attributes; every epoch draws one. A text that is true of several images of a step is nobody's negative there.
    After every epoch: classes and domains told by their names alone, and recall between images and texts. RUN holds
    the model (cenote index DATA --model RUN), results.json and metrics.jsonl; the image side alone is a model that
    cenote attend RUN reads. Killed at any moment, a run ends with the same weights if it is resumed; torchrun spreads
    it over processes, whose images and texts are compared with each other's.

    Args:
        data: a folder, a list with captions, NAME:FOLDER, or world/domains and its siblings.
        out: where the run lies.
        resume: go on with the run in RUN.
    """
    from cenote.data import open_dataset
    from cenote.predict.distributed import leads
    from cenote.train.clip_fit import learn_clip
    from cenote.train.engine import Stopped

    choices = given.choices()
    try:
        report = learn_clip(open_dataset(data), out, choices, resume=resume)
    except Stopped as stop:
        print(f"cenote clip: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    if leads():
        print(told(report))
        print(f"saved in {out}")


def told(report: dict[str, Any]) -> str:
    """A line for each split that judged."""
    lines = []
    for split in ("val", "test"):
        if split in report:
            found = report[split]
            cells = [
                f"{name.replace('_', ' ')} {value:.1f}"
                for name, value in found.items()
                if name != "images"
            ]
            lines.append(f"{split}, {found['images']} images, in percent: {', '.join(cells)}")
    return "\n".join(lines)
