"""What runs of `cenote metric` have learned, in pictures: docs/metric.md.

    python examples/metric/pictures.py RUN [RUN ...] DATA -o OUT

positivity-RUN.png   how often multi-similarity pulls a mixture of a positive and a negative, against λ (D Figure 2.2)
mu-RUN.png           MAP@R against the share mu of GSP, changed at evaluation alone (after 002 Figure 6)
histograms.png       which prototypes the unseen classes use, a column for each run with GSP (002 Figure 4)
prototypes-RUN.png   GSP's weights on unseen images, in the colour of the prototype that takes most (002 Figure 4)
collage.png          with --collage, where the pools look (002 Figure 3b)

and, printed, alignment, uniformity and utilization (D 2.24) of the unseen classes; of runs with GSP how well prototypes
of some of them foretell others (002 2.3); with --collage, the share of the maps on the tile of the class.
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
from cenote.backbones import Features
from cenote.data import Dataset, open_dataset
from cenote.data.class_splits import ClassSplits, class_names, class_splits
from cenote.data.loading import load as batches_of
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
CLASSES, EACH, BATCHES = 16, 4, 50  # of positivity: as a step of training has them
SHOWN = 8  # collages
SHEET = (4, 3)  # classes of unseen images on a page of prototypes, and images of each


class Seen(NamedTuple):
    labels: Tensor  # (N,)
    vectors: Tensor  # (N, D)
    histograms: Tensor  # (N, m), of GSP; else (N, 0)
    by_mu: dict[float, Tensor]  # of GSP: vectors (N, D) for each mu


@torch.inference_mode()
def look(model: PooledModel, data: Dataset, mus: Sequence[float] = ()) -> Seen:
    """The backbone runs once, whatever is asked of the pool behind it."""
    pool, labels, rows = model.pool, list[Tensor](), list[tuple[Tensor, ...]]()
    for batch in batches_of(data, model.backbone.preprocessing.transform(), 32):
        features = model.features(batch.images)
        found = [model.embed_features(features), torch.empty(len(batch.labels), 0)]
        if isinstance(pool, GSP):
            found[1] = pool.with_histogram(tokens_of(model, features))[1]
            own = pool.mu
            for pool.mu in mus:
                found.append(model.embed_features(features))
            pool.mu = own
        labels.append(batch.labels)
        rows.append(tuple(found))
    vectors, histograms, *others = (torch.cat(column) for column in zip(*rows, strict=True))
    return Seen(torch.cat(labels), vectors, histograms, dict(zip(mus, others, strict=False)))


def tokens_of(model: PooledModel, features: Features) -> Tensor:
    """What the pool is given, (B, N, D)."""
    if model.tokens == "patches" or features.cls is None:
        return features.tokens
    return torch.cat([features.cls[:, None], features.tokens], 1)


@torch.inference_mode()
def transports(model: PooledModel, data: Dataset) -> dict[int, np.ndarray]:
    """What each prototype receives from each cell of each image that can be read, (H, W, m)."""
    assert isinstance(model.pool, GSP)
    found = dict[int, np.ndarray]()
    for batch in batches_of(data, model.backbone.preprocessing.whole(), 32):
        features = model.features(batch.images)
        cells = model.pool.transport(tokens_of(model, features))[1][:, -features.tokens.shape[1] :]
        found.update(
            zip(batch.indices.tolist(), cells.unflatten(1, features.grid).numpy(), strict=True)
        )
    return found


def some_of_each(labels: np.ndarray) -> list[int]:
    """The first images of the first classes."""
    classes, each = SHEET
    return [
        int(k)
        for label in np.unique(labels)[:classes]
        for k in np.nonzero(labels == label)[0][:each]
    ]


def steps(labels: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Rows of batches as training draws them: some classes, some images of each."""
    of = {int(label): torch.nonzero(labels == label)[:, 0] for label in labels.unique()}
    found = []
    for _ in range(BATCHES):
        some = torch.randperm(len(of), generator=generator)[:CLASSES].tolist()
        rows = [list(of.values())[i] for i in some]
        found.append(
            torch.cat([own[torch.randperm(len(own), generator=generator)[:EACH]] for own in rows])
        )
    return found


def results(run: Path) -> dict[str, Any]:
    """Of a run of the fair protocol, those of the model that stands for all."""
    found = dict(json.loads((run / "results.json").read_text(encoding="utf-8")))
    return results(run / found["fold"]) if "fold" in found else found


def learned_from(run: Path, parts: ClassSplits) -> Dataset:
    """The images of the classes that trained, without those that chose the epoch; of another data set, refused."""
    told, data = results(run).get("classes"), parts.train
    if told is None:
        return data
    if told["test"] != class_names(parts.test) or not set(told["train"]) <= set(class_names(data)):
        raise SystemExit(
            f"{run} was trained and judged on other classes than those of {data.name}: name its own data"
        )
    return data.select(np.isin(data.labels, [data.classes.index(name) for name in told["train"]]))


def margins(run: Path) -> dict[str, float]:
    """beta, gamma and m that a run of multi-similarity was given; of another loss, the usual ones."""
    options = results(run)["options"]
    return dict(options["loss_options"]) if options["loss"] == "multi-similarity" else {}


def spread(trained: Seen, unseen: Seen, batches: list[Tensor], generator: torch.Generator) -> str:
    """Utilization falls if mixed embeddings reach where unseen classes lie."""
    x = torch.nn.functional.normalize(trained.vectors, dim=1)
    mixed = []
    for rows in batches:
        other = rows[torch.randperm(len(rows), generator=generator)]
        lam = torch.distributions.Beta(2.0, 2.0).sample((len(rows), 1))
        mixed.append(lam * x[rows] + (1 - lam) * x[other])
    clean, both = utilization(unseen.vectors, x), utilization(unseen.vectors, [x, *mixed])
    near = f"alignment {alignment(unseen.vectors, unseen.labels):.3f}, uniformity {uniformity(unseen.vectors):.3f}"
    return f"{near}, utilization {clean:.3f}, with mixed embeddings {both:.3f}"


def foretold(unseen: Seen) -> str:
    """What the histograms of some of the unseen classes tell of the others."""
    if len(unseen.labels.unique()) < 3:
        return "zero-shot prediction: too few classes"
    found = {name: f"{100 * share:.1f}%" for name, share in
             zero_shot_prediction(unseen.histograms, unseen.vectors, unseen.labels).items()}  # fmt: skip
    chance = f"by chance {found['chance_accuracy']}, {found['chance_map']}"
    several = (
        f"{name} {found[f'accuracy_{name}']}, MAP {found[f'map_{name}']}"
        for name in ("l2", "cosine")
    )
    return f"zero-shot prediction: {'; '.join(several)}; {chance}"


@torch.inference_mode()
def maps(model: PooledModel, data: Dataset) -> list[np.ndarray]:
    """In the order of the data."""
    batches = batches_of(data, model.backbone.preprocessing.whole(), 32)
    return [own for batch in batches for own in model.attend(batch.images).mean(1).numpy()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="+")
    parser.add_argument("data")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000, help="of each half, at most")
    parser.add_argument("--collage", action="store_true", help="DATA are collages of 2 x 2 tiles")
    given = parser.parse_args()
    if len({run.name for run in given.run}) < len(given.run):
        parser.error("two runs have one name: rename a folder")
    for run in given.run:
        if not (run / "results.json").is_file():
            parser.error(f"{run} is no run of cenote metric: it has no results.json")
    keep_memory()
    torch.manual_seed(0)
    parts = class_splits(open_dataset(given.data))

    def some(part: Dataset) -> Dataset:
        return part.select(np.sort(np.random.default_rng(0).permutation(len(part))[: given.images]))

    trained = {run: some(learned_from(run, parts)) for run in given.run}
    unseen = some(parts.test)
    given.out.mkdir(parents=True, exist_ok=True)
    models = {run: load(run).eval() for run in given.run}
    histograms: dict[str, tuple[Tensor, Tensor]] = {}
    for run, model in models.items():
        name, generator = run.name, torch.Generator().manual_seed(0)
        mus = [mu for mu in MUS if mu < 1 or not getattr(model.pool, "background", False)]
        learned, new = look(model, trained[run]), look(model, unseen, mus)
        batches = steps(learned.labels, generator)
        mixed = [
            mixtures_of(learned.vectors[r], learned.labels[r], generator=generator) for r in batches
        ]
        curve = positivity(mixed, margins(run))
        figure = draw_positivity(
            curve.lam, curve.empirical, curve.theoretical, f"Mixed embeddings of {name}"
        )
        figure.savefig(given.out / f"positivity-{name}.png")
        print(f"{name}: {spread(learned, new, batches, generator)}")
        if isinstance(model.pool, GSP):
            scores = {
                mu: 100 * retrieval_scores(z, new.labels)["map@r"] for mu, z in new.by_mu.items()
            }
            title = f"μ at evaluation, trained with {model.pool.mu:g}"
            draw_mu(scores, gap=scores.get(1.0), title=title).savefig(given.out / f"mu-{name}.png")
            histograms[name] = new.histograms, new.labels
            shown = some_of_each(np.asarray(unseen.labels))
            taken = transports(model, unseen.select(shown))
            told = (
                "each image, and what is left out of it in the colour of the prototype "
                "that takes most, with its share"
            )
            places, heading = [shown[k] for k in taken], told if model.pool.background else ""
            sheet = prototype_sheet(unseen, places, list(taken.values()), heading)
            sheet.save(given.out / f"prototypes-{name}.png")
            print(f"{name}: {foretold(new)}")
    if histograms:
        draw_histograms(histograms, unseen.classes).savefig(given.out / "histograms.png")
    able = {
        run.name: model
        for run, model in models.items()
        if model.pool is None or not model.pool.no_attention
    }
    if able and given.collage:
        seen = {name: maps(model, unseen) for name, model in able.items()}
        for name, own in seen.items():
            shares = [share_on_tile(unseen, place, a) for place, a in enumerate(own)]
            print(f"{name}: {100 * np.mean(shares):.1f}% of the maps on the tile of the class")
        places = np.random.default_rng(0).permutation(len(unseen))[:SHOWN].tolist()
        looks = {name: [own[place] for place in places] for name, own in seen.items()}
        collage_sheet(unseen, places, looks).save(given.out / "collage.png")
    print(
        f"wrote {', '.join(sorted(path.name for path in given.out.glob('*.png')))} in {given.out}"
    )


if __name__ == "__main__":
    main()
