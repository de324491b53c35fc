"""Load the candidates of a tournament as models that share one backbone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ...backbones import create_backbone
from ...models import PooledModel, load
from ...models.frozen import FrozenBackbone
from ...predict.feature_cache import weights_digest
from .candidates import Candidate, ablation_candidates, all_candidates, gamma_candidates
from .run import PLAN
from .training import head_path, load_head, read_pass


def load_candidates(folder: Path) -> dict[str, PooledModel]:
    """Load the models of the first seed that are finished, the recommended one first."""
    plan = read_plan(folder)
    passes = {
        name: path
        for path in finished_passes(folder, plan)
        for name, result in read_pass(path)[0].items()
        if result.failed is None
    }
    if not passes:
        return {}
    saved = load(folder) if (folder / "config.json").is_file() else None
    frozen = _load_backbone(folder, plan, saved)
    candidates = {candidate.name: candidate for candidate in _candidates(plan, frozen)}
    class_names = None if saved is None else saved.class_names
    models = {}
    for name in _ranked_names(folder, plan):
        if name in passes:
            classes = _number_of_classes(head_path(passes[name], name))
            head = load_head(passes[name], candidates[name], frozen, classes)
            models[name] = frozen.create_model(head, class_names).eval()
    return models


def read_plan(folder: Path) -> dict[str, Any]:
    """Read and check plan.json."""
    path = folder / PLAN
    try:
        plan: dict[str, Any] = json.loads(path.read_text())
        _ = plan["contenders"], plan["backbone"], plan["kind"]
        return plan
    except FileNotFoundError:
        raise ValueError(
            f"{folder} has no tournament: create one with `cenote tournament DATA -o {folder}`"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): run the tournament again in another folder"
        ) from None


def finished_passes(folder: Path, plan: dict[str, Any]) -> list[Path]:
    """Return the folders of the first seed's passes whose weights are complete."""
    seed = folder / f"seed-{plan.get('settings.seed', 0)}"
    return sorted(path.parent for path in seed.glob("heat-*/results.json"))


def _ranked_names(folder: Path, plan: dict[str, Any]) -> list[str]:
    """Return the names in the order of the report, the recommended one first."""
    try:
        report = json.loads((folder / "results.json").read_text())
        names = [row["name"] for row in report["standings"]]
        return sorted(names, key=lambda name: name != report["recommended"])
    except (OSError, ValueError, KeyError, TypeError):  # not finished yet
        return list(plan["contenders"])


def _load_backbone(folder: Path, plan: dict[str, Any], saved: PooledModel | None) -> FrozenBackbone:
    """Use the saved model's weights, which need neither a download nor the original checkpoint."""
    if saved is not None:
        frozen = FrozenBackbone(create_backbone(plan["backbone"], pretrained=False))
        frozen.backbone.load_state_dict(saved.backbone.state_dict())
        frozen.backbone.preprocessing = saved.backbone.preprocessing
        return frozen
    frozen = FrozenBackbone(create_backbone(plan["backbone"], pretrained=True))
    if weights_digest(frozen.backbone) != plan["weights"]:
        raise ValueError(
            f"{folder} was started with --weights: its models can be loaded when it is finished"
        )
    return frozen


def _candidates(plan: dict[str, Any], frozen: FrozenBackbone) -> list[Candidate]:
    if plan["kind"] == "ablation":
        return ablation_candidates(frozen.backbone)
    if plan["kind"] == "gamma":
        matches = (re.fullmatch(r"gamma ([\d.e+-]+)", name) for name in plan["contenders"])
        return gamma_candidates([float(match[1]) for match in matches if match])
    return all_candidates()


def _number_of_classes(path: Path) -> int:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return int(file.get_slice("head.linear.weight").get_shape()[0])
