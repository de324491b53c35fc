"""What a pool costs in a whole model: time, parameters and multiply-adds, next to GAP and to S Table 8."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..models import create_model
from ..predict.timing import best_times

# Networks of S Table 8 with SimPool's gamma (2 for convolutions, 1.25 for transformers) and the table's two columns:
# millions of parameters and GFLOPs, of the network's own pooling and of SimPool.
NETWORKS: dict[str, dict[str, Any]] = {
    "vit_small_patch16_224": {
        "gamma": 1.25,
        "cls": True,
        "baseline": (22.1, 4.24),
        "simpool": (22.3, 4.26),
    },
    "resnet50": {"gamma": 2.0, "cls": False, "baseline": (25.6, 4.13), "simpool": (33.9, 4.34)},
    "convnext_small": {
        "gamma": 2.0,
        "cls": False,
        "baseline": (50.2, 8.68),
        "simpool": (51.4, 8.71),
    },
}


def measure(network: str, batch: int = 4, rounds: int = 20, size: int = 224) -> dict[str, Any]:
    """Inference of one network with every pooling, in turn in every round; the best round of each counts."""
    if network not in NETWORKS:
        raise ValueError(f"no measured network '{network}': {', '.join(NETWORKS)}")
    setting = NETWORKS[network]
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {
        "gap": create_model(network, "gap", 1000),
        "simpool": create_model(network, "simpool", 1000, pool_options={"gamma": setting["gamma"]}),
    }
    if setting["cls"]:
        models["cls"] = create_model(network, "cls", 1000)
        models["gap, CLS kept"] = create_model(network, "gap", 1000, keep_cls=True)
    images = torch.randn(batch, 3, size, size)
    with torch.inference_mode():
        calls = {name: _call(model.eval(), images) for name, model in models.items()}
        times = best_times(calls, rounds)
        rows = [
            {
                "pool": name,
                "ms": times[name] * 1e3,
                "images_per_second": batch / times[name],
                "to_gap": times[name] / times["gap"],
                "parameters": sum(p.numel() for p in model.parameters()),
                "gflops": multiply_adds(model, images[:1]) / 1e9,
                "paper": setting["simpool"] if name == "simpool" else setting["baseline"],
            }
            for name, model in models.items()
        ]
    return {
        "network": network,
        "gamma": setting["gamma"],
        "batch": batch,
        "size": size,
        "models": rows,
    }


def _call(model: nn.Module, images: torch.Tensor) -> Any:
    return lambda: model(images)


def multiply_adds(model: nn.Module, images: torch.Tensor) -> int:
    """As S Table 8 counts: convolutions and linear layers, not the products of queries, keys and values in a ViT."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(images)
    counts = counter.get_flop_counts()["Global"]
    return sum(int(n) for operation, n in counts.items() if "attention" not in str(operation)) // 2


def table(report: dict[str, Any]) -> str:
    """One network as text."""
    lines = [
        f"{report['network']}, batch {report['batch']} of {report['size']}x{report['size']}, gamma {report['gamma']:g}",
        f"{'pooling':<16}{'ms':>9}{'images/s':>10}{'to GAP':>9}{'Mparams':>9}{'GFLOPs':>8}   S Table 8",
    ]
    for row in report["models"]:
        parameters, flops = row["paper"]
        lines.append(
            f"{row['pool']:<16}{row['ms']:>9.2f}{row['images_per_second']:>10.1f}{row['to_gap']:>9.3f}"
            f"{row['parameters'] / 1e6:>9.1f}{row['gflops']:>8.2f}   {parameters} / {flops}"
        )
    return "\n".join([*lines, ""])


def summary(reports: Sequence[dict[str, Any]], rounds: int) -> dict[str, Any]:
    """All networks and what they were measured on, ready for JSON."""
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "networks": list(reports),
    }
