"""Figures of runs of `cenote metric`: docs/metric.md.

    python examples/metric/pictures.py RUN [RUN ...] DATA -o OUT

positivity-RUN.png   how often multi-similarity treats a mixture as positive [Dissertation Fig. 2.2]
mu-RUN.png           MAP@R against GSP's mu, changed at evaluation only [GSP Fig. 6]
histograms.png       prototypes used by the unseen classes, one column per run with GSP [GSP Fig. 4]
prototypes-RUN.png   GSP's weights on unseen images, coloured by prototype [GSP Fig. 4]
collage.png          with --collage, where the pools look [GSP Fig. 3b]

Prints alignment, uniformity and utilization [Dissertation Eq. 2.24] of the unseen classes; for GSP
how well the prototypes of some unseen classes predict others [GSP Sec. 2.3 of the supplement]; with
--collage, the share of the maps on the tile of the class.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from figures import (
    collage_sheet,
    draw_histograms,
    draw_mu,
    draw_positivity,
    prototype_sheet,
    share_on_tile,
)
from torch import Tensor

from cenote.allocator import keep_memory
from cenote.data import Dataset, open_dataset
from cenote.data.loading import load as batches_of
from cenote.data.splits import ClassSplits, class_names, class_splits
from cenote.losses import mixtures_of, positivity
from cenote.metrics import (
    alignment,
    retrieval_scores,
    uniformity,
    utilization,
    zero_shot_prediction,
)
from cenote.models import PooledModel, load
from cenote.pooling.gsp import GSP

MUS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
CLASSES, EACH, BATCHES = 16, 4, 50  # of positivity: as in a training step
MAX_COLLAGES = 8
SHEET = (4, 3)  # classes and images per class on a page of prototypes


class Embeddings(NamedTuple):
    labels: Tensor  # (N,)
    vectors: Tensor  # (N, D)
    histograms: Tensor  # (N, m), of GSP; else (N, 0)
    by_mu: dict[float, Tensor]  # of GSP: vectors (N, D) for each mu


@torch.inference_mode()
def embed(model: PooledModel, data: Dataset, mus: Sequence[float] = ()) -> Embeddings:
    """Embed a data set, with GSP also for other values of mu; the backbone runs once."""
    pool, labels, rows = model.pool, list[Tensor](), list[tuple[Tensor, ...]]()
    for batch in batches_of(data, model.backbone.preprocessing.transform(), 32):
        features = model.features(batch.images)
        outputs = [model.embed_features(features), torch.empty(len(batch.labels), 0)]
        if isinstance(pool, GSP):
            outputs[1] = pool.with_histogram(model.pooled_tokens(features))[1]
            trained_mu = pool.mu
            for pool.mu in mus:
                outputs.append(model.embed_features(features))
            pool.mu = trained_mu
        labels.append(batch.labels)
        rows.append(tuple(outputs))
    vectors, histograms, *others = (torch.cat(column) for column in zip(*rows, strict=True))
    return Embeddings(torch.cat(labels), vectors, histograms, dict(zip(mus, others, strict=False)))


@torch.inference_mode()
def transports(model: PooledModel, data: Dataset) -> dict[int, np.ndarray]:
    """Return what each prototype receives from each cell (H, W, m) of each readable image."""
    assert isinstance(model.pool, GSP)
    results = dict[int, np.ndarray]()
    for batch in batches_of(data, model.backbone.preprocessing.whole(), 32):
        features = model.features(batch.images)
        cells = model.pool.transport(model.pooled_tokens(features))[1][
            :, -features.tokens.shape[1] :
        ]
        results.update(
            zip(batch.indices.tolist(), cells.unflatten(1, features.grid).numpy(), strict=True)
        )
    return results


def some_of_each(labels: np.ndarray) -> list[int]:
    """Return the positions of the first images of the first classes."""
    classes, each = SHEET
    return [
        int(k)
        for label in np.unique(labels)[:classes]
        for k in np.nonzero(labels == label)[0][:each]
    ]


def sample_batches(labels: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Return rows of batches as training draws them: some classes, some images of each."""
    rows_of = [torch.nonzero(labels == label)[:, 0] for label in labels.unique()]
    batches = []
    for _ in range(BATCHES):
        classes = torch.randperm(len(rows_of), generator=generator)[:CLASSES].tolist()
        rows = [rows_of[i] for i in classes]
        drawn = [r[torch.randperm(len(r), generator=generator)[:EACH]] for r in rows]
        batches.append(torch.cat(drawn))
    return batches


def read_results(run: Path) -> dict[str, Any]:
    """Read results.json; for the fair protocol, that of the representative fold."""
    results = dict(json.loads((run / "results.json").read_text(encoding="utf-8")))
    return read_results(run / results["fold"]) if "fold" in results else results


def learned_from(run: Path, parts: ClassSplits) -> Dataset:
    """Return the training images without validation classes; raise for another data set."""
    classes, data = read_results(run).get("classes"), parts.train
    if classes is None:
        return data
    if classes["test"] != class_names(parts.test) or not set(classes["train"]) <= set(
        class_names(data)
    ):
        raise SystemExit(
            f"{run} was trained on other classes than those of {data.name}: name its data set"
        )
    return data.select(
        np.isin(data.labels, [data.classes.index(name) for name in classes["train"]])
    )


def margins(run: Path) -> dict[str, float]:
    """Return beta, gamma and m of a run with multi-similarity; empty for other losses."""
    options = read_results(run)["options"]
    return dict(options["loss_options"]) if options["loss"] == "multi-similarity" else {}


def describe_spread(
    trained: Embeddings, unseen: Embeddings, batches: list[Tensor], generator: torch.Generator
) -> str:
    """Describe alignment, uniformity and utilization without and with mixed embeddings."""
    x = torch.nn.functional.normalize(trained.vectors, dim=1)
    mixed = []
    for rows in batches:
        other = rows[torch.randperm(len(rows), generator=generator)]
        lam = torch.distributions.Beta(2.0, 2.0).sample((len(rows), 1))
        mixed.append(lam * x[rows] + (1 - lam) * x[other])
    clean, with_mixed = utilization(unseen.vectors, x), utilization(unseen.vectors, [x, *mixed])
    near = f"alignment {alignment(unseen.vectors, unseen.labels):.3f}, uniformity {uniformity(unseen.vectors):.3f}"
    return f"{near}, utilization {clean:.3f}, with mixed embeddings {with_mixed:.3f}"


def zero_shot_scores(unseen: Embeddings) -> str:
    """Describe how well histograms of some unseen classes predict the others."""
    if len(unseen.labels.unique()) < 3:
        return "zero-shot prediction: too few classes"
    results = {name: f"{100 * share:.1f}%" for name, share in
             zero_shot_prediction(unseen.histograms, unseen.vectors, unseen.labels).items()}  # fmt: skip
    chance = f"by chance {results['chance_accuracy']}, {results['chance_map']}"
    scores = (
        f"{name} {results[f'accuracy_{name}']}, MAP {results[f'map_{name}']}"
        for name in ("l2", "cosine")
    )
    return f"zero-shot prediction: {'; '.join(scores)}; {chance}"


@torch.inference_mode()
def maps(model: PooledModel, data: Dataset) -> list[np.ndarray]:
    """Return the maps in the order of the data."""
    batches = batches_of(data, model.backbone.preprocessing.whole(), 32)
    return [a for batch in batches for a in model.attend(batch.images).mean(1).numpy()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="+")
    parser.add_argument("data")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000, help="of each half, at most")
    parser.add_argument("--collage", action="store_true", help="DATA are collages of 2 x 2 tiles")
    args = parser.parse_args()
    if len({run.name for run in args.run}) < len(args.run):
        parser.error("two runs have one name: rename a folder")
    for run in args.run:
        if not (run / "results.json").is_file():
            parser.error(f"{run} is not a run of cenote metric: it has no results.json")
    keep_memory()
    torch.manual_seed(0)
    parts = class_splits(open_dataset(args.data))

    def sample_of(part: Dataset) -> Dataset:
        return part.select(np.sort(np.random.default_rng(0).permutation(len(part))[: args.images]))

    trained = {run: sample_of(learned_from(run, parts)) for run in args.run}
    unseen = sample_of(parts.test)
    args.out.mkdir(parents=True, exist_ok=True)
    models = {run: load(run).eval() for run in args.run}
    histograms: dict[str, tuple[Tensor, Tensor]] = {}
    for run, model in models.items():
        name, generator = run.name, torch.Generator().manual_seed(0)
        mus = [mu for mu in MUS if mu < 1 or not getattr(model.pool, "background", False)]
        train_embeddings, test_embeddings = embed(model, trained[run]), embed(model, unseen, mus)
        batches = sample_batches(train_embeddings.labels, generator)
        mixed = [
            mixtures_of(
                train_embeddings.vectors[r], train_embeddings.labels[r], generator=generator
            )
            for r in batches
        ]
        curve = positivity(mixed, margins(run))
        figure = draw_positivity(
            curve.lam, curve.empirical, curve.theoretical, f"Mixed embeddings of {name}"
        )
        figure.savefig(args.out / f"positivity-{name}.png")
        print(f"{name}: {describe_spread(train_embeddings, test_embeddings, batches, generator)}")
        if isinstance(model.pool, GSP):
            scores = {
                mu: 100 * retrieval_scores(z, test_embeddings.labels)["map@r"]
                for mu, z in test_embeddings.by_mu.items()
            }
            title = f"μ at evaluation, trained with {model.pool.mu:g}"
            draw_mu(scores, gap=scores.get(1.0), title=title).savefig(args.out / f"mu-{name}.png")
            histograms[name] = test_embeddings.histograms, test_embeddings.labels
            positions = some_of_each(np.asarray(unseen.labels))
            transport_maps = transports(model, unseen.select(positions))
            heading = (
                "each image, and what is left out of it in the colour of the prototype "
                "that takes most, with its share"
            )
            places = [positions[k] for k in transport_maps]
            if not model.pool.background:
                heading = ""
            sheet = prototype_sheet(unseen, places, list(transport_maps.values()), heading)
            sheet.save(args.out / f"prototypes-{name}.png")
            print(f"{name}: {zero_shot_scores(test_embeddings)}")
    if histograms:
        draw_histograms(histograms, unseen.classes).savefig(args.out / "histograms.png")
    models_with_maps = {
        run.name: model
        for run, model in models.items()
        if model.pool is None or not model.pool.no_attention
    }
    if models_with_maps and args.collage:
        maps_by_model = {name: maps(model, unseen) for name, model in models_with_maps.items()}
        for name, pool_maps in maps_by_model.items():
            shares = [share_on_tile(unseen, place, a) for place, a in enumerate(pool_maps)]
            print(f"{name}: {100 * np.mean(shares):.1f}% of the maps on the tile of the class")
        places = np.random.default_rng(0).permutation(len(unseen))[:MAX_COLLAGES].tolist()
        shown_maps = {
            name: [pool_maps[place] for place in places]
            for name, pool_maps in maps_by_model.items()
        }
        collage_sheet(unseen, places, shown_maps).save(args.out / "collage.png")
    print(f"wrote {', '.join(sorted(path.name for path in args.out.glob('*.png')))} in {args.out}")


if __name__ == "__main__":
    main()
