"""The models that are served: saved ones, and the contenders of a tournament over their one backbone."""

from __future__ import annotations

import json
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..models import PooledModel, load
from ..models.attend import possible
from ..predict.open_model import class_names
from ..predict.thresholds import FILE, Threshold, threshold_for
from ..train.tournament.load import open_contenders, read_plan, trained_heats
from .questions import Refusal, names_only
from .runs import Served

MOST = 4  # saved models in memory at a time; contenders share their backbone and stay


class Opened(NamedTuple):
    model: PooledModel
    folder: Path  # where a threshold was kept, if one was
    family: str  # models of one family share their backbone
    own: Threshold | None = None  # a contender's


class Models:
    """Opened when they are first asked for."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.recent: OrderedDict[str, Opened] = OrderedDict()  # saved ones
        self.contenders: dict[str, Opened] = {}
        self.thresholds: dict[tuple[str, str], Threshold] = {}
        self.saved: dict[str, Path] = {}
        self.rows: list[dict[str, Any]] = []
        self.heats: tuple[Path, ...] | None = None  # that were over when contenders were opened
        for folder in served.models:
            self._note(folder)
        self.own = list(self.rows)
        self.refresh()

    def refresh(self) -> bool:
        """Open what a tournament has trained since; whether there was something."""
        played = self.served.tournaments
        over = tuple(heat for folder in played for heat in trained_heats(folder, read_plan(folder)))
        ends = ("config.json", "results.json")
        over += tuple(
            path for folder in played for name in ends if (path := folder / name).is_file()
        )
        if over == self.heats:
            return False
        before = self.contenders, self.rows
        self.contenders, self.rows = {}, list(self.own)
        try:
            for folder in played:
                self._open_tournament(folder)
        except Exception:  # files that are being written: next time
            self.contenders, self.rows = before
            raise
        self.thresholds.clear()
        self.heats = over
        return True

    def get(self, name: str) -> Opened:
        if name in self.contenders:
            return self.contenders[name]
        if name not in self.saved:
            raise Refusal(404, f"there is no model '{name[:80]}' here: /api/about lists them")
        if name not in self.recent:
            self.recent[name] = Opened(load(self.saved[name]).eval(), self.saved[name], name)
        self.recent.move_to_end(name)
        while len(self.recent) > MOST:
            self.recent.popitem(last=False)
        return self.recent[name]

    def threshold(self, name: str, kind: str, given: float | None) -> Threshold:
        """As `cenote localize` takes it; settled once, because settling looks at an empty picture."""
        opened, asked = self.get(name), (name, kind if given is None else f"{kind} given")
        if opened.own is not None and given is None and kind in ("auto", opened.own.kind):
            return opened.own
        if asked not in self.thresholds:
            try:
                found = threshold_for(opened.model, opened.folder, given, kind)
            except (ValueError, ImportError) as error:
                raise Refusal(400, names_only(str(error))) from None
            self.thresholds[asked] = found._replace(source=names_only(found.source))
        kept = self.thresholds[asked]
        return kept if given is None else kept._replace(value=given)

    def _note(self, folder: Path) -> None:
        name = self._free(folder.resolve().name)
        self.saved[name] = folder
        model = self.get(name).model
        self._add(name, model, _accuracy(folder), False)

    def _open_tournament(self, folder: Path) -> None:
        try:
            found = open_contenders(folder)
        except (ValueError, OSError):
            if (folder / "config.json").is_file():  # it is over, and still they cannot be opened
                raise
            found = {}  # begun with a checkpoint of its own: they come when it is over
        report = _results(folder)
        ranked = {row["name"]: row for row in report.get("standings", ())}
        for title, model in found.items():
            name = self._free(title)
            best = title == report.get("recommended")
            where = folder if best else next(iter(trained_heats(folder, read_plan(folder))))
            row = ranked.get(title, {})
            self.contenders[name] = Opened(
                model, where, str(folder), None if (where / FILE).is_file() else _own(row, model)
            )
            first = next(
                iter(row.get("accuracy") or ()), None
            )  # the model is the first seed's, and so is this
            self._add(name, model, first, best)

    def _add(
        self, name: str, model: PooledModel, accuracy: float | None, recommended: bool
    ) -> None:
        pool = "cls" if model.pool is None else model.pool.name
        self.rows.append(
            {
                "id": name, "name": name, "pool": pool, "backbone": model.backbone.name,
                "classes": len(class_names(model) or ()), "maps": _maps(model), "accuracy": accuracy,
                "recommended": recommended,
            }
        )  # fmt: skip

    def _free(self, name: str) -> str:
        """Two runs of the same name are told apart by a number."""
        taken = {row["id"] for row in self.rows}
        return next(
            n for i in range(1, 1000) if (n := name if i == 1 else f"{name} ({i})") not in taken
        )


def _accuracy(folder: Path) -> float | None:
    """On test, else on validation images, in percent."""
    report = _results(folder)
    judged = report.get("test") or report.get("val")
    return float(judged["accuracy"]) if isinstance(judged, dict) and "accuracy" in judged else None


def _maps(model: PooledModel) -> list[str]:
    """Those that can be made here: Grad-CAM has a package of its own."""
    there = find_spec("pytorch_grad_cam") is not None
    return [kind for kind in possible(model) if kind != "gradcam" or there]


def _own(row: dict[str, Any], model: PooledModel) -> Threshold | None:
    """What made a contender's best boxes, where the tournament had boxes to judge by."""
    value, kind = row.get("threshold"), row.get("map")
    if value is None or kind not in possible(model):
        return None
    source = "the best on the images that the tournament judged boxes on, an oracle's"
    return Threshold(value, kind, model.backbone.preprocessing.size, source)


def _results(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "results.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def pool_groups() -> dict[str, str]:
    """The group of every pool, as a tournament's table has it."""
    from ..pooling import list_pools
    from ..pooling.registry import entry

    groups = {name: entry(name).group_name for name in list_pools()}
    return groups | {"cls": "CLS", "simpool [CLS; patches]": "CLS"}
