"""What `cenote fit` and `cenote sweep` both ask of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from cenote.train.choices import Choices
    from cenote.train.recipes import Recipe

Whole = Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: see above)")]
Pairs = Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE...", help_behavior_hint="")]
Row = Literal["sar", "A", "B", "C", "D", "E", "F"]
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class FitOptions:
    backbone: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: lite0)")
    ] = None
    """a timm model, or lite0, whose weights need no download."""
    pool: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: simpool)")
    ] = None
    """a pool (cenote pools lists them), or cls."""
    pool_options: Pairs = ()
    """of the pool, such as gamma=2."""
    tokens: Annotated[
        Literal["patches", "all", "cls"] | None,
        tyro.conf.arg(help_behavior_hint="(default: patches)"),
    ] = None
    """what is pooled: patches, all of them with the CLS token, or cls alone."""
    recipe: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """a paper's settings by name (cenote recipes lists them), or a YAML file; other options go before it."""
    weights: Annotated[Path | None, tyro.conf.arg(metavar="FILE|RUN", help_behavior_hint="")] = None
    """a checkpoint of the backbone, or the folder of a run: training begins with all of its weights but the head's."""
    freeze: Flag = False
    """keep the backbone as it is."""
    scratch: Flag = False
    """begin with random weights."""
    stride: Annotated[Literal[1, 2, 4] | None, tyro.conf.arg(help_behavior_hint="(default: 1)")] = (
        None
    )
    """a map so many times finer: the last one or two stages keep their resolution."""
    fpn: Annotated[Literal["P2", "P3", "P4", "P5"] | None, tyro.conf.arg(help_behavior_hint="")] = (
        None
    )
    """pool this level of a feature pyramid, whose maps are 8, 4, 2 times finer, or as they were."""
    cutout: Annotated[
        float | None, tyro.conf.arg(metavar="MAX", help_behavior_hint="(default: none)")
    ] = None
    """hide a black square of a random size up to this share of the side, anywhere."""
    select: Annotated[
        Literal["accuracy", "boxes", "pixels"] | None,
        tyro.conf.arg(help_behavior_hint="(default: accuracy)"),
    ] = None
    """what is best on the validation images: answers, or maps against boxes (MaxBoxAccV2) or masks (PxAP)."""
    sar: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="(default: 0)")] = (
        None
    )
    """weight of SAR's loss, which keeps the attention together; the paper's is 0.01."""
    last_block: Annotated[Row | None, tyro.conf.arg(help_behavior_hint="")] = None
    """the last block of SAR, or of a row of its Table 1(b), for a ViT: fewer skip connections; E, F: and the loss."""
    keep_cls: Flag = False
    """leave a CLS token in the encoder though a pool takes its place: CoaT cannot do without."""
    epochs: Whole = None
    """passes over the images."""
    batch: Whole = None
    """images a step, over all processes."""
    lr: Annotated[
        tuple[float, ...], tyro.conf.arg(metavar="X...", help_behavior_hint="(default: see above)")
    ] = ()
    """the rate, or several with --freeze, of which validation chooses."""
    size: Annotated[
        int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the backbone's)")
    ] = None
    """pixels of a side."""
    seed: int = 0
    """of weights, order and augmentation."""
    workers: int = 0
    """processes that read images."""
    settings: Pairs = ()
    """others, such as optimizer=sgd clip=1 mixup=0.2 ema=0.999 amp=bf16 tensorboard=true."""

    def found_recipe(self) -> Recipe | None:
        from cenote.train.recipes import load_recipe

        return load_recipe(self.recipe) if self.recipe else None

    def given(self) -> list[str]:
        """Numbers that the user gave a value."""
        from cenote.train.choices import parse_options

        named = {
            "lr": self.lr or None,
            "cutout": self.cutout,
            "epochs": self.epochs,
            "batch": self.batch,
        }
        asked = [name for name, value in {**named, "sar": self.sar}.items() if value is not None]
        return [*asked, *parse_options(self.settings)]

    def choices(self) -> Choices:
        """Checked: a typo is told before the images are read."""
        from cenote.train.choices import Choices, given_only, parse_options
        from cenote.train.recipe_choices import choices_of
        from cenote.train.run_choices import choices_from_run
        from cenote.train.sar import row_settings

        given = {
            name: getattr(self, name)
            for name in ("epochs", "batch", "seed", "workers", "select", "sar")
        }
        chosen = {key: value for key, value in given.items() if value is not None} | parse_options(
            self.settings
        )
        chosen = row_settings(self.last_block, chosen)
        names = (
            "backbone",
            "pool",
            "tokens",
            "weights",
            "size",
            "stride",
            "fpn",
            "cutout",
            "freeze",
            "scratch",
        )
        asked: dict[str, Any] = {
            name: getattr(self, name) for name in (*names, "last_block", "keep_cls")
        }
        asked |= {
            "rates": self.lr,
            "pool_options": parse_options(self.pool_options),
            "settings": chosen,
        }
        recipe = self.found_recipe()
        made: Choices
        if recipe is not None:
            made = choices_of(recipe, **asked)
        elif self.weights is not None and self.weights.is_dir():
            made = choices_from_run(asked.pop("weights"), **asked)
        else:
            made = Choices(**given_only(asked))
        made.training()
        made.check()
        return made
