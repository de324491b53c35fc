"""A probe on cached features compared with running the frozen backbone in every epoch.

    python benchmarks/probe.py

Both train SimPool and a head on the same images in one process; an epoch of each is timed in turn,
best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from cenote.allocator import keep_memory
from cenote.backbones import create_backbone
from cenote.data.loading import load
from cenote.data.synthetic import world
from cenote.models.frozen import FrozenBackbone
from cenote.predict.feature_cache import FeatureBatches, FeatureCache, cached_features
from cenote.train.config import PROBE
from cenote.train.state import TrainState


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--backbone", default="lite0")
    parser.add_argument("--pool", default="simpool")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plain", action="store_true", help="return freed memory to the system")
    args = parser.parse_args()
    if not args.plain:
        keep_memory()  # as `cenote fit` does
    data = world("small", images=args.images, progress=False)
    frozen = FrozenBackbone(create_backbone(args.backbone, pretrained=True))
    torch.manual_seed(0)
    state = TrainState("probe", frozen.create_head(args.pool, len(data.classes)), PROBE)

    def learn(features: object, labels: torch.Tensor) -> None:
        F.cross_entropy(state.module.train()(features), labels).backward()
        state.step(1.0, None)

    def rerun(count: int) -> float:
        """Return the seconds of an epoch with the backbone, extrapolated from `count` images."""
        subset = data.select(range(min(count, len(data))))
        started = time.perf_counter()
        for batch in load(subset, frozen.backbone.preprocessing.transform(), PROBE.batch):
            with torch.no_grad():
                features = frozen.backbone(batch.images)
            learn(features, batch.labels)
        return (time.perf_counter() - started) * len(data) / len(subset)

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        cached = cached_features(frozen.backbone, data, cache=FeatureCache(Path(folder)))
        extraction = time.perf_counter() - started
        batches = FeatureBatches(cached, PROBE.batch, shuffle=True)

        def probe() -> float:
            started = time.perf_counter()
            for features, labels, _ in batches:
                learn(features, labels)
            return time.perf_counter() - started

        probe()  # fill the page cache
        times = [(probe(), rerun(512)) for _ in range(args.rounds)]
    epoch, rerun_epoch = (min(column) for column in zip(*times, strict=True))
    report = {
        "images": len(data),
        "backbone": args.backbone,
        "pool": args.pool,
        "threads": torch.get_num_threads(),
        "freed_memory": "given back" if args.plain else "kept",
        "features_once_seconds": round(extraction, 1),
        "probe_images_per_second": round(len(data) / epoch),
        "rerun_images_per_second": round(len(data) / rerun_epoch, 1),
        "ratio_of_an_epoch": round(rerun_epoch / epoch, 1),
        f"ratio_of_{PROBE.epochs}_epochs": round(
            PROBE.epochs * rerun_epoch / (extraction + PROBE.epochs * epoch), 1
        ),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
