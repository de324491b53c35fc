"""Small versions of recipes: the same optimizer, schedule, augmentation and loss, in seconds."""

from dataclasses import asdict, replace

from cenote.train.config import MetricConfig, MultiCropConfig, Sections, WsolConfig
from cenote.train.recipes import Recipe

EPOCHS, BATCH, PARTS = 2, 16, 2
# The smallest network of each family. `depth` is create_model's: 12 + depth blocks.
SMALL_NETWORKS: Sections = {
    "resnet20": {},
    "resnet": {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]},
    "convnext": {"depths": [1, 1, 1, 1], "dims": [8, 8, 16, 16]},
    "vit": {"embed_dim": 24, "num_heads": 2, "depth": -10},
    "deit": {"embed_dim": 24, "num_heads": 2, "depth": -10},
    # These have one size each, and tests of their own.
    "pvt": {"backbone": "vit_micro", "depth": -4},
    "t2t": {"backbone": "vit_micro", "depth": -4},
    "cvt": {"backbone": "vit_micro", "depth": -4},
    "bn_inception": {"backbone": "resnet_micro"},
}
SMALL_HEADS = {"out": 64, "hidden": 32, "bottleneck": 16}  # of DINO and MoCo
EPOCH_OPTIONS = ("warmup_t_epochs", "freeze_last")  # of DINO, in epochs
SMALL_METRIC = {
    "dim": 16,
    "xbm": 24,
    "xbm_after": 2,
    "classes_per_batch": 3,
    "warm_up": 0.5,
    "epoch_steps": 4,
}


def scaled_down(recipe: Recipe, size: int = 64) -> Recipe:
    """Shrink sizes only: optimizer, schedule, augmentation and loss stay. Pretrained weights go.

    The learning rate of SGD and LARS shrinks with the batch; AdamW's stays.
    """
    config = recipe.config
    model, train = config.model, config.train
    family = next(key for key in SMALL_NETWORKS if model.backbone.startswith(key))
    sections: Sections = {
        "model": {**SMALL_NETWORKS[family], "pretrained": False},
        "augment": {"size": size},
        "options": {},
    }
    if family in ("vit", "deit"):
        sections["model"]["img_size"] = size
    if model.fpn:
        sections["model"]["fpn_dim"] = 16
    if isinstance(config.augment, WsolConfig):
        sections["augment"]["resize"] = round(size * 256 / 224)
    if isinstance(config.augment, MultiCropConfig):
        sections["augment"]["local_size"] = size // 2
    shrink = EPOCHS / train.epochs
    options = asdict(config.options)
    if config.task in ("dino", "moco"):
        sections["options"] = {k: v for k, v in SMALL_HEADS.items() if k in options}
        sections["options"] |= {k: options[k] * shrink for k in EPOCH_OPTIONS if k in options}
    if isinstance(config.options, MetricConfig):
        sections["options"] = {k: v for k, v in SMALL_METRIC.items() if options[k]}
        # A tiny data set has classes for one model, not for the fair protocol's four.
        sections["options"] |= {"protocol": "conventional", "repeats": 1}
        if model.pool == "gsp":
            sections["model"]["pool_options"] = {"prototypes": 8}
    sections["train"] = {
        "epochs": EPOCHS,
        "batch": BATCH,
        "accumulate": min(train.accumulate, PARTS),
        "warmup": train.warmup * shrink,
        "step_every": train.step_every * shrink,
        "patience": None,  # it would be longer than the run
    }
    if train.optimizer in ("sgd", "momentum", "lars"):
        sections["train"]["lr"] = train.lr * BATCH / train.batch
    changes = (*recipe.changes, sections)
    return replace(recipe, changes=changes, data="world/tiny", sets={}, start=None)
