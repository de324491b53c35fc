"""The cost of Metrix.

    python benchmarks/metrix.py [--batch 100] [--size 224] [--rounds 3]

First, 8,000 mixed pairs (100 embeddings of 512 dimensions, 5 classes, anchor-negative) through the
Gram matrix compared with explicit mixing, alone and with the loss. Then the overhead of Metrix in a
training step: whole steps in turn, best of the rounds; and the same from the feature maps on (loss,
and gradient to the maps), which is all that differs and is less noisy. Memory is the peak of torch
in a step. A step of ResNet-50 at the default size takes a minute on two cores; `--batch 10 --size
64` takes seconds.
"""

from __future__ import annotations

import argparse
from functools import partial

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cenote import create_pool
from cenote.allocator import keep_memory
from cenote.losses import MetricLoss, Metrix, Mixable, create_metric_loss
from cenote.losses.mixing import mixed_similarity
from cenote.pooling import MixablePool
from cenote.predict.timing import best_times, peak_memory

ALL_NEGATIVES = (
    10**6
)  # more than a batch has; by default 16 are drawn if the pool needs the mixture
# (name, pool, Metrix or none, bar in percent of the clean step)
VARIANTS = [
    ("plain", "gap", None, None),
    ("embed", "gap", Metrix(("embed",)), 5),
    ("plain once more", "gap", None, None),  # measures the noise
    ("feature, linear pool", "gap", Metrix(("feature",)), 40),
    ("feature, gap+max", "gap+max", Metrix(("feature",)), 40),
    ("feature, simpool", "simpool", Metrix(("feature",)), 40),
    (
        "feature, simpool, every partner",
        "simpool",
        Metrix(("feature",), negatives=ALL_NEGATIVES),
        None,
    ),
]


def gram_against_explicit(rounds: int) -> None:
    torch.manual_seed(0)
    x = F.normalize(torch.randn(100, 512), dim=1).requires_grad_()
    labels = torch.arange(100) % 5
    lam, different = torch.rand(100, 100), labels[:, None] != labels
    a, c = different.nonzero(as_tuple=True)
    loss = create_metric_loss("multi-similarity", 5, 512)

    which = torch.arange(100)[:, None]

    def gram() -> Tensor:
        return mixed_similarity(x, x, x, which, lam)[:, 0]  # (100, 100)

    def explicit() -> Tensor:
        share = lam[a, c][:, None]
        mixed = F.normalize(share * x[a] + (1 - share) * x[c], dim=1)  # (8000, 512)
        return (x[a] * mixed).sum(1).view(100, 80)

    def of_gram() -> Tensor:
        return loss.judge(gram(), lam, different)

    def of_explicit() -> Tensor:
        return loss.judge(explicit(), lam[a, c].view(100, 80))

    slopes = [torch.autograd.grad(f(), x)[0] for f in (of_gram, of_explicit)]
    assert torch.allclose(gram()[different].view(100, 80), explicit(), atol=1e-6)
    assert torch.allclose(of_gram(), of_explicit(), atol=1e-6) and torch.allclose(
        *slopes, atol=1e-6
    )
    durations = best_times(
        {
            "explicit": lambda: explicit().sum().backward(),
            "gram": lambda: gram().sum().backward(),
            "of explicit": lambda: of_explicit().backward(),
            "of gram": lambda: of_gram().backward(),
        },
        max(rounds, 20),  # milliseconds are noisy
    )
    print(
        f"| {len(a)} mixed pairs, value and gradient | explicit ms | Gram ms | ratio | bar |\n|---|---|---|---|---|"
    )
    for cells, key, bar in (("similarities", "", "50"), ("multi-similarity of them", "of ", "")):
        slow, fast = durations[f"{key}explicit"], durations[f"{key}gram"]
        print(f"| {cells} | {1e3 * slow:.1f} | {1e3 * fast:.2f} | {slow / fast:.0f} | {bar} |")
    print()


class Embedder(nn.Module):
    """A pool and a linear embedding of 512 dimensions."""

    def __init__(self, pool: str, dim: int) -> None:
        super().__init__()
        self.pool, self.embedding, self.linear = (
            create_pool(pool, dim),
            nn.Linear(dim, 512),
            pool == "gap",
        )

    def forward(self, maps: Tensor) -> Tensor:
        return self.embedding(self.pool(maps))

    def mixed(self, maps: Tensor, b: Tensor, c: Tensor, lam: Tensor) -> Tensor:
        return self.embedding(self.pool.mixed(maps, b, c, lam))


def objective(
    loss: MetricLoss, top: Embedder, metrix: Metrix | None, maps: Tensor, labels: Tensor
) -> Tensor:
    z = top(maps)
    if metrix is None:
        return loss(z, labels)
    mixed = top.mixed if isinstance(top.pool, MixablePool) else None
    return metrix(loss, Mixable(labels, z, maps, None, top, None, top.linear, mixed))


def shares(batch: int, size: int, rounds: int, name: str) -> None:
    torch.manual_seed(0)
    backbone = timm.create_model(name, pretrained=False, num_classes=0, global_pool="")
    images, labels = torch.randn(batch, 3, size, size), torch.arange(batch) // 5
    loss = create_metric_loss("multi-similarity", int(labels.max()) + 1, 512)
    with torch.no_grad():
        feature_maps = backbone(images).flatten(2).mT.contiguous()  # (B, N, D)
    tops = {pool: Embedder(pool, feature_maps.shape[-1]) for _, pool, _, _ in VARIANTS}

    def step(top: Embedder, metrix: Metrix | None, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        objective(loss, top, metrix, backbone(images).flatten(2).mT, labels).backward()
        optimizer.step()

    def tail(top: Embedder, metrix: Metrix | None) -> None:
        objective(loss, top, metrix, feature_maps.clone().requires_grad_(), labels).backward()

    steps, tails = {}, {}
    for title, pool, metrix, _ in VARIANTS:
        optimizer = torch.optim.AdamW([*backbone.parameters(), *tops[pool].parameters()], lr=0)
        steps[title] = partial(step, tops[pool], metrix, optimizer)
        tails[title] = partial(tail, tops[pool], metrix)
        tails[pool] = partial(tail, tops[pool], None)
    tail_times, step_times = best_times(tails, max(rounds, 5)), best_times(steps, rounds)
    print(f"{name}, batch {batch}, {size} px, multi-similarity, AdamW:\n")
    print(
        "| Metrix | step s | GB | more than plain % | by what follows the maps % | bar % |\n|---|---|---|---|---|---|"
    )
    for title, pool, _, bar in VARIANTS:
        overhead, tail_overhead = (
            step_times[title] / step_times["plain"] - 1,
            (tail_times[title] - tail_times[pool]) / step_times["plain"],
        )
        cells = (
            f"{100 * overhead:.1f} | {100 * tail_overhead:.2f} | {bar or ''}"
            if title != "plain"
            else "| |"
        )
        backbone.zero_grad()  # gradients of the step before would be freed in this one
        tops[pool].zero_grad()
        print(
            f"| {title} | {step_times[title]:.2f} | {peak_memory(steps[title]) / 1e9:.2f} | {cells} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backbone", default="resnet50")
    args = parser.parse_args()
    keep_memory()
    gram_against_explicit(args.rounds)
    shares(args.batch, args.size, args.rounds, args.backbone)


if __name__ == "__main__":
    main()
