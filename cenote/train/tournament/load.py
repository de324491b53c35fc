"""The contenders of a tournament as models, over one backbone that they share."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...backbones import create_backbone
from ...models import PooledModel, load
from ...models.frozen import FrozenBackbone
from ...predict.feature_cache import weights_digest
from .candidates import Entry, ablation_entries, gamma_entries, pool_entries
from .run import PLAN
from .training import file_name, read_top


def open_contenders(folder: Path) -> dict[str, PooledModel]:
    """As the first seed left them, also while others still train. The recommended one comes first."""
    plan = read_plan(folder)
    heats = {name: heat for heat in trained_heats(folder, plan) for name in entries_of(heat)}
    if not heats:
        return {}
    saved = load(folder) if (folder / "config.json").is_file() else None
    frozen = _frozen(folder, plan, saved)
    entries = {entry.name: entry for entry in _entries(plan, frozen)}
    found = {}
    for name in [name for name in standing_names(folder, plan) if name in heats]:
        count = _classes(heats[name] / "tops" / f"{file_name(name)}.safetensors")
        top = read_top(heats[name], entries[name], frozen, count)
        found[name] = frozen.create_model(top, None if saved is None else saved.class_names).eval()
    return found


def read_plan(folder: Path) -> dict[str, Any]:
    path = folder / PLAN
    try:
        plan: dict[str, Any] = json.loads(path.read_text())
        _ = plan["contenders"], plan["backbone"], plan["kind"]
        return plan
    except FileNotFoundError:
        raise ValueError(
            f"{folder} holds no tournament: `cenote tournament DATA -o {folder}` plays one"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no plan of a tournament ({error}): play it again, in another folder"
        ) from None


def trained_heats(folder: Path, plan: dict[str, Any]) -> list[Path]:
    """Heats of the first seed that are over: their weights were kept before they said so."""
    seed = folder / f"seed-{plan.get('settings.seed', 0)}"
    return sorted(path.parent for path in seed.glob("heat-*/results.json"))


def entries_of(heat: Path) -> list[str]:
    """Names of those that the heat trained to the end."""
    entries = json.loads((heat / "results.json").read_text())["entries"]
    return [name for name, found in entries.items() if found["failed"] is None]


def standing_names(folder: Path, plan: dict[str, Any]) -> list[str]:
    """The recommended one, then the others in the order of the report; of an unfinished one as they were named."""
    try:
        report = json.loads((folder / "results.json").read_text())
        names = [row["name"] for row in report["standings"]]
        return sorted(names, key=lambda name: name != report["recommended"])
    except (OSError, ValueError, KeyError, TypeError):
        return list(plan["contenders"])


def _frozen(folder: Path, plan: dict[str, Any], saved: PooledModel | None) -> FrozenBackbone:
    """Of a finished tournament as it was saved: nothing is downloaded, and a checkpoint given then may be gone."""
    if saved is not None:
        frozen = FrozenBackbone(create_backbone(plan["backbone"], pretrained=False))
        frozen.backbone.load_state_dict(saved.backbone.state_dict())
        frozen.backbone.preprocessing = saved.backbone.preprocessing
        return frozen
    frozen = FrozenBackbone(create_backbone(plan["backbone"], pretrained=True))
    if weights_digest(frozen.backbone) != plan["weights"]:
        raise ValueError(
            f"{folder} was begun with a checkpoint of its own: its models can be opened when it is over"
        )
    return frozen


def _entries(plan: dict[str, Any], frozen: FrozenBackbone) -> Sequence[Entry]:
    if plan["kind"] == "ablation":
        return ablation_entries(frozen)
    if plan["kind"] == "gamma":
        named = (re.fullmatch(r"gamma ([\d.e+-]+)", name) for name in plan["contenders"])
        return gamma_entries([float(found[1]) for found in named if found])
    return pool_entries(frozen)


def _classes(path: Path) -> int:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return int(file.get_slice("head.linear.weight").get_shape()[0])
