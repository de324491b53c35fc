"""What each pool costs in time and memory, next to GAP and to the same methods written straight from the papers."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..pooling import create_pool, list_pools
from ..pooling.registry import entry
from ..predict.timing import best_times, peak_memory

Size = tuple[int, int, int, int]  # B, C, H, W
SIZES: tuple[Size, ...] = ((64, 384, 14, 14), (32, 2048, 7, 7), (64, 768, 14, 14), (8, 384, 56, 56))
GAMMAS = (None, 2.0, 1.25)


class StraightSimPool(nn.Module):
    """Algorithm 2 line by line, keys and powers written out, as people write it."""

    def __init__(self, dim: int, gamma: float | None) -> None:
        super().__init__()
        self.norm, self.gamma = nn.LayerNorm(dim, eps=1e-6), gamma
        self.q, self.k = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query: Tensor = self.q(x.mean(1, keepdim=True))  # (B, 1, D)
        x = self.norm(x)
        a: Tensor = (query @ self.k(x).mT * x.shape[-1] ** -0.5).softmax(-1)  # (B, 1, N)
        if self.gamma is None:
            return (a @ x).squeeze(1)
        v = x - x.amin((1, 2), keepdim=True)
        return (a @ v.pow(self.gamma)).pow(1 / self.gamma).squeeze(1)


class StraightGSP(nn.Module):
    """Proposition 4.1 of GSP, so many steps, differentiated by autograd."""

    def __init__(self, dim: int, steps: int, mu: float = 0.3, eps: float = 5.0) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(64, dim) * dim**-0.5)
        self.steps, self.mu, self.eps = steps, mu, eps

    def forward(self, x: Tensor) -> Tensor:
        w = self.prototypes / self.prototypes.norm(dim=-1, keepdim=True).clamp_min(1)
        kernel = (
            -self.eps * torch.cdist(w, x / x.norm(dim=-1, keepdim=True).clamp_min(1))
        ).exp()  # (B, m, N)
        n, t = x.shape[1], torch.ones_like(kernel[:, :1, :1])
        for _ in range(self.steps):
            rho = 1 / n / (1 + t * kernel.sum(1, keepdim=True))
            t = self.mu / (kernel * rho).sum((1, 2), keepdim=True)
        return ((1 / n - rho) / self.mu @ x).squeeze(1)


@dataclass(frozen=True)
class TimedLayer:
    label: str
    make: Callable[[int], nn.Module]
    rivals: tuple[str, ...] = ()  # labels of layers that do the same


def candidates(pools: Sequence[str] | None = None) -> list[TimedLayer]:
    """The chosen pools (all by default), with the rivals they are measured against."""
    from timm.layers import SimPool1d  # type: ignore[attr-defined]

    found = [_pool("gap")]
    for name in pools or list_pools():
        if name == "simpool":
            for gamma in GAMMAS:
                tag = "" if gamma is None else f" gamma={gamma:g}"
                straight, timm = f"straightforward simpool{tag}", f"timm simpool{tag}"
                found += [
                    _pool("simpool", f"simpool{tag}", (straight, timm), gamma=gamma),
                    TimedLayer(straight, partial(StraightSimPool, gamma=gamma)),
                    TimedLayer(timm, partial(SimPool1d, gamma=gamma)),
                ]
        elif name == "gsp":
            rivals = {f"gsp by Prop. 4.1, {n} steps": n for n in (25, 100)}
            found.append(_pool("gsp", rivals=tuple(rivals)))
            found += [
                TimedLayer(label, partial(StraightGSP, steps=n)) for label, n in rivals.items()
            ]
        elif name != "gap":
            found.append(_pool(name))
    return found


def _pool(name: str, label: str = "", rivals: tuple[str, ...] = (), **options: Any) -> TimedLayer:
    entry(name)  # a typo is told now, not after the first size
    return TimedLayer(label or name, partial(create_pool, name, **options), rivals)


def measure(
    size: Size, chosen: Sequence[TimedLayer], rounds: int = 7, layout: str = "tokens"
) -> dict[str, Any]:
    """Milliseconds and MiB of every candidate at one size, and the ratios to GAP and to its rivals.

    A ratio to GAP above one is slower than GAP; a ratio to a rival above one is faster than the rival.
    Memory is what the call needs on top of its input and weights, results and gradients included.
    """
    b, c, h, w = size
    torch.manual_seed(0)
    x = torch.randn(b, h * w, c) if layout == "tokens" else torch.randn(b, c, h * w).mT
    runs = {one.label: _Run(one.make(c), x, (h, w)) for one in chosen}
    forward = best_times({label: run.forward for label, run in runs.items()}, rounds)
    training = best_times({label: run.training for label, run in runs.items()}, rounds)
    rows: dict[str, dict[str, Any]] = {}
    for label, run in runs.items():
        rows[label] = {
            "pool": label,
            "forward_ms": forward[label] * 1e3,
            "training_ms": training[label] * 1e3,
            "forward_mib": peak_memory(run.forward) / 2**20,
            "training_mib": peak_memory(run.training) / 2**20,
        }
    for one in chosen:
        row = rows[one.label]
        row["forward_to_gap"] = row["forward_ms"] / rows["gap"]["forward_ms"]
        row["training_to_gap"] = row["training_ms"] / rows["gap"]["training_ms"]
        row["rivals"] = {
            rival: {
                "forward_speedup": rows[rival]["forward_ms"] / row["forward_ms"],
                "training_speedup": rows[rival]["training_ms"] / row["training_ms"],
                "forward_memory": row["forward_mib"] / rows[rival]["forward_mib"],
                "training_memory": row["training_mib"] / rows[rival]["training_mib"],
            }
            for rival in one.rivals
        }
    return {"size": list(size), "pools": list(rows.values())}


class _Run:
    """One layer and its input, to be run either way."""

    def __init__(self, layer: nn.Module, x: Tensor, grid: tuple[int, int]) -> None:
        self.layer, self.x = layer, x.requires_grad_()
        self.extra = (grid,) if hasattr(layer, "attend") else ()

    def forward(self) -> None:
        with torch.no_grad():
            self.layer(self.x, *self.extra)

    def training(self) -> None:
        self.layer(self.x, *self.extra).sum().backward()
        self.layer.zero_grad()
        self.x.grad = None


def parse_size(text: str) -> Size:
    """'64x384x14x14' -> (64, 384, 14, 14)."""
    parts = text.lower().split("x")
    if len(parts) != 4 or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise ValueError(f"a size is BxCxHxW, e.g. 64x384x14x14, got '{text}'")
    b, c, h, w = map(int, parts)
    return b, c, h, w


def table(report: dict[str, Any]) -> str:
    """One size as text."""
    heads = ("forward ms", "training ms", "fwd MiB", "train MiB", "fwd/GAP", "train/GAP")
    widths = (11, 12, 9, 10, 9, 10)
    lines = [
        "x".join(map(str, report["size"])),
        f"{'pool':<34}" + "".join(map(str.rjust, heads, widths)),
    ]
    for row in report["pools"]:
        lines.append(
            f"{row['pool']:<34}{row['forward_ms']:>11.2f}{row['training_ms']:>12.2f}{row['forward_mib']:>9.1f}"
            f"{row['training_mib']:>10.1f}{row['forward_to_gap']:>9.1f}{row['training_to_gap']:>10.1f}"
        )
    for row in report["pools"]:
        for rival, ratio in row["rivals"].items():
            lines.append(
                f"  {row['pool']} against {rival}: {ratio['forward_speedup']:.1f}x as fast forward, "
                f"{ratio['training_speedup']:.1f}x in training, at {ratio['forward_memory']:.2f} and "
                f"{ratio['training_memory']:.2f} of the memory"
            )
    return "\n".join([*lines, ""])


def summary(reports: list[dict[str, Any]], rounds: int, layout: str) -> dict[str, Any]:
    """All sizes and what they were measured on, ready for JSON."""
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "layout": layout,
        "sizes": reports,
    }
