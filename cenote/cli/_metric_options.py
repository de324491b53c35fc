"""What `cenote metric` asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ._arguments import parse_names
from ._fit_options import Flag, Pairs
from ._unlabelled import open_to

if TYPE_CHECKING:
    from cenote.train.metric_choices import MetricChoices

PLAIN = (  # options that are taken as they are
    *(
        "dim",
        "embedding_norm",
        "loss",
        "rival",
        "zero_shot",
        "xbm",
        "xbm_after",
        "classes_per_batch",
    ),
    *("images_per_class", "warm_up", "proxy_rate", "protocol", "repeats", "epoch_steps"),
    *("validate", "score", "without_match"),
)


@dataclass(frozen=True)
class MetricArguments:
    backbone: Annotated[str | None, open_to("lite0", "NAME")] = None
    """a timm model, or lite0, whose weights need no download; vit_micro and resnet_micro with --scratch are small."""
    pool: Annotated[str | None, open_to("gsp", "NAME")] = None
    """a pool (cenote pools lists them), or cls."""
    pool_options: Pairs = ()
    """of the pool, such as mu=0.3 prototypes=128."""
    tokens: Annotated[
        Literal["patches", "all", "cls"] | None, open_to("patches", "{patches,all,cls}")
    ] = None
    """what is pooled: patches, all of them with the CLS token, or cls alone."""
    recipe: Annotated[str | None, open_to("", "NAME")] = None
    """a paper's settings by name (cenote recipes lists them), or a YAML file; options given here win."""
    weights: Annotated[Path | None, open_to("", "FILE|RUN")] = None
    """a checkpoint of the backbone, or the folder of a run to begin with."""
    freeze: Flag = False
    """keep the backbone as it is: pool and embedding learn on features that are computed once."""
    scratch: Flag = False
    """begin with random weights."""
    dim: Annotated[int | None, open_to("512")] = None
    """numbers of an embedding."""
    embedding_norm: Annotated[Literal["layer"] | None, open_to("", "{layer}")] = None
    """a LayerNorm between pool and embedding."""
    loss: Annotated[str | None, open_to("multi-similarity", "NAME")] = None
    """cenote losses lists them; pml/NAME is one of pytorch-metric-learning."""
    loss_options: Pairs = ()
    """of the loss, such as beta=18 gamma=75 m=0.77."""
    metrix: Annotated[str | None, open_to("", "WHERE,...")] = None
    """mix examples too: input, feature or embed, or several, of which every step draws one; none, despite a recipe."""
    mix: Annotated[str | None, open_to("pos-neg,anc-neg", "PAIRS,...")] = None
    """which pairs are mixed: pos-neg, anc-neg, pos-pos."""
    rival: Annotated[
        Literal["i-mix", "mochi", "proxy-synthesis"] | None,
        open_to("", "{i-mix,mochi,proxy-synthesis}"),
    ] = None
    """another way to mix, in the place of Metrix."""
    mix_options: Pairs = ()
    """of mixing: weight=0.4 alpha=2; of Metrix also hardest=20 (negatives of an anchor; 3 for input), negatives=16
    (partners, at random), chunk=64; of MoCHi pairs=neg-neg."""
    zero_shot: Annotated[float | None, open_to("0", "X")] = None
    """weight of GSP's zero-shot loss; the paper's is 0.1."""
    xbm: Annotated[int | None, open_to("0")] = None
    """vectors of earlier steps to compare with too (cross-batch memory)."""
    xbm_after: Annotated[int | None, open_to("0")] = None
    """steps before that begins."""
    classes_per_batch: Annotated[int | None, open_to("batch / images of each")] = None
    """classes of a step, over all processes."""
    images_per_class: Annotated[int | None, open_to("4")] = None
    """images of each of them; 0: images come as they come."""
    warm_up: Annotated[float | None, open_to("0", "EPOCHS")] = None
    """so long the backbone waits for the embedding."""
    freeze_bn: Flag = False
    """the backbone's BatchNorm keeps its statistics."""
    proxy_rate: Annotated[float | None, open_to("100, with --freeze 10", "X")] = None
    """how many times as fast proxies and label embeddings learn."""
    protocol: Annotated[
        Literal["conventional", "fair"] | None, open_to("conventional", "{conventional,fair}")
    ] = None
    """conventional: one model; fair: four, each without a quarter of the classes: their mean, their concatenation."""
    repeats: Annotated[int | None, open_to("1")] = None
    """trainings of each of the four; all collections of four are judged, 81 of 3 trainings, and their deviation."""
    epoch_steps: Annotated[int | None, open_to("all images once", "STEPS")] = None
    """what counts as an epoch, after which the model is judged."""
    validate: Annotated[
        Literal["classes", "test", "last"] | None, open_to("classes", "{classes,test,last}")
    ] = None
    """what chooses the epoch: a quarter of the training classes, held out; the test classes; or it is the last.
    The fair protocol always holds classes out."""
    score: Annotated[Literal["map@r", "recall@1"] | None, open_to("map@r", "{map@r,recall@1}")] = (
        None
    )
    """the score that chooses it."""
    without_match: Annotated[
        Literal["exclude", "miss"] | None, open_to("exclude", "{exclude,miss}")
    ] = None
    """what becomes of queries that have nothing to find."""
    epochs: Annotated[int | None, open_to("20, with --freeze 30, with --scratch 100")] = None
    """passes over the images, or stretches of --epoch-steps."""
    batch: Annotated[int | None, open_to("64, with --freeze 128")] = None
    """images a step, over all processes."""
    lr: Annotated[float | None, open_to("1e-4, with --freeze or --scratch 1e-3", "X")] = None
    """the rate."""
    size: Annotated[int | None, open_to("the backbone's")] = None
    """pixels of a side."""
    seed: Annotated[int | None, open_to("0")] = None
    """of weights, order, crops and mixing."""
    workers: Annotated[int | None, open_to("0")] = None
    """processes that read images."""
    settings: Pairs = ()
    """others, such as optimizer=adam clip=1 ema=0.999 amp=bf16 tensorboard=true; patience=15 ends a run after so many
    epochs without a better score, schedule=plateau plateau=4 lowers its rate by step_factor=0.1."""

    def choices(self, data: str) -> MetricChoices:
        """Checked: a typo is told before the images are read. `data` as it was given: sop:FOLDER names a benchmark."""
        from cenote.losses.metrix import PAIRS, WHERE
        from cenote.train.choices import parse_options
        from cenote.train.metric_choices import metric_choices
        from cenote.train.recipes import load_recipe

        model: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("backbone", "pool", "tokens", "weights", "freeze", "scratch", "size")
        }
        model["pool_options"] = parse_options(self.pool_options)
        options: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        options |= {"freeze_bn": self.freeze_bn or None}
        options |= {"loss_options": parse_options(self.loss_options) or None}
        options |= {"mix_options": parse_options(self.mix_options) or None}
        if self.metrix is not None:
            options["metrix"] = (
                ()
                if self.metrix == "none"
                else tuple(parse_names(self.metrix, WHERE, "place to mix"))
            )
        options["mix"] = None if self.mix is None else parse_names(self.mix, PAIRS, "pairs to mix")
        settings = {
            name: getattr(self, name) for name in ("epochs", "batch", "lr", "seed", "workers")
        }
        made = metric_choices(
            load_recipe(self.recipe) if self.recipe else None,
            data.partition(":")[0],
            model,
            _given(options),
            _given(settings) | parse_options(self.settings),
        )
        made.check()
        return made


def _given(asked: dict[str, Any]) -> dict[str, Any]:
    """Without what was left open; a 0 was not."""
    return {name: value for name, value in asked.items() if value is not None}
