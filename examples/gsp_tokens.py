"""GAP and GSP on synthetic tokens [GSP Sec. 5.1]: `python examples/gsp_tokens.py -o out`

16 classes of 4 tokens each, and 4 background tokens that all classes share. A sample has 50 tokens;
the share of background is drawn from N(0.5, 0.1). The tokens themselves are trained, in the plane
and within 0.3 of its axes, so that pooled samples of a class come close to each other. Prints MAP@R,
the share of samples in the convex hull of another class and the weight of the background over
several seeds; draws the hulls of the first seed.

From the paper: Adam, batches of 16 x 4, no normalisation, early stopping after 30 epochs without a
better MAP@R. Not given in the paper, chosen here: the plane, a contrastive loss of distances with
margin 0.2, epochs of 25 steps, eps and the number of prototypes. Costs in this small square are a
third of those in the unit ball, hence eps is three times 20. The learning rate is ten times the
paper's 1e-4, for a tenth of the steps; `--rate 1e-4 --epochs 600` uses the paper's.
"""

import argparse
import json
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.spatial import ConvexHull
from torch import Tensor, nn

from cenote.data import write_atomically
from cenote.metrics import retrieval_scores
from cenote.pooling import create_pool

CLASSES, OWN, BACKGROUND, TOKENS = 16, 4, 4, 50
RANGE, MARGIN, EPOCH, PATIENCE = 0.3, 0.2, 25, 30
POOLS = {"GAP": ("gap", {}), "GSP": ("gsp", {"prototypes": 16, "mu": 0.3, "eps": 60.0})}
# The class of each token, -1 for background.
OWNERS = torch.cat([torch.arange(CLASSES).repeat_interleave(OWN), torch.full((BACKGROUND,), -1)])


class Trained(NamedTuple):
    """A trained pool on new samples."""

    scores: dict[str, float]
    samples: np.ndarray  # (N, 2) pooled vectors
    labels: np.ndarray  # (N,)
    tokens: np.ndarray  # (T, 2)


def sample(each: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw tokens (N, 50) and labels (N,), `each` samples of every class."""
    labels = torch.arange(CLASSES).repeat(each)
    share = (0.5 + 0.1 * torch.randn(len(labels), 1, generator=generator)).clamp(0, 1)
    own = labels[:, None] * OWN + torch.randint(OWN, (len(labels), TOKENS), generator=generator)
    shared = CLASSES * OWN + torch.randint(BACKGROUND, own.shape, generator=generator)
    return torch.where(torch.arange(TOKENS) < (share * TOKENS).round(), shared, own), labels


def contrastive(u: Tensor, labels: Tensor) -> Tensor:
    """Compute the contrastive loss of distances, averaged over its non-zero terms."""
    distances = torch.cdist(u, u)
    same = labels[:, None] == labels
    pulled = distances[same & ~torch.eye(len(u), dtype=torch.bool)]
    pushed = (MARGIN - distances[~same]).relu()
    return pulled.mean() + pushed.sum() / (pushed > 0).sum().clamp_min(1)


def train(name: str, seed: int, epochs: int, lr: float) -> Trained:
    torch.manual_seed(seed)
    kind, options = POOLS[name]
    tokens = nn.Parameter((2 * torch.rand(len(OWNERS), 2) - 1) * RANGE)
    pool = create_pool(kind, dim=2, **options)
    train_rng = torch.Generator().manual_seed(seed)
    test_rng = torch.Generator().manual_seed(1000 + seed)
    if name == "GSP":
        pool.fit(tokens[None])
    optimizer = torch.optim.Adam([tokens, *pool.parameters()], lr)
    val, labels = sample(16, test_rng)
    best, best_epoch, best_state = -1.0, 0, (tokens.detach().clone(), pool.state_dict())
    for epoch in range(1, epochs + 1):
        for _ in range(EPOCH):
            ids, y = sample(4, train_rng)
            loss = contrastive(pool(tokens[ids]), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for parameter in (tokens, *pool.parameters()):
                    parameter.clamp_(-RANGE, RANGE)
        with torch.no_grad():
            score = retrieval_scores(pool(tokens[val]), labels, distance="euclidean")["map@r"]
        if score > best:
            state = {key: value.clone() for key, value in pool.state_dict().items()}
            best, best_epoch, best_state = score, epoch, (tokens.detach().clone(), state)
        if epoch - best_epoch >= PATIENCE:
            break
    pool.load_state_dict(best_state[1])
    return evaluate(pool, best_state[0], test_rng)


@torch.no_grad()
def evaluate(pool: nn.Module, tokens: Tensor, generator: torch.Generator) -> Trained:
    ids, labels = sample(40, generator)
    vectors = pool(tokens[ids])  # (N, 2)
    weights = torch.full(ids.shape, 1 / TOKENS)
    if pool.name == "gsp":
        weights = pool.attend(tokens[ids])[1].squeeze(1)  # (N, 50)
    scores = {
        "map@r": 100 * retrieval_scores(vectors, labels, distance="euclidean")["map@r"],
        "in another hull": 100 * share_in_other_hulls(vectors.double().numpy(), labels.numpy()),
        "background weight": 100 * float((weights * (OWNERS[ids] < 0)).sum(1).mean()),
    }
    return Trained(scores, vectors.numpy(), labels.numpy(), tokens.numpy())


def share_in_other_hulls(points: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of samples inside the convex hull of another class."""
    inside = np.zeros(len(points), bool)
    for label in np.unique(labels):
        planes = ConvexHull(points[labels == label], qhull_options="QJ").equations  # (F, 3)
        inside |= (labels != label) & (points @ planes[:, :2].T + planes[:, 2] <= 0).all(1)
    return float(inside.mean())


def draw_hulls(panels: dict[str, Trained]) -> Figure:
    """Draw convex hulls of the classes, their tokens and the background tokens [GSP Fig. 3a]."""
    figure = Figure(figsize=(6.4 * len(panels), 7.4), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)
    colours, owners = matplotlib.colormaps["tab20"], OWNERS.numpy()
    for axes, (name, trained) in zip(grid[0], panels.items(), strict=True):
        for label in range(CLASSES):
            samples, colour = trained.samples[trained.labels == label], colours(label)
            corners = samples[ConvexHull(samples, qhull_options="QJ").vertices]
            axes.fill(*corners.T, color=colour, alpha=0.35)
            axes.plot(*samples.T, ".", color=colour, markersize=2.5)
            axes.plot(*trained.tokens[owners == label].T, "o", color=colour, fillstyle="none")
        axes.plot(*trained.tokens[owners < 0].T, "x", color="black", markersize=9)
        map_at_r, overlap, _ = trained.scores.values()
        axes.set_title(f"{name}: MAP@R {map_at_r:.1f}, {overlap:.0f}% in another hull", loc="left")
        axes.set_aspect("equal")
    figure.supxlabel("areas: hulls of classes · rings: their tokens · ×: background tokens")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60, help="at most")
    parser.add_argument("--rate", type=float, default=1e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the arrays are small
    seeds = range(args.seeds)
    runs = {name: [train(name, seed, args.epochs, args.rate) for seed in seeds] for name in POOLS}
    results = {name: [trained.scores for trained in of_pool] for name, of_pool in runs.items()}
    for name, scores in results.items():
        for key in scores[0]:
            values = [row[key] for row in scores]
            deviation = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            print(f"{name:4} {key:18} {mean(values):.1f}{deviation}")
    with write_atomically(args.out / "tokens.json") as path:
        path.write_text(json.dumps(results, indent=1))
    with write_atomically(args.out / "tokens.png") as path:
        draw_hulls({name: of_pool[0] for name, of_pool in runs.items()}).savefig(path, dpi=110)
    print(f"{args.out / 'tokens.png'}, {args.out / 'tokens.json'}")


if __name__ == "__main__":
    main()
