"""Load the candidates of a tournament as models that share one backbone."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ...backbones import create_backbone
from ...models import PooledModel, load
from ...models.frozen import FrozenBackbone
from ...predict.cache_folder import weights_digest
from ..config import Options
from .candidates import create_candidates
from .run import PLAN
from .training import load_head, read_results


def load_candidates(folder: Path) -> dict[str, PooledModel]:
    """Load the models of the first seed that are finished, the recommended one first.

    Of networks that were trained end to end only the recommended one is loaded.
    """
    plan = read_plan(folder)
    if "recipe" in plan:
        if not (folder / "results.json").is_file() or not (folder / "config.json").is_file():
            return {}
        return {_ranked_names(folder, plan)[0]: load(folder).eval()}
    passes = finished_passes(folder, plan)
    results = {name: r for path in passes for name, r in read_results(path).items()}
    finished = {name: result for name, result in results.items() if not result.failed}
    if not finished:
        return {}
    saved = load(folder) if (folder / "config.json").is_file() else None
    frozen = _load_backbone(folder, plan, saved)
    matches = (re.fullmatch(r"gamma ([\d.e+-]+)", name) for name in plan["contenders"])
    gammas = [float(match[1]) for match in matches if match]
    candidates = create_candidates(plan["kind"], frozen.backbone, frozen.own, ("all",), gammas)
    by_name = {candidate.name: candidate for candidate in candidates}
    class_names = None if saved is None else saved.class_names
    models = {}
    for name in _ranked_names(folder, plan):
        if name in finished:
            head = load_head(passes, by_name[name], frozen)
            models[name] = frozen.create_model(head, class_names).eval()
            models[name].multi_label = saved is not None and saved.multi_label
            models[name].map_kind = finished[name].map
            models[name].map_size = finished[name].map_size
    return models


def read_plan(folder: Path) -> Options:
    """Read and check plan.json."""
    path = folder / PLAN
    try:
        plan: Options = json.loads(path.read_text())
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


def finished_passes(folder: Path, plan: Options) -> list[Path]:
    """Return the folders of the first seed's passes whose weights are complete."""
    seed = folder / f"seed-{plan.get('settings.seed', 0)}"
    return sorted(path.parent for path in seed.glob("heat-*/results.json"))


def _ranked_names(folder: Path, plan: Options) -> list[str]:
    """Return the names in the order of the report, the recommended one first."""
    try:
        report = json.loads((folder / "results.json").read_text())
        names = [row["name"] for row in report["standings"]]
        return sorted(names, key=lambda name: name != report["recommended"])
    except (OSError, ValueError, KeyError, TypeError):  # not finished yet
        return list(plan["contenders"])


def _load_backbone(folder: Path, plan: Options, saved: PooledModel | None) -> FrozenBackbone:
    """Use the saved model's weights, which need neither a download nor the original checkpoint."""
    if saved is not None:
        options = saved.backbone.options or {}
        backbone = create_backbone(saved.backbone.name, **options)
        backbone.arguments = saved.config.get("backbone_options", {})
        frozen = FrozenBackbone(backbone)
        frozen.backbone.load_state_dict(saved.backbone.state_dict())
        frozen.backbone.preprocessing = saved.backbone.preprocessing
        return frozen
    frozen = FrozenBackbone(create_backbone(plan["backbone"], pretrained=True))
    if weights_digest(frozen.backbone) != plan["weights"]:
        raise ValueError(
            f"{folder} was started with --weights: its models can be loaded when it is finished"
        )
    return frozen
