"""Time and memory of pools and of whole models, next to GAP and to other implementations."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..models import create_model
from ..pooling import create_pool, list_pools
from ..pooling.registry import entry
from ..predict.timing import best_times, peak_memory, round_times
from ..report.table import align_columns

Size = tuple[int, int, int, int]  # B, C, H, W
SIZES: tuple[Size, ...] = ((64, 384, 14, 14), (32, 2048, 7, 7), (64, 768, 14, 14), (8, 384, 56, 56))
GAMMAS = (None, 2.0, 1.25)
SIDE = 224  # of the images of networks


# Millions of parameters and GFLOPs in [SimPool Table 8], by network and pooling; "baseline" is the
# network's own pooling.
TABLE_8: dict[str, dict[str, tuple[float, float]]] = {
    "resnet18": {
        "baseline": (11.7, 1.82),
        "cait": (18.0, 1.85),
        "slot": (14.6, 1.87),
        "ge": (11.7, 1.83),
        "simpool": (12.2, 1.84),
    },
    "resnet50": {
        "baseline": (25.6, 4.13),
        "cait": (75.9, 4.60),
        "slot": (71.7, 4.89),
        "ge": (26.1, 4.15),
        "simpool": (33.9, 4.34),
    },
    "convnext_small": {
        "baseline": (50.2, 8.68),
        "cait": (57.3, 8.75),
        "slot": (56.7, 8.79),
        "ge": (50.3, 8.69),
        "simpool": (51.4, 8.71),
    },
    "vit_small_patch16_224": {
        "baseline": (22.1, 4.24),
        "cait": (23.8, 4.29),
        "slot": (23.7, 4.30),
        "ge": (22.1, 4.25),
        "simpool": (22.3, 4.26),
    },
}
BASELINES = ("gap", "cls", "gap, CLS kept")


class StraightforwardSimPool(nn.Module):
    """[SimPool Algorithm 2] line by line, keys and powers written out."""

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


class StraightforwardGSP(nn.Module):
    """[GSP Proposition 4.1] with a fixed number of steps, differentiated by autograd."""

    def __init__(self, dim: int, steps: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(64, dim) * dim**-0.5)
        self.steps, self.mu, self.eps = steps, 0.3, 5.0

    def forward(self, x: Tensor) -> Tensor:
        w = self.prototypes / self.prototypes.norm(dim=-1, keepdim=True).clamp_min(1)
        distance = torch.cdist(w, x / x.norm(dim=-1, keepdim=True).clamp_min(1))
        kernel = (-self.eps * distance).exp()  # (B, m, N)
        n, t = x.shape[1], torch.ones_like(kernel[:, :1, :1])
        for _ in range(self.steps):
            rho = 1 / n / (1 + t * kernel.sum(1, keepdim=True))
            t = self.mu / (kernel * rho).sum((1, 2), keepdim=True)
        return ((1 / n - rho) / self.mu @ x).squeeze(1)


class MeasuredPool(NamedTuple):
    label: str
    create: Callable[[int], nn.Module]
    rivals: tuple[str, ...] = ()  # labels of layers that compute the same


def measured_pools(names: Sequence[str] = ()) -> list[MeasuredPool]:
    """Return the pools (all by default), with the implementations they are compared with."""
    from timm.layers import SimPool1d  # type: ignore[attr-defined]

    pools = [MeasuredPool("gap", partial(create_pool, "gap"))]
    for name in names or list_pools():
        entry(name)  # raises for an unknown name before anything is measured
        create = partial(create_pool, name)
        if name == "simpool":
            for gamma in GAMMAS:
                suffix = "" if gamma is None else f" gamma={gamma:g}"
                rivals = {
                    f"straightforward simpool{suffix}": StraightforwardSimPool,
                    f"timm simpool{suffix}": SimPool1d,
                }
                layer = partial(create, gamma=gamma)
                pools.append(MeasuredPool(f"simpool{suffix}", layer, tuple(rivals)))
                pools += [MeasuredPool(n, partial(r, gamma=gamma)) for n, r in rivals.items()]
        elif name == "gsp":
            steps = {f"gsp by Prop. 4.1, {n} steps": n for n in (25, 100)}
            pools.append(MeasuredPool(name, create, tuple(steps)))
            pools += [
                MeasuredPool(k, partial(StraightforwardGSP, steps=n)) for k, n in steps.items()
            ]
        elif name != "gap":
            pools.append(MeasuredPool(name, create))
    return pools


def measure_pools(
    size: Size, pools: Sequence[MeasuredPool], rounds: int = 7, layout: str = "tokens"
) -> dict[str, Any]:
    """Measure milliseconds and MiB of every pool, and the ratios to GAP and to its rivals.

    A ratio to GAP above one is slower than GAP; a ratio to a rival above one is faster than the
    rival. Times are those of the best round, and of the median one. Memory is what the call needs in
    addition to its input and weights, with results and gradients.
    """
    b, c, h, w = size
    torch.manual_seed(0)
    x = torch.randn(b, h * w, c) if layout == "tokens" else torch.randn(b, c, h * w).mT
    runs = {pool.label: _PoolRun(pool.create(c), x, (h, w)) for pool in pools}
    rows: dict[str, dict[str, Any]] = {label: {"pool": label} for label in runs}
    for mode in ("forward", "training"):
        calls = {label: getattr(run, mode) for label, run in runs.items()}
        times = round_times(calls, rounds)
        for label, row in rows.items():
            row[f"{mode}_ms"] = min(times[label]) * 1e3
            row[f"{mode}_median_ms"] = median(times[label]) * 1e3
            row[f"{mode}_mib"] = peak_memory(calls[label]) / 2**20
            row[f"{mode}_to_gap"] = min(times[label]) / min(times["gap"])
    for pool in pools:
        row = rows[pool.label]
        row["rivals"] = {name: {} for name in pool.rivals}
        for (name, ratios), mode in product(row["rivals"].items(), ("forward", "training")):
            for key, ms in (("speedup", "ms"), ("median_speedup", "median_ms")):
                ratios[f"{mode}_{key}"] = rows[name][f"{mode}_{ms}"] / row[f"{mode}_{ms}"]
            ratios[f"{mode}_memory"] = row[f"{mode}_mib"] / rows[name][f"{mode}_mib"]
    return {"size": list(size), "pools": list(rows.values())}


class _PoolRun:
    """A layer and its input."""

    def __init__(self, layer: nn.Module, x: Tensor, grid: tuple[int, int]) -> None:
        self.layer, self.x = layer, x.requires_grad_()
        self.arguments = (grid,) if hasattr(layer, "attend") else ()

    def forward(self) -> None:
        with torch.no_grad():
            self.layer(self.x, *self.arguments)

    def training(self) -> None:
        self.layer(self.x, *self.arguments).sum().backward()
        self.layer.zero_grad()
        self.x.grad = None


def measure_network(
    name: str, batch: int, rounds: int, pools: Sequence[str] = ()
) -> dict[str, Any]:
    """Measure inference of a network with GAP and other pools, in turn in every round.

    The pools are those of [SimPool Table 8] by default; beside them the CLS token, if there is one.
    """
    torch.manual_seed(0)
    models = {
        pool: create_model(name, pool, 1000)
        for pool in ("gap", *(pools or TABLE_8["resnet18"]))
        if pool != "baseline"
    }
    kept = create_model(name, "gap", 1000, keep_cls=True)
    if kept.backbone.has_cls and not pools:
        models |= {"cls": create_model(name, "cls", 1000), "gap, CLS kept": kept}
    images = torch.randn(batch, 3, SIDE, SIDE)
    # Without gradients: the counter's hooks fail for some pools in inference mode.
    operations = {
        pool: multiply_adds(model.eval().requires_grad_(False), images[:1])
        for pool, model in models.items()
    }
    with torch.inference_mode():
        times = best_times({pool: partial(m, images) for pool, m in models.items()}, rounds)
    published = TABLE_8.get(name, {})
    rows = [
        {
            "pool": pool,
            "ms": times[pool] * 1e3,
            "images_per_second": batch / times[pool],
            "to_gap": times[pool] / times["gap"],
            "parameters": sum(p.numel() for p in model.parameters()),
            "gflops": operations[pool] / 1e9,
            "paper": published.get("baseline" if pool in BASELINES else pool),
        }
        for pool, model in models.items()
    ]
    return {"network": name, "batch": batch, "size": SIDE, "models": rows}


def multiply_adds(model: nn.Module, images: Tensor) -> int:
    """Count convolutions and linear layers, but no attention products, as [SimPool Table 8]."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(images)
    counts = counter.get_flop_counts()["Global"]
    return sum(int(n) for operation, n in counts.items() if "attention" not in str(operation)) // 2


def parse_size(text: str) -> Size:
    """'64x384x14x14' -> (64, 384, 14, 14)."""
    numbers = text.lower().split("x")
    if len(numbers) != 4 or not all(n.isdigit() and int(n) > 0 for n in numbers):
        raise ValueError(f"a size must be BxCxHxW, e.g. 64x384x14x14, got '{text}'")
    b, c, h, w = map(int, numbers)
    return b, c, h, w


def pool_table(report: dict[str, Any]) -> str:
    """Return one size as text."""
    digits = {"ms": 2, "median_ms": 2, "mib": 1, "to_gap": 1}
    units = "ms", "median ms", "MiB", "/ GAP"
    rows = [["pool", *(f"{mode} {unit}" for unit, mode in product(units, ("fwd", "train")))]]
    ratios = []
    for row in report["pools"]:
        pairs = product(digits, ("forward", "training"))
        numbers = [f"{row[f'{mode}_{unit}']:.{digits[unit]}f}" for unit, mode in pairs]
        rows.append([row["pool"], *numbers])
        for rival, ratio in row["rivals"].items():
            ratios.append(
                f"  {row['pool']} against {rival}: {ratio['forward_speedup']:.1f}x as fast "
                f"forward, {ratio['training_speedup']:.1f}x in training (medians "
                f"{ratio['forward_median_speedup']:.1f}x, "
                f"{ratio['training_median_speedup']:.1f}x), at "
                f"{ratio['forward_memory']:.2f} and {ratio['training_memory']:.2f} of the memory"
            )
    return "\n".join(["x".join(map(str, report["size"])), align_columns(rows), *ratios, ""])


def network_table(report: dict[str, Any]) -> str:
    """Return one network as text."""
    size = f"{report['size']}x{report['size']}"
    title = f"{report['network']}, batch {report['batch']} of {size}"
    rows = [["pooling", "ms", "images/s", "to GAP", "Mparams", "GFLOPs", "SimPool Table 8"]]
    for row in report["models"]:
        times = f"{row['ms']:.2f}", f"{row['images_per_second']:.1f}", f"{row['to_gap']:.3f}"
        sizes = f"{row['parameters'] / 1e6:.1f}", f"{row['gflops']:.2f}"
        published = "{} / {}".format(*row["paper"]) if row["paper"] else ""
        rows.append([row["pool"], *times, *sizes, published])
    return f"{title}\n{align_columns(rows)}\n"


def machine() -> dict[str, object]:
    """Describe the machine that was measured."""
    threads = torch.get_num_threads()
    return {"torch": torch.__version__, "machine": platform.machine(), "threads": threads}
