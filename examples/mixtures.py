"""How mixed embeddings act on a metric: `python examples/mixtures.py RUN DATA [-o OUT]`

RUN is a folder of `cenote metric`, DATA its data set. mixtures.png shows how often multi-similarity
pulls a mixture of a positive and a negative towards the anchor, by the sign of the derivative and by
[Dissertation Eq. 2.23], against the factor of interpolation [Dissertation Fig. 2.2]. The utilization
[Dissertation Eq. 2.24] is printed without and with mixtures: lower if unseen images are nearer to
what training has seen.
"""

import argparse
from pathlib import Path

import torch

import cenote
from cenote.data import open_dataset
from cenote.data.splits import class_splits
from cenote.losses import mixtures_of, positivity
from cenote.metrics import utilization
from cenote.predict.embedding import embed_dataset
from cenote.report.plots import COLOURS, new_figure
from cenote.unit import unit

CLASSES, EACH, BATCHES = 16, 4, 50  # as a training step draws them

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("data")
parser.add_argument("-o", "--out", type=Path, default=Path("mixtures"))
args = parser.parse_args()

model, splits = cenote.load(args.run), class_splits(open_dataset(args.data))
trained, unseen = (embed_dataset(model, images) for images in (splits.train, splits.test))
x, y = unit(trained.vectors), trained.labels(splits.train)


def draw_batch() -> torch.Tensor:
    """Return rows of some images of some classes."""
    classes = y.unique()[torch.randperm(len(y.unique()))[:CLASSES]]
    images = [torch.nonzero(y == label)[:, 0] for label in classes]
    return torch.cat([rows[torch.randperm(len(rows))[:EACH]] for rows in images])


torch.manual_seed(0)
batches = [draw_batch() for _ in range(BATCHES)]
curve = positivity([mixtures_of(x[rows], y[rows]) for rows in batches])
mixed = [x]
for rows in batches:
    lam = torch.distributions.Beta(2.0, 2.0).sample((len(rows), 1))
    mixed.append(lam * x[rows] + (1 - lam) * x[rows[torch.randperm(len(rows))]])
clean, with_mixed = utilization(unseen.vectors, x), utilization(unseen.vectors, mixed)
print(f"utilization {clean:.3f}, with mixed embeddings {with_mixed:.3f}")

figure, axes = new_figure(8, 5, f"Mixed embeddings of {args.run}")
axes.plot(curve.lam, curve.empirical, "o-", color=COLOURS[0], label="sign of the derivative")
axes.plot(curve.lam, curve.theoretical, "--", color=COLOURS[1], label="Eq. 2.23")
axes.set_xlabel("interpolation factor λ")
axes.set_ylabel("P(positive)")
axes.legend()
args.out.mkdir(parents=True, exist_ok=True)
figure.savefig(args.out / "mixtures.png")
print(f"Look at {args.out / 'mixtures.png'}")
