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
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor, nn

from cenote.data import write_atomically
from cenote.metrics import retrieval_scores
from cenote.pooling import create_pool

CLASSES, OWN, BACKGROUND, TOKENS = 16, 4, 4, 50
RANGE, MARGIN, EPOCH, PATIENCE = 0.3, 0.2, 25, 30
POOLS = {"GAP": ("gap", {}), "GSP": ("gsp", {"prototypes": 16, "mu": 0.3, "eps": 60.0})}
BACKGROUND_COLOUR, TEXT_COLOUR, NOTE_COLOUR = "#faf9f6", "#1c1c1e", "#787672"
OWNERS = torch.cat([torch.arange(CLASSES).repeat_interleave(OWN), torch.full((BACKGROUND,), -1)])


class Hulls(NamedTuple):
    """The plane of tokens after training with one pool."""

    title: str
    samples: np.ndarray  # (N, 2) pooled vectors
    labels: np.ndarray  # (N,)
    tokens: np.ndarray  # (T, 2)
    owners: np.ndarray  # (T,) the class of each token, -1 for background


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


def train(name: str, seed: int, epochs: int, lr: float) -> tuple[dict[str, float], Hulls]:
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
    best, epochs_without_improvement = -1.0, 0
    best_state = (tokens.detach().clone(), pool.state_dict(), 0)
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
        epochs_without_improvement = 0 if score > best else epochs_without_improvement + 1
        if score > best:
            state = {key: value.clone() for key, value in pool.state_dict().items()}
            best, best_state = score, (tokens.detach().clone(), state, epoch)
        if epochs_without_improvement >= PATIENCE:
            break
    token_table, state, best_epoch = best_state
    pool.load_state_dict(state)
    return evaluate(name, pool, token_table, test_rng, best_epoch)


@torch.no_grad()
def evaluate(
    name: str, pool: nn.Module, token_table: Tensor, generator: torch.Generator, epochs: int
) -> tuple[dict[str, float], Hulls]:
    """Evaluate a trained pool on new samples."""
    ids, labels = sample(40, generator)
    x = token_table[ids]
    vectors = pool(x)  # (N, 2)
    weights = (
        torch.full(ids.shape, 1 / TOKENS) if name == "GAP" else pool.attend(x)[1].squeeze(1)
    )  # (N, 50)
    score = 100 * retrieval_scores(vectors, labels, distance="euclidean")["map@r"]
    background = 100 * float((weights * (OWNERS[ids] < 0)).sum(1).mean())
    overlap = 100 * share_in_other_hulls(vectors.double().numpy(), labels.numpy())
    scores = {
        "map@r": score,
        "in another hull": overlap,
        "background weight": background,
        "epochs": epochs,
    }
    title = f"{name}: MAP@R {score:.1f}, {overlap:.0f}% in another hull"
    return scores, Hulls(
        title, vectors.numpy(), labels.numpy(), token_table.numpy(), OWNERS.numpy()
    )


def share_in_other_hulls(points: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of samples inside the convex hull of another class."""
    inside = np.zeros(len(points), bool)
    for label in np.unique(labels):
        planes = ConvexHull(points[labels == label], qhull_options="QJ").equations  # (F, 3)
        inside |= (labels != label) & (points @ planes[:, :2].T + planes[:, 2] <= 0).all(1)
    return float(inside.mean())


def draw_hulls(panels: Sequence[Hulls]) -> Figure:
    """Draw convex hulls of the classes, their tokens and the background tokens [GSP Fig. 3a]."""
    if any(panel.samples.shape[1:] != (2,) or panel.tokens.shape[1:] != (2,) for panel in panels):
        raise ValueError("hulls need points in the plane: samples (N, 2) and tokens (T, 2)")
    figure = Figure(
        figsize=(6.4 * len(panels), 7.4), facecolor=BACKGROUND_COLOUR, layout="constrained"
    )
    grid = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)
    for axes, panel in zip(grid[0], panels, strict=True):
        _draw_panel(axes, panel)
    note = "areas: hulls of classes · rings: their tokens · ×: background tokens"
    figure.supxlabel(note, color=NOTE_COLOUR, fontsize=10)
    return figure


def _draw_panel(axes: Axes, panel: Hulls) -> None:
    colours = matplotlib.colormaps["tab20"]
    axes.set_facecolor(BACKGROUND_COLOUR)
    for label in np.unique(panel.labels):
        samples, colour = panel.samples[panel.labels == label], colours(int(label) % 20)
        corners = samples[hull(samples)]
        axes.fill(*corners.T, color=colour, alpha=0.35, linewidth=0, zorder=2)
        axes.fill(*corners.T, fill=False, edgecolor=colour, linewidth=1.4, zorder=3)
        axes.plot(*samples.T, ".", color=colour, markersize=2.5, zorder=3)
        ring = {"markerfacecolor": "none", "markersize": 6, "alpha": 0.8}
        axes.plot(*panel.tokens[panel.owners == label].T, "o", color=colour, zorder=4, **ring)
    background = panel.tokens[panel.owners < 0]
    axes.plot(*background.T, "x", color=TEXT_COLOUR, markersize=9, markeredgewidth=2, zorder=5)
    axes.set_title(panel.title, loc="left", color=TEXT_COLOUR, fontsize=13)
    axes.set_aspect("equal")
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def hull(points: np.ndarray) -> np.ndarray:
    """Return the indices of the corners in order; for collinear points, the two ends."""
    try:
        return np.asarray(ConvexHull(points).vertices)
    except (QhullError, ValueError):  # fewer than three points, or all on a line
        direction = np.linalg.svd(points - points.mean(0), full_matrices=False)[2][0]
        position = points @ direction
        return np.array([position.argmin(), position.argmax()])


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
    results: dict[str, list[dict[str, float]]] = {name: [] for name in POOLS}
    first = []
    for seed in range(args.seeds):
        for name in POOLS:
            scores, hulls = train(name, seed, args.epochs, args.rate)
            results[name].append(scores)
            first += [hulls] if seed == 0 else []
            print(
                f"seed {seed}, {name}: "
                + ", ".join(f"{key} {value:.1f}" for key, value in scores.items()),
                flush=True,
            )
    for name, rows in results.items():
        for key in ("map@r", "in another hull", "background weight"):
            values = [row[key] for row in rows]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            print(f"{name:4} {key:18} {statistics.mean(values):.1f}{spread}")
    with write_atomically(args.out / "tokens.json") as path:
        path.write_text(json.dumps(results, indent=1))
    with write_atomically(args.out / "tokens.png") as path:
        draw_hulls(first).savefig(path, dpi=110)
    print(f"{args.out / 'tokens.png'}, {args.out / 'tokens.json'}")


if __name__ == "__main__":
    main()
