"""The configuration of a run: one typed tree for the command line, YAML recipes and Python.

`RunConfig` holds a section for the model, its optimization, the augmentation, the preprocessing and
the options of the task. A recipe has the same sections. A field declared with `flag` is also an
option of the commands that it names: nothing else has to be changed to add one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from .optimizer import OptimizerName
from .schedules import ScheduleName
from .typed_fields import check_choices, check_minimum

Interval = tuple[float, float]
Options = dict[str, Any]  # values by name, such as those of a pool
Sections = dict[str, Options]  # changes of some sections of a RunConfig
ALL = "fit metric dino moco clip"  # the commands that train; `sweep` has the options of `fit`


def flag(default: Any, help: str, commands: str = ALL, **display: str) -> Any:
    """Declare a field that is an option of `commands`.

    `display` may have another `name`, a `metavar`, and the default that is `shown` by the help.
    """
    metadata = {"help": help, "commands": commands.split(), **display}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class ModelConfig:
    """The model: arguments of `cenote.create_model`, and the weights that training starts from."""

    backbone: str = flag(
        "lite0",
        "timm model, or lite0 (its weights come with Cenote); vit_micro and resnet_micro are small "
        "enough to train from scratch on two cores",
    )
    pool: str = flag("gap", "pool (cenote pools lists them), or cls")
    pool_options: Options = flag({}, "options of the pool, such as gamma=2")
    tokens: Literal["patches", "all", "cls"] = flag(
        "patches", "tokens to pool: patches, all (CLS and patches), or cls"
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
    depth: int = 0  # blocks to add, or to drop if negative
    combine: str = "max"
    head_norm: str | None = None
    embedding_dim: int | None = None
    embedding_norm: str | None = None
    backbone_options: Options = field(default_factory=dict)  # other arguments, for timm

    @property
    def from_scratch(self) -> bool:
        return not self.pretrained and self.weights is None and self.start is None


@dataclass(frozen=True)
class OptimizationConfig:
    """How a run trains. Learning rates and batches are those of all processes together."""

    epochs: int = flag(100, "passes over the images")
    batch: int = flag(256, "images in a step, over all processes")
    lr: float = flag(1e-3, "learning rate", "metric dino moco clip")
    optimizer: OptimizerName = "adamw"
    momentum: float = 0.9
    weight_decay: float = 0.05  # none on biases and other vectors
    layer_decay: float | None = None  # factor of the learning rate from a layer to the one before
    schedule: ScheduleName = "cosine"
    warmup: float = 0.0  # epochs in which the learning rate grows linearly from zero
    min_lr: float = 0.0  # where the cosine ends
    step_every: float = 30.0  # epochs between two steps of the learning rate
    step_factor: float = 0.1
    plateau: int = 5  # epochs without a better score before such a step, then as many again
    patience: int | None = None  # epochs without a better score that end the run
    power: float = 0.9  # of the polynomial
    clip: float | None = None  # largest norm of all gradients together
    accumulate: int = 1  # equal parts of a batch that are computed one after the other
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
    select: Literal["accuracy", "boxes", "pixels"] = flag(
        "accuracy",
        "validation metric that selects the epoch: accuracy, maps against boxes (MaxBoxAccV2), or "
        "maps against masks (PxAP)",
        "fit",
    )
    seed: int = flag(0, "seed of weights, order and augmentation")
    workers: int = flag(0, "processes that read images")
    most_bad: float = 0.05  # share of unreadable images that stops a run
    checkpoint_minutes: float = 5.0
    tensorboard: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        check_minimum(self, epochs=1, batch=1, accumulate=1, lr=0, warmup=0, plateau=1, patience=1)
        check_choices(self)
        if not 0 < self.step_factor <= 1:
            raise ValueError(f"step_factor must be above 0 and at most 1, got {self.step_factor}")
        if self.batch % self.accumulate:
            raise ValueError(
                f"a batch of {self.batch} images cannot be split into {self.accumulate} equal parts"
            )


# Settings that may change between the beginning of a run and its resumption.
RESUMABLE_CHANGES = ("workers", "checkpoint_minutes", "tensorboard", "wandb")


# Augmentations. `size` is that of the crops and of evaluation; None: the backbone's own.


@dataclass(frozen=True)
class PlainCropConfig:
    """A random resized crop, possibly mirrored: the default without a recipe."""

    size: int | None = None
    min_scale: float | None = flag(  # None: 0.35, or 0.08 from scratch
        None,
        "smallest share of an image that a training step sees; with --freeze it sees all of it",
        "clip",
        name="crop",
        shown="0.5",
    )
    cutout: float = flag(
        0.0,
        "hide a black square of a random size up to this share of the side",
        "fit",
        metavar="MAX",
    )


@dataclass(frozen=True)
class CropConfig:
    """Arguments of `cenote.train.augment.augmentation`."""

    size: int | None = None
    interpolation: str = "bicubic"
    scale: Interval = (0.08, 1.0)
    ratio: Interval = (3 / 4, 4 / 3)
    flip: float = 0.5
    policy: str | None = None
    erasing: float = 0.0


@dataclass(frozen=True)
class WsolConfig:
    """Arguments of `cenote.data.transforms.wsol_train_transform`."""

    size: int | None = None
    resize: int = 256
    flip: float = 0.5
    cutout: float = 0.0


@dataclass(frozen=True)
class MultiCropConfig:
    """DINO's large and small crops; MoCo takes the two large ones alone."""

    size: int | None = None
    local_size: int | None = flag(
        None, "side of a small crop in pixels", "dino", shown="3/7 of a large crop's"
    )
    local: int = flag(6, "small crops of an image, beside the two large ones", "dino")
    scale: Interval = (0.25, 1.0)
    local_scale: Interval = (0.05, 0.25)


Augmentation = PlainCropConfig | CropConfig | WsolConfig | MultiCropConfig
AUGMENTATIONS: dict[str, type[Any]] = {
    "plain": PlainCropConfig,
    "crop": CropConfig,
    "wsol": WsolConfig,
    "multicrop": MultiCropConfig,
}


@dataclass(frozen=True)
class PreprocessingConfig:
    """What evaluation does differently from the backbone's own preprocessing; None: nothing."""

    size: int | None = None
    crop: float | None = None
    interpolation: str | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None


# Options of the tasks.


@dataclass(frozen=True)
class SupervisedConfig:
    """Learning from labels."""

    rates: tuple[float, ...] = flag(
        (),
        "learning rate, or several with --freeze, of which validation selects one",
        "fit",
        name="lr",
        metavar="X...",
        shown="3e-4, with --freeze four, with --scratch 1e-3",
    )


@dataclass(frozen=True)
class DinoConfig:
    """Options of DINO; learning rate, epochs and batch are in `OptimizationConfig`."""

    out: int = 65536
    hidden: int = 2048
    bottleneck: int = 256
    batch_norm: bool = False  # in the head
    fixed_length: bool = True  # of the last layer's rows
    momentum: float = 0.996  # of the teacher, growing to 1 by a cosine
    student_t: float = 0.1
    teacher_t: float = 0.07
    warmup_t: float = 0.04  # first temperature of the teacher
    warmup_t_epochs: float = 30.0
    centre_momentum: float = 0.9
    end_weight_decay: float = 0.4  # reached from the run's weight_decay by a cosine
    clip: float | None = 3.0  # largest norm of each tensor's gradient
    freeze_last: float = 1.0  # epochs in which the head's last layer does not learn

    def __post_init__(self) -> None:
        check_minimum(self, "DINO's ", out=2, hidden=1, bottleneck=1)
        for name in ("student_t", "teacher_t", "warmup_t"):
            if not getattr(self, name) > 0:
                raise ValueError(f"DINO's {name} must be above 0, got {getattr(self, name)}")
        for name in ("momentum", "centre_momentum"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"DINO's {name} must be from 0 to 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class MocoConfig:
    """Options of MoCo-v3; learning rate, epochs and batch are in `OptimizationConfig`."""

    out: int = 256
    hidden: int = 4096
    momentum: float = 0.99  # of the teacher, growing to 1 by a cosine
    temperature: float = 0.2
    freeze_patches: bool = True  # a ViT's patch embedding stays random, for stability


@dataclass(frozen=True)
class MetricConfig:
    """Options of metric learning: loss, mixing, memory, batches and protocol."""

    dim: int = flag(512, "dimensions of an embedding", "metric")
    embedding_norm: Literal["layer"] | None = flag(
        None, "LayerNorm between pool and embedding", "metric"
    )
    loss: str = flag(
        "multi-similarity",
        "cenote losses lists them; pml/NAME is a loss of pytorch-metric-learning",
        "metric",
    )
    loss_options: Options = flag(
        {}, "options of the loss, such as beta=18 gamma=75 m=0.77", "metric"
    )
    metrix: tuple[Literal["input", "feature", "embed"], ...] = flag(
        (),
        "mix examples: input, feature or embed, or several, of which every step draws one; none "
        "turns off the mixing of a recipe",
        "metric",
        metavar="WHERE,...",
    )
    mix: tuple[Literal["pos-neg", "anc-neg", "pos-pos"], ...] = flag(
        ("pos-neg", "anc-neg"), "pairs to mix: pos-neg, anc-neg, pos-pos", "metric", metavar="PAIRS"
    )
    rival: Literal["i-mix", "mochi", "proxy-synthesis"] | None = flag(
        None, "another way to mix, instead of Metrix", "metric"
    )
    mix_options: Options = flag(
        {},
        "options of mixing: weight=0.4 alpha=2; of Metrix also hardest=20 (negatives of an anchor; "
        "3 for input), negatives=16 (partners, at random), chunk=64; of MoCHi pairs=neg-neg",
        "metric",
    )
    zero_shot: float = flag(0.0, "weight of GSP's zero-shot loss; the paper's is 0.1", "metric")
    zero_shot_options: Options = field(default_factory=dict)
    xbm: int = flag(0, "embeddings of earlier steps to compare with (cross-batch memory)", "metric")
    xbm_after: int = flag(0, "steps before the memory is used", "metric")
    images_per_class: int = flag(4, "images of each class in a step; 0: random batches", "metric")
    classes_per_batch: int | None = flag(
        None, "classes in a step, over all processes", "metric", shown="batch / images of each"
    )
    warm_up: float = flag(
        0.0, "epochs in which the backbone stays frozen", "metric", metavar="EPOCHS"
    )
    freeze_bn: bool = flag(
        False, "keep the statistics of the backbone's BatchNorm layers", "metric"
    )
    proxy_rate: float = flag(
        100.0,
        "factor of the learning rate of proxies and label embeddings",
        "metric",
        shown="100, with --freeze 10",
    )
    protocol: Literal["conventional", "fair"] = flag(
        "conventional",
        "conventional: one model; fair: four, each without a quarter of the classes, and their "
        "mean and concatenation",
        "metric",
    )
    repeats: int = flag(
        1,
        "trainings of each of the fair protocol's models; all collections of four are evaluated, "
        "81 for 3 trainings, with their deviation",
        "metric",
    )
    epoch_steps: int | None = flag(
        None,
        "steps of an epoch, after which the model is validated",
        "metric",
        shown="all images once",
    )
    validate: Literal["classes", "test", "last"] = flag(
        "classes",
        "what selects the epoch: a held-out quarter of the training classes, the test classes, or "
        "nothing: it is the last. The fair protocol always holds classes out",
        "metric",
    )
    score: Literal["map@r", "recall@1"] = flag("map@r", "metric that selects the epoch", "metric")
    without_match: Literal["exclude", "miss"] = flag(
        "exclude", "how queries without a match in the gallery count", "metric"
    )


@dataclass(frozen=True)
class ClipConfig:
    """Options of an image-text model."""

    texts: Literal["both", "captions", "templates"] = flag(
        "both",
        "captions: templates only where there is none; templates: class, domain and attributes",
        "clip",
    )
    dim: int = flag(128, "dimensions of an embedding", "clip")
    width: int = flag(128, "width of the text transformer", "clip")
    layers: int = flag(2, "layers of the text transformer", "clip")
    heads: int = flag(4, "attention heads of the text transformer", "clip")


TaskConfig = SupervisedConfig | DinoConfig | MocoConfig | MetricConfig | ClipConfig
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


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of a run on given images."""

    task: str = "supervised"
    model: ModelConfig = ModelConfig()
    train: OptimizationConfig = OptimizationConfig()
    options: Any = SupervisedConfig()  # a TaskConfig, of the type TASKS[task]
    augment: Augmentation = PlainCropConfig()
    preprocessing: PreprocessingConfig = PreprocessingConfig()
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


@dataclass(frozen=True)
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
        "other settings of the optimization, such as optimizer=sgd clip=1 ema=0.999 amp=bf16 "
        "tensorboard=true",
    )


# The defaults of each command, by the way its model starts.
PROBE = OptimizationConfig(epochs=30, batch=128, lr=1e-3, warmup=2)
PROBE_RATES = (3e-4, 1e-3, 3e-3, 1e-2)
FINETUNE = OptimizationConfig(epochs=20, batch=64, lr=3e-4, warmup=2, smoothing=0.1, clip=1.0)
METRIC = OptimizationConfig(epochs=20, batch=64, lr=1e-4, weight_decay=1e-4, warmup=1, clip=10.0)
# The papers' learning rates of DINO and MoCo are for 256 images in a step.
DINO = OptimizationConfig(epochs=100, batch=64, lr=5e-4, min_lr=1e-6, weight_decay=0.04, warmup=10)
DEFAULTS: dict[str, dict[str, OptimizationConfig]] = {
    "fit": {
        "": FINETUNE,
        "freeze": PROBE,
        "scratch": dataclasses.replace(FINETUNE, epochs=100, lr=1e-3, warmup=5),
    },
    "metric": {
        "": METRIC,
        "freeze": dataclasses.replace(METRIC, epochs=30, batch=128, lr=1e-3, clip=None),
        "scratch": dataclasses.replace(METRIC, epochs=100, lr=1e-3, weight_decay=0.05, warmup=5),
    },
    "dino": {"": DINO},
    "moco": {"": dataclasses.replace(DINO, lr=1.5e-4, min_lr=0.0, weight_decay=0.1)},
    "clip": {"": OptimizationConfig(epochs=60, batch=128, lr=1e-3, warmup=3, clip=1.0)},
}


def default_config(command: str, freeze: bool = False, scratch: bool = False) -> RunConfig:
    """Return what a command does without a recipe."""
    start = "freeze" if freeze else "scratch" if scratch else ""
    train = DEFAULTS[command].get(start, DEFAULTS[command][""])
    if command == "fit":
        return RunConfig(model=ModelConfig(pool="simpool", pretrained=not scratch), train=train)
    if command == "metric":  # frozen, the learning rate is ten times as large
        options = MetricConfig(proxy_rate=10.0 if freeze else 100.0)
        return RunConfig(command, ModelConfig(pool="gsp", pretrained=not scratch), train, options)
    if command == "clip":
        model = ModelConfig("resnet_micro", pretrained=not scratch)
        return RunConfig(command, model, train, ClipConfig(), PlainCropConfig(min_scale=0.5))
    model = ModelConfig("vit_micro", "simpool")
    return RunConfig(command, model, train, TASKS[command](), MultiCropConfig())


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
