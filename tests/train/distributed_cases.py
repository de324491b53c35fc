"""Small trainings that one process and two processes must end alike.

test_distributed.py calls them in the test process, and all of them together in one pair of processes:
python -m torch.distributed.run --nproc-per-node=2 -m tests.train.distributed_cases FOLDER CASE...

All of them train with SGD: a step of Adam is as large for a gradient that is nothing but rounding (a key's bias before
a softmax) as for any other, so its weights may not be compared. No model computes statistics of its batch. Where the
best epoch is saved there is only one: rounding must not choose.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cenote.backbones import create_backbone
from cenote.cli import main as cenote
from cenote.data import open_dataset
from cenote.data.transforms import train_transform
from cenote.evaluate.validators import LocalizationValidator
from cenote.models import create_model, save_model
from cenote.predict.distributed import processes, rank
from cenote.predict.feature_cache import FeatureCache, cached_features
from cenote.train.clip import train_clip
from cenote.train.config import OptimizationConfig
from cenote.train.configure import configure
from cenote.train.engine import Engine
from cenote.train.metric_run import train_metric
from cenote.train.self_supervised import train_without_labels
from cenote.train.tasks.supervised import Supervised
from tests.synthetic import discs, split_rectangles, squares
from tests.toy_models import narrow_resnet

from .test_metric import configured

SGD = {"optimizer": "sgd", "lr": 0.2, "weight_decay": 0.01}


def supervised(folder: Path, accumulate: int = 1) -> None:
    settings = OptimizationConfig(epochs=2, batch=6, accumulate=accumulate, clip=1.0, **SGD)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = create_model("test_vit", "simpool", 3, img_size=32)
    data = squares(
        31
    )  # 24 to train, 7 to validate: the two processes validate different numbers of images
    train, val = data.split("train"), data.split("val")
    with processes() as device:
        task = Supervised(model, train, val, settings, train_transform(32), device)
        Engine(task, settings, folder).run()
    if rank() == 0:
        save_model(model, folder)


def supervised_in_parts(folder: Path) -> None:
    supervised(folder, accumulate=3)


def dino(folder: Path) -> None:
    small = {"out": 32, "hidden": 16, "bottleneck": 8, "batch_norm": False}
    crops = {"size": 32, "local_size": 16, "local": 2}
    settings = {"epochs": 1, "batch": 6, "warmup": 0.0, "min_lr": 0.0, **SGD}
    config = configure("dino", backbone="test_vit", **crops, options=small, settings=settings)
    train_without_labels(squares(40), folder, config)


def metric(folder: Path) -> None:
    """Pairs, mixtures, prototypes and the memory are those of the whole batch."""
    options = {
        "zero_shot": 0.1,
        "metrix": ("feature", "input"),
        "xbm": 20,
        "validate": "last",
        "warm_up": 0.5,
    }
    train_metric(discs(), folder, configured(options, {**SGD, "lr": 0.02}))


def metric_short_epochs(folder: Path, lr: float = 0.02, epochs: int = 1) -> None:
    options = {
        "metrix": ("feature",),
        "validate": "classes",
        "epoch_steps": 2,
        "loss": "proxy-anchor",
    }
    settings = {**SGD, "epochs": epochs, "patience": 3, "lr": lr}
    train_metric(discs(), folder, configured(options, settings, pool="gap+max"))


def metric_early_end(folder: Path) -> None:
    """Without a learning rate no epoch is better than the first: patience ends the run after four."""
    metric_short_epochs(folder, lr=0.0, epochs=6)


def clip(folder: Path) -> None:
    settings = {"epochs": 1, "batch": 6, "warmup": 0.0, "optimizer": "sgd", "lr": 0.05}
    sizes = {"size": 32, "dim": 8, "width": 16, "layers": 1, "heads": 2}
    config = configure("clip", backbone="test_vit", scratch=True, **sizes, settings=settings)
    train_clip(squares(40), folder, config)


def located(folder: Path) -> None:
    val = split_rectangles(28).split(
        "val"
    )  # seven images: the two processes get different numbers of them
    model = narrow_resnet("gap", size=32, stride=4)
    with processes() as device:
        scores = [
            LocalizationValidator(val, by, batch=4)(model.to(device)) for by in ("boxes", "pixels")
        ]
        if rank() == 0:
            (folder / "scores.json").write_text(json.dumps(scores))


def extraction(folder: Path, fails: bool = False) -> None:
    """In a cache that the processes share, then in caches of their own."""
    torch.manual_seed(0)
    backbone, images = create_backbone("test_vit"), list[int]()

    def count(_: Any, inputs: tuple[Tensor]) -> None:
        images.append(len(inputs[0]))
        if fails and rank() == 1 and sum(images) > 1:
            raise ValueError("this process fails")

    backbone.register_forward_pre_hook(count)
    with processes():
        for name, cache in (("shared", "cache"), ("own", f"cache-{rank()}")):
            images.clear()
            dataset = open_dataset(folder.parent / "photos")
            features = cached_features(backbone, dataset, cache=FeatureCache(folder / cache))
            # The first image is empty: its features have the layout of all.
            result = {"images": sum(images[1:]), "rows": len(features), "bad": features.bad}
            (folder / f"{name}-{rank()}.json").write_text(json.dumps(result))


def failing_extraction(folder: Path) -> None:
    extraction(folder, fails=True)


def tournament(folder: Path) -> None:
    weights = folder.parent / "test_vit.pt"
    options = [
        "--backbone",
        "test_vit",
        "--weights",
        str(weights),
        "--pools",
        "gap",
        "simpool",
        "--seeds",
        "1",
    ]
    assert (
        cenote(
            [
                "tournament",
                "world/tiny",
                *options,
                "--epochs",
                "2",
                "--lr",
                "1e-3",
                "-o",
                str(folder),
            ]
        )
        == 0
    )


CASES: dict[str, Callable[[Path], None]] = {
    case.__name__: case
    for case in (
        supervised, supervised_in_parts, dino, metric, metric_short_epochs, metric_early_end, clip, located, tournament,
        extraction, failing_extraction,
    )
}  # fmt: skip


def train(name: str, folder: Path) -> Path:
    """Run one case in FOLDER/name and return that folder."""
    out = folder / name
    if name != "tournament":  # which creates it
        out.mkdir(parents=True, exist_ok=True)
    CASES[name](out)
    return out


if __name__ == "__main__":
    with processes():
        for case_name in sys.argv[2:]:
            train(case_name, Path(sys.argv[1]))
