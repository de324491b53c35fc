"""What `cenote dino` and `cenote moco` both ask and do."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._fit_options import Flag, Pairs, Row

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.train.config import OptimizationConfig
    from cenote.train.unlabelled import Unlabelled


def open_to(default: str, metavar: str = "N") -> Any:
    """How help shows an option that a recipe or the method fills in."""
    return tyro.conf.arg(
        metavar=metavar, help_behavior_hint=f"(default: {default})" if default else ""
    )


@dataclass(frozen=True)
class UnlabelledOptions:
    backbone: Annotated[str | None, open_to("vit_micro", "NAME")] = None
    """a timm model; vit_micro and resnet_micro are small enough for two cores."""
    pool: Annotated[str | None, open_to("simpool", "NAME")] = None
    """a pool (cenote pools lists them), or cls."""
    pool_options: Pairs = ()
    """of the pool, such as gamma=2."""
    tokens: Annotated[
        Literal["patches", "all", "cls"] | None,
        tyro.conf.arg(help_behavior_hint="(default: patches)"),
    ] = None
    """what is pooled: patches, all of them with the CLS token, or cls alone."""
    recipe: Annotated[str | None, open_to("", "NAME")] = None
    """a paper's settings by name (cenote recipes lists them), or a YAML file; other options go before it."""
    epochs: Annotated[int | None, open_to("100")] = None
    """passes over the images."""
    batch: Annotated[int | None, open_to("64")] = None
    """images a step, over all processes."""
    lr: Annotated[float | None, open_to("the paper's, growing with batches over 256", "X")] = None
    """the rate."""
    size: Annotated[int | None, open_to("the backbone's")] = None
    """pixels of a large crop's side."""
    sar: Annotated[float | None, open_to("0", "X")] = None
    """weight of SAR's loss, which keeps the student's attention together; the paper's is 0.01."""
    last_block: Annotated[Row | None, tyro.conf.arg(help_behavior_hint="")] = None
    """the last block of SAR, or of a row of its Table 1(b), for a ViT: fewer skip connections; E, F: and the loss."""
    keep_cls: Flag = False
    """leave a CLS token in the encoder though a pool takes its place: CoaT cannot do without."""
    options: Pairs = ()
    """the method's own, such as out=4096 momentum=0.99."""
    settings: Pairs = ()
    """others, such as optimizer=lars weight_decay=0.04 warmup=10 sar_loss=variation amp=bf16 tensorboard=true."""
    seed: int = 0
    """of weights, order and crops."""
    workers: int = 0
    """processes that read images."""

    def asked(self, method: str, **views: Any) -> Unlabelled:
        """Checked: a typo is told before the images are read."""
        from cenote.train.choices import given_only, parse_options
        from cenote.train.recipes import load_recipe
        from cenote.train.sar import row_settings
        from cenote.train.unlabelled import asked_for, options_of

        named = {
            name: getattr(self, name)
            for name in ("epochs", "batch", "lr", "sar", "seed", "workers")
        }
        settings = row_settings(self.last_block, given_only(named) | parse_options(self.settings))
        model = {name: getattr(self, name) for name in ("backbone", "pool", "tokens", "size")}
        made = asked_for(
            method, settings, load_recipe(self.recipe) if self.recipe else None, **model,
            **views, pool_options=parse_options(self.pool_options), options=parse_options(self.options),
            model_options=given_only({"last_block": self.last_block, "keep_cls": self.keep_cls}),
        )  # fmt: skip
        options_of(made, 0)
        return made


def train(
    method: str, data: str, out: Path, given: UnlabelledOptions, resume: bool, **views: Any
) -> None:
    from cenote.data import open_dataset
    from cenote.predict.distributed import leads
    from cenote.train.engine import Stopped
    from cenote.train.unlabelled import learn

    asked = given.asked(method, **views)
    dataset = open_dataset(data)
    try:
        report = learn(dataset, out, asked, resume)
    except Stopped as stop:
        print(f"cenote {method}: {stop}", file=sys.stderr)
        raise SystemExit(1) from stop
    if leads():
        print(_told(dataset, out, report, asked.settings))


def _told(dataset: Dataset, out: Path, report: dict[str, Any], settings: OptimizationConfig) -> str:
    """What the vectors are worth, with a linear probe where images have classes."""
    from cenote.data.splits import split
    from cenote.evaluate.linear import linear_probe
    from cenote.models import load
    from cenote.train.unlabelled import unlabelled_splits

    train, val = unlabelled_splits(dataset)
    if val is None:
        return f"{report['images']} images, none with a class to judge by: saved in {out}"
    splits = split(train, quiet=True)  # the decay is chosen on held-out training images
    probe = linear_probe(load(out), splits.train, splits.val, val, settings.batch, settings.workers)
    before = f"{report['knn_untrained']:.2f} untrained"
    judged = (
        f"10 nearest neighbours {report['knn']:.2f} ({before}), linear probe {probe.linear:.2f}"
    )
    return f"{len(val)} images: {judged}: saved in {out}"
