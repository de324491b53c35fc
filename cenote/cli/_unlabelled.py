"""What `cenote dino` and `cenote moco` both ask and do."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from cenote.data import Dataset

Whole = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the backbone's)")]
Pairs = Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE...", help_behavior_hint="")]


@dataclass(frozen=True)
class UnlabelledOptions:
    backbone: str = "vit_micro"
    """a timm model; vit_micro and resnet_micro are small enough for two cores."""
    pool: str = "simpool"
    """a pool (cenote pools lists them), or cls."""
    pool_options: Pairs = ()
    """of the pool, such as gamma=2."""
    tokens: Literal["patches", "all", "cls"] = "patches"
    """what is pooled: patches, all of them with the CLS token, or cls alone."""
    epochs: int = 100
    """passes over the images."""
    batch: int = 64
    """images a step, over all processes."""
    lr: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="(default: the paper's, by batch)")] = (
        None
    )
    """the rate."""
    size: Whole = None
    """pixels of a large crop's side."""
    sar: float = 0.0
    """weight of SAR's loss, which keeps the student's attention together; the paper's is 0.01."""
    options: Pairs = ()
    """the method's own, such as out=4096 momentum=0.99."""
    settings: Pairs = ()
    """others, such as optimizer=lars weight_decay=0.04 warmup=10 sar_loss=variation amp=bf16 tensorboard=true."""
    seed: int = 0
    """of weights, order and crops."""
    workers: int = 0
    """processes that read images."""


def train(method: str, data: str, out: Path, given: UnlabelledOptions, resume: bool, **views: Any) -> None:
    from cenote.data import open_dataset
    from cenote.train.choices import parse_options
    from cenote.train.distributed import leads
    from cenote.train.engine import Stopped
    from cenote.train.recipes import parse_settings
    from cenote.train.unlabelled import METHODS, Unlabelled, learn, options_of

    base = METHODS[method][2]
    named = {name: getattr(given, name) for name in ("epochs", "batch", "seed", "workers", "sar")}
    named |= {"warmup": min(base.warmup, given.epochs / 10), "lr": given.lr or base.lr * given.batch / 256}
    settings = parse_settings(named | parse_options(given.settings), method, base)
    asked = Unlabelled(
        method, given.backbone, given.pool, given.tokens, given.size, pool_options=parse_options(given.pool_options),
        options=parse_options(given.options), settings=settings, **views,
    )  # fmt: skip
    options_of(asked, 0)  # a typo is told before the images are read
    dataset = open_dataset(data)
    try:
        report = learn(dataset, out, asked, resume)
    except Stopped as stop:
        print(f"cenote {method}: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    if leads():
        print(_told(dataset, out, report, given))


def _told(dataset: Dataset, out: Path, report: dict[str, Any], given: UnlabelledOptions) -> str:
    """What the vectors are worth, with a linear probe where images have classes."""
    from cenote.evaluate.linear import linear_probe
    from cenote.models import load
    from cenote.train.splits import split
    from cenote.train.unlabelled import unlabelled_splits

    train, val = unlabelled_splits(dataset)
    if val is None:
        return f"{report['images']} images, none with a class to judge by: saved in {out}"
    parts = split(train, say=lambda sentence: None)  # the decay is chosen on images held out of the training ones
    found = linear_probe(load(out), parts.train, parts.val, val, batch=given.batch, workers=given.workers)
    judged = f"10 nearest neighbours {report['knn']:.2f}, linear probe {found['linear']:.2f}"
    return f"{len(val)} images: {judged}: saved in {out}"
