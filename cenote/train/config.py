"""The configuration of a run: one typed tree for the command line, YAML recipes and Python.

`RunConfig` holds a section for the model, its optimization, the augmentation, the preprocessing and
the options of the task. A recipe has the same sections. A field declared with `flag` is also an
option of the commands that it names: nothing else has to be changed to add one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import Field, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from pydantic import Field as Bounds
from pydantic.dataclasses import dataclass

from ..data.processes import count_workers
from .callbacks import LoggerName
from .optimizer import OptimizerName, ScheduleName

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
Share = Annotated[float, Bounds(ge=0, le=1)]


def _check_interval(interval: tuple[float, float]) -> tuple[float, float]:
    if not 0 < interval[0] <= interval[1]:
        raise ValueError("must be MIN,MAX with 0 < MIN <= MAX")
    return interval


Interval = Annotated[tuple[float, float], AfterValidator(_check_interval)]
Options = dict[str, Any]  # values by name, such as those of a pool
Sections = dict[str, Options]  # changes of some sections of a RunConfig
ALL = "fit metric dino moco clip"  # the commands that train; `sweep` has the options of `fit`


def flag(default: Any, help: str, commands: str = ALL, **display: str) -> Any:
    """Declare a field that is an option of those `commands` that have its section.

    `display` may have another `name`, a `metavar`, and the default that is `shown` by the help.
    """
    metadata = {"help": help, "commands": commands.split(), **display}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The model: arguments of `cenote.create_model`, and the weights that training starts from."""

    backbone: str = flag(
        "lite0",
        "timm model, hf-hub:OWNER/NAME, hf:OWNER/NAME (transformers), or lite0 (its weights come "
        "with Cenote); vit_micro and resnet_micro are small enough to train from scratch on two cores",
    )
    pool: str = flag("gap", "pool (cenote pools lists them), cls, or own, the encoder's")
    pool_options: Options = flag({}, "options of the pool, such as gamma=2")
    tokens: Literal["patches", "all", "cls", "summary"] = flag(
        "patches",
        "tokens to pool: patches, all (CLS and patches), cls, or summary (CLS and mean of the "
        "patches of each of --layers)",
    )
    feature_layers: tuple[PositiveInt, ...] = flag(
        (),
        "blocks of a ViT, or stages, from 1, whose features are pooled together: tokens of the "
        "same place are concatenated, or see --tokens summary",
        "fit",
        name="layers",
        metavar="N,...",
        shown="the last",
    )
    weights: Path | None = flag(
        None,
        "checkpoint of the backbone, or (not for clip) the folder of a run, from which all weights "
        "but those of the head are taken",
        "fit metric clip",
        metavar="FILE|RUN",
    )
    start: Path | None = None  # run, or authors' checkpoint, of the whole model without its head
    pretrained: bool = False
    freeze: bool = flag(
        False,
        "keep the backbone's weights; what follows it learns on features that are computed once",
        "fit metric clip",
    )
    img_size: int | tuple[int, int] | None = None
    stride: Literal[1, 2, 4] = flag(
        1, "how many times finer the last map is: the last stages lose their stride", "fit clip"
    )
    no_dilation: bool = flag(
        False,
        "with --stride do not dilate the last stages, as published for localization",
        "fit",
    )
    fpn: Literal["P2", "P3", "P4", "P5"] | None = flag(
        None, "pool this level of a feature pyramid, whose maps are 8, 4, 2 or 1 times finer", "fit"
    )
    fpn_dim: int = 512
    last_block: Literal["sar", "A", "B", "C", "D", "E", "F"] | None = flag(
        None,
        "last block of a ViT with fewer skip connections: SAR's, or a row of its Table 1(b); E and "
        "F include SAR's loss",
        "fit dino moco",
    )
    keep_cls: bool = flag(
        False,
        "leave the CLS token in the encoder although a pool replaces it: CoaT needs it",
        "fit dino moco",
    )
    norm: str = "auto"
    dino_positions: bool = False
    depth: int = flag(
        0, "blocks to add to a ViT, or to drop from it if negative", "fit metric dino moco"
    )
    combine: Literal["max", "concat"] = flag(
        "max",
        "how the head uses several vectors of a pool: the largest of their logits for each class, or "
        "a projection of all in a row",
        "fit",
    )
    head_norm: str | None = None
    embedding_dim: int | None = None
    embedding_norm: str | None = None
    wsol: str | None = flag(
        None,
        "method of weakly supervised localization: has, acol, spg, adl, bae, ki or ivr; its "
        "map replaces the class activation map",
        "fit",
    )
    wsol_options: Options = flag({}, "options of the method, such as threshold=0.8", "fit")
    backbone_options: Options = field(default_factory=dict)  # other arguments, for timm

    @property
    def from_scratch(self) -> bool:
        return not self.pretrained and self.weights is None and self.start is None


@dataclass(frozen=True, config=STRICT)
class OptimizationConfig:
    """How a run trains. Learning rates and batches are those of all processes together."""

    epochs: PositiveInt = flag(100, "passes over the images")
    batch: PositiveInt = flag(256, "images in a step, over all processes")
    lr: NonNegativeFloat = flag(1e-3, "learning rate", "metric dino moco clip")
    pool_lr_factor: PositiveFloat = flag(
        1.0,
        "factor of the learning rate of the pool's matrices",
        "fit",
        shown="1, with --freeze 0.03 unless --tokens summary",
    )
    optimizer: OptimizerName = "adamw"
    momentum: float = 0.9
    weight_decay: float = 0.05  # none on biases and other vectors
    layer_decay: float | None = None  # factor of the learning rate from a layer to the one before
    schedule: ScheduleName = "cosine"
    warmup: NonNegativeFloat = 0.0  # epochs in which the learning rate grows linearly from zero
    min_lr: float = 0.0  # where the cosine ends
    step_every: float = 30.0  # epochs between two steps of the learning rate
    step_factor: Annotated[float, Bounds(gt=0, le=1)] = 0.1
    plateau: PositiveInt = 5  # epochs without a better score before such a step, then as many again
    patience: PositiveInt | None = None  # epochs without a better score that end the run
    power: float = 0.9  # of the polynomial
    clip: float | None = None  # largest norm of all gradients together
    accumulate: PositiveInt = 1  # equal parts of a batch that are computed one after the other
    amp: Literal["none", "bf16", "fp16"] = "none"
    ema: float | None = None  # decay of the moving average that is validated and saved
    smoothing: float = 0.0  # of the labels
    mixup: float = 0.0
    cutmix: float = 0.0
    sar: float = flag(
        0.0,
        "weight of SAR's loss, which keeps the attention in one piece; the paper's is 0.01",
        "fit dino moco",
    )
    sar_loss: Literal["entropy", "variation"] = "entropy"  # [SAR Eq. 9], or its rival [SAR Eq. 14]
    sar_schedule: Literal["constant", "cosine"] = "constant"  # cosine: 10 epochs of warm-up first
    drloc: NonNegativeFloat = flag(
        0.0,
        "weight of DRLoc's loss, which predicts the offset of two tokens from their features; the "
        "paper's is 0.1, or 0.5 for Swin",
        "fit",
    )
    drloc_pairs: PositiveInt = 64  # of tokens of an image
    select: Literal["accuracy", "boxes", "pixels"] = flag(
        "accuracy",
        "validation metric that selects the epoch: accuracy, maps against boxes (MaxBoxAccV2), or "
        "maps against masks (PxAP)",
        "fit",
    )
    keep_epochs: tuple[PositiveInt, ...] = flag(
        (),
        "also save the model after each of these epochs, in RUN/epoch-N",
        "fit metric dino moco",
        metavar="N,...",
    )
    seed: int = flag(0, "seed of weights, order and augmentation")
    workers: NonNegativeInt | Literal["auto"] = flag(
        "auto",
        "processes that read images; auto: as many as the device needs, none for the CPU",
        metavar="N|auto",
    )
    most_bad: float = 0.05  # share of unreadable images that stops a run
    checkpoint_minutes: float = 1.0
    log: tuple[LoggerName, ...] = flag(
        (), "also write the metrics to tensorboard, wandb, mlflow or trackio", metavar="NAME,..."
    )

    @property
    def readers(self) -> int:
        """The number of processes that read images, with "auto" resolved."""
        return count_workers(self.workers)

    def __post_init__(self) -> None:
        if self.batch % self.accumulate:
            raise ValueError(
                f"a batch of {self.batch} images cannot be split into {self.accumulate} equal parts"
            )


# Settings that may change between the beginning of a run and its resumption.
RESUMABLE_CHANGES = ("workers", "checkpoint_minutes", "log", "keep_epochs")


# Augmentations. `size` is that of the crops and of evaluation; None: the backbone's own.


@dataclass(frozen=True, config=STRICT)
class PlainCropConfig:
    """A random resized crop, possibly mirrored: the default without a recipe."""

    size: PositiveInt | None = None
    min_scale: Annotated[float, Bounds(gt=0, le=1)] | None = (
        flag(  # None: 0.35, or 0.08 from scratch
            None,
            "smallest share of an image that a training step sees; with --freeze it sees all of it",
            "clip",
            name="crop",
            shown="0.5",
        )
    )
    cutout: Share = flag(
        0.0,
        "hide a black square of a random size up to this share of the side",
        "fit",
        metavar="MAX",
    )


@dataclass(frozen=True, config=STRICT)
class CropConfig:
    """Arguments of `cenote.train.augment.augmentation`."""

    size: PositiveInt | None = None
    interpolation: Literal["bilinear", "bicubic", "random"] = "bicubic"
    scale: Interval = (0.08, 1.0)
    ratio: Interval = (3 / 4, 4 / 3)
    flip: float = 0.5
    policy: str | None = None
    erasing: float = 0.0


@dataclass(frozen=True, config=STRICT)
class WsolConfig:
    """Arguments of `cenote.data.transforms.wsol_train_transform`."""

    size: PositiveInt | None = None
    resize: int = 256
    flip: float = 0.5
    cutout: Share = 0.0


@dataclass(frozen=True, config=STRICT)
class MultiCropConfig:
    """DINO's large and small crops; MoCo takes the two large ones alone."""

    size: PositiveInt | None = None
    local_size: int | None = flag(
        None, "side of a small crop in pixels", "dino", shown="3/7 of a large crop's"
    )
    local: int = flag(6, "small crops of an image, beside the two large ones", "dino")
    scale: Interval = flag(
        (0.25, 1.0),
        "smallest and largest share of an image that a large crop shows",
        "dino moco",
        name="crop_scale",
        metavar="MIN,MAX",
    )
    local_scale: Interval = flag(
        (0.05, 0.25),
        "smallest and largest share of an image that a small crop shows",
        "dino",
        metavar="MIN,MAX",
    )


MULTI_CROPS = {"dino": MultiCropConfig(), "moco": MultiCropConfig(scale=(0.08, 1.0))}  # published
Augmentation = PlainCropConfig | CropConfig | WsolConfig | MultiCropConfig
AUGMENTATIONS: dict[str, type[Any]] = {
    "crop": CropConfig,
    "wsol": WsolConfig,
    "multicrop": MultiCropConfig,
}


@dataclass(frozen=True, config=STRICT)
class PreprocessingConfig:
    """What evaluation does differently from the backbone's own preprocessing; None: nothing."""

    size: PositiveInt | None = None
    crop: float | None = None
    interpolation: str | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None


# Options of the tasks.


@dataclass(frozen=True, config=STRICT)
class SupervisedConfig:
    """Learning from labels."""

    rates: tuple[NonNegativeFloat, ...] = flag(
        (),
        "learning rate, or several with --freeze, of which validation selects one",
        name="lr",
        metavar="X...",
        shown="3e-4, with --freeze four, with --scratch 1e-3",
    )


@dataclass(frozen=True, config=STRICT)
class DinoConfig:
    """Options of DINO; learning rate, epochs and batch are in `OptimizationConfig`."""

    out: Annotated[int, Bounds(ge=2)] = 65536
    hidden: PositiveInt = 2048
    bottleneck: PositiveInt = 256
    batch_norm: bool = False  # in the head
    fixed_length: bool = True  # of the last layer's rows
    momentum: Share = 0.996  # of the teacher, growing to 1 by a cosine
    student_t: PositiveFloat = 0.1
    teacher_t: PositiveFloat = 0.07
    warmup_t: PositiveFloat = 0.04  # first temperature of the teacher
    warmup_t_epochs: float = 30.0
    centre_momentum: Share = 0.9
    end_weight_decay: float = 0.4  # reached from the run's weight_decay by a cosine
    clip: float | None = 3.0  # largest norm of each tensor's gradient
    freeze_last: float = 1.0  # epochs in which the head's last layer does not learn


@dataclass(frozen=True, config=STRICT)
class MocoConfig:
    """Options of MoCo-v3; learning rate, epochs and batch are in `OptimizationConfig`."""

    out: int = 256
    hidden: int = 4096
    momentum: float = 0.99  # of the teacher, growing to 1 by a cosine
    temperature: float = 0.2
    freeze_patches: bool = True  # a ViT's patch embedding stays random, for stability


@dataclass(frozen=True, config=STRICT)
class MetricConfig:
    """Options of metric learning: loss, mixing, memory, batches and protocol."""

    dim: PositiveInt = flag(512, "dimensions of an embedding")
    embedding_norm: Literal["layer"] | None = flag(None, "LayerNorm between pool and embedding")
    loss: str = flag(
        "multi-similarity",
        "cenote losses lists them; pml/NAME is a loss of pytorch-metric-learning",
    )
    loss_options: Options = flag({}, "options of the loss, such as beta=18 gamma=75 m=0.77")
    miner: str | None = flag(
        None,
        "miner of pytorch-metric-learning that selects the pairs or triplets of a pml/NAME loss, such "
        "as MultiSimilarityMiner, DistanceWeightedMiner or TripletMarginMiner",
    )
    miner_options: Options = flag({}, "options of the miner, such as type_of_triplets=semihard")
    metrix: tuple[Literal["input", "feature", "embed"], ...] = flag(
        (),
        "mix examples: input, feature or embed, or several, of which every step draws one; none "
        "turns off the mixing of a recipe",
        metavar="WHERE,...",
    )
    mix: tuple[Literal["pos-neg", "anc-neg", "pos-pos"], ...] = flag(
        ("pos-neg", "anc-neg"), "pairs to mix: pos-neg, anc-neg, pos-pos", metavar="PAIRS"
    )
    rival: Literal["i-mix", "mochi", "proxy-synthesis"] | None = flag(
        None, "another way to mix, instead of Metrix"
    )
    mix_options: Options = flag(
        {},
        "options of mixing: weight=0.4 alpha=2; of Metrix also hardest=20 (negatives of an anchor), "
        "hardest_input=3 (where images are mixed), negatives=16 (partners, at random), chunk=64; of "
        "MoCHi pairs=neg-neg",
    )
    zero_shot: float = flag(0.0, "weight of GSP's zero-shot loss; the paper's is 0.1")
    zero_shot_options: Options = field(default_factory=dict)
    xbm: NonNegativeInt = flag(
        0, "embeddings of earlier steps to compare with (cross-batch memory)"
    )
    xbm_after: NonNegativeInt = flag(0, "steps before the memory is used")
    learners: NonNegativeInt = flag(
        0, "slices of the embedding, each of which learns from a cluster of the images (D&C)"
    )
    recluster: PositiveInt = flag(2, "epochs after which D&C clusters the images again")
    joint_epochs: NonNegativeInt = flag(
        0, "last epochs in which D&C trains the whole embedding with all images"
    )
    images_per_class: NonNegativeInt = flag(4, "images of each class in a step; 0: random batches")
    classes_per_batch: Annotated[int, Bounds(ge=2)] | None = flag(
        None, "classes in a step, over all processes", shown="batch / images of each"
    )
    warm_up: NonNegativeFloat = flag(
        0.0, "epochs in which the backbone stays frozen", metavar="EPOCHS"
    )
    freeze_bn: bool = flag(False, "keep the statistics of the backbone's BatchNorm layers")
    proxy_rate: PositiveFloat = flag(
        100.0,
        "factor of the learning rate of proxies and label embeddings",
        shown="100, with --freeze 10",
    )
    protocol: Literal["conventional", "fair"] = flag(
        "conventional",
        "conventional: one model; fair: four, each without a quarter of the classes, and their "
        "mean and concatenation",
    )
    repeats: Annotated[int, Bounds(ge=1, le=5)] = flag(
        1,
        "trainings of each of the fair protocol's models; all collections of four are evaluated, "
        "81 for 3 trainings, with their deviation",
    )
    epoch_steps: PositiveInt | None = flag(
        None,
        "steps of an epoch, after which the model is validated",
        shown="all images once",
    )
    test: Literal["classes", "images"] = flag(
        "classes",
        "what is tested: classes that are not trained, or the test images of all classes, with "
        "--validate test or last",
    )
    validate: Literal["classes", "fifth", "test", "last"] = flag(
        "classes",
        "what selects the epoch: a held-out quarter of the training classes, or a fifth, the test "
        "classes, or nothing: it is the last. The fair protocol always holds classes out",
    )
    score: Literal["map@r", "recall@1"] = flag("map@r", "metric that selects the epoch")
    without_match: Literal["exclude", "miss"] = flag(
        "exclude", "how queries without a match in the gallery count"
    )


@dataclass(frozen=True, config=STRICT)
class ClipConfig:
    """Options of an image-text model."""

    texts: Literal["both", "captions", "templates"] = flag(
        "both",
        "captions: templates only where there is none; templates: class, domain and attributes",
    )
    dim: PositiveInt = flag(128, "dimensions of an embedding")
    width: PositiveInt = flag(128, "width of the text transformer")
    layers: PositiveInt = flag(2, "layers of the text transformer")
    heads: PositiveInt = flag(4, "attention heads of the text transformer")


# "jsd": three views of an image; "head": everything but the head is frozen
TASKS: dict[str, type[Any]] = {
    "supervised": SupervisedConfig,
    "jsd": SupervisedConfig,
    "head": SupervisedConfig,
    "dino": DinoConfig,
    "moco": MocoConfig,
    "metric": MetricConfig,
    "clip": ClipConfig,
}


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of a run on given images."""

    task: str = "supervised"
    model: ModelConfig = field(default_factory=ModelConfig)
    train: OptimizationConfig = field(default_factory=OptimizationConfig)
    options: Any = field(default_factory=SupervisedConfig)  # of the type TASKS[task]
    augment: Augmentation = field(default_factory=PlainCropConfig)
    preprocessing: PreprocessingConfig = field(default_factory=PreprocessingConfig)
    explicit_options: frozenset[str] = frozenset()  # those of `options` that are not defaults

    @property
    def command(self) -> str:
        """The command that runs it."""
        return "fit" if TASKS[self.task] is SupervisedConfig else self.task

    def identity(self) -> Options:
        """Everything that a resumed run must share with its beginning, except `train`."""
        sections = dataclasses.asdict(self)
        sections["options"].pop("rates", None)  # they name the models that are trained side by side
        for name in ("weights", "start"):
            sections["model"][name] = str(sections["model"][name])
        return {k: v for k, v in sections.items() if k not in ("train", "explicit_options")}


@dataclasses.dataclass(frozen=True)
class Shortcuts:
    """Options of the commands that stand for several fields, or for a section of the tree."""

    recipe: str | None = flag(
        None,
        "a paper's settings by name (cenote recipes lists them), or a YAML file; options on the "
        "command line override it",
        "fit metric dino moco",
    )
    scratch: bool = flag(False, "start from random weights", "fit metric clip")
    size: int | None = flag(None, "side of an image in pixels", shown="the backbone's")
    options: Options = flag(
        {}, "options of the method, such as out=4096 momentum=0.99", "dino moco"
    )
    settings: Options = flag(
        {},
        "other settings of the optimization, such as optimizer=sgd clip=1 ema=0.999 amp=bf16",
    )


# The defaults of each command, by the way its model starts.
PROBE = OptimizationConfig(epochs=30, batch=128, lr=1e-3, pool_lr_factor=0.03, warmup=2)
PROBE_RATES = (3e-4, 1e-3, 3e-3, 1e-2)
FINETUNE = OptimizationConfig(epochs=20, batch=64, lr=3e-4, warmup=2, smoothing=0.1, clip=1.0)
METRIC = OptimizationConfig(epochs=20, batch=64, lr=1e-4, weight_decay=1e-4, warmup=1, clip=10.0)
# The papers' learning rates of DINO and MoCo are for 256 images in a step.
DINO = OptimizationConfig(epochs=100, batch=64, lr=5e-4, min_lr=1e-6, weight_decay=0.04, warmup=10)
DEFAULTS: dict[str, dict[str, OptimizationConfig]] = {
    "fit": {
        "": FINETUNE,
        "freeze": PROBE,
        "scratch": replace(FINETUNE, epochs=100, lr=1e-3, warmup=5),
    },
    "metric": {
        "": METRIC,
        "freeze": replace(METRIC, epochs=30, batch=128, lr=1e-3, clip=None),
        "scratch": replace(METRIC, epochs=100, lr=1e-3, weight_decay=0.05, warmup=5),
    },
    "dino": {"": DINO},
    "moco": {"": replace(DINO, lr=1.5e-4, min_lr=0.0, weight_decay=0.1)},
    "clip": {"": OptimizationConfig(epochs=60, batch=128, lr=1e-3, warmup=3, clip=1.0)},
}


def default_config(command: str, freeze: bool = False, scratch: bool = False) -> RunConfig:
    """Return what a command does without a recipe."""
    starts = {"freeze": freeze, "scratch": scratch, "": True}
    train = next(DEFAULTS[command][s] for s in starts if starts[s] and s in DEFAULTS[command])
    if command == "fit":
        return RunConfig(model=ModelConfig(pool="simpool", pretrained=not scratch), train=train)
    if command == "metric":  # frozen, the learning rate is ten times as large
        options = MetricConfig(proxy_rate=10.0 if freeze else 100.0)
        return RunConfig(command, ModelConfig(pool="gsp", pretrained=not scratch), train, options)
    if command == "clip":
        model = ModelConfig("resnet_micro", pretrained=not scratch)
        return RunConfig(command, model, train, ClipConfig(), PlainCropConfig(min_scale=0.5))
    model = ModelConfig("vit_micro", "simpool")
    return RunConfig(command, model, train, TASKS[command](), MULTI_CROPS[command])


def flags_of(command: str) -> Iterator[tuple[str, str, Field[Any], Any]]:
    """Yield name, section, field and type of every option that a command has."""
    sections: dict[str, type[Any]] = {
        "model": ModelConfig,
        "options": type(default_config(command).options),
        "augment": type(default_config(command).augment),
        "train": OptimizationConfig,
        "": Shortcuts,
    }
    for section, kind in sections.items():
        hints = get_type_hints(kind)
        for item in dataclasses.fields(kind):
            if command in item.metadata.get("commands", ()):
                yield item.metadata.get("name", item.name), section, item, hints[item.name]
