"""The protocols of `cenote evaluate`, each joined to its pictures: judge, draw, say."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cenote.data import Dataset
    from cenote.models import PooledModel
    from cenote.train.judged import Judged


@dataclass
class Session:
    """What every protocol is given."""

    run: Path
    model: PooledModel
    parts: Judged
    out: Path | None  # where pictures go
    batch: int
    workers: int
    seed: int = 0
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.options = {"batch": self.batch, "workers": self.workers}

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], object]]:
        from tqdm import tqdm

        with tqdm(total=total, desc=what, unit="image", disable=None, leave=False) as bar:
            yield bar.update

    def picture(self, name: str) -> Path | None:
        """Where a picture goes, if anywhere."""
        if self.out is None:
            return None
        self.out.mkdir(parents=True, exist_ok=True)
        return self.out / name

    def memory(self, what: str) -> Dataset:
        if self.parts.train is None:
            raise ValueError(f"{what} needs training images in {self.parts.judged.name}, apart from what is judged")
        return self.parts.train


Told = tuple[dict[str, Any], str]  # for results.json, and to print


def classify(session: Session) -> Told:
    from cenote.evaluate.classify import classify

    with session.progress("classify", len(session.parts.judged)) as progress:
        report = classify(session.model, session.parts.judged, progress=progress, **session.options)
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    if report["unknown_class"]:
        lines.append(f"left out: {report['unknown_class']} images of classes that the model does not know")
    where = f"{report['images']} images of {session.parts.name}"
    lines.append(f"{where}: top-1 {report['accuracy']:.2f}, top-5 {report['top5']:.2f}")
    return report, "\n".join(lines)


def knn(session: Session) -> Told:
    from cenote.evaluate.classify import neighbours

    memory = session.memory("k-NN")
    report = neighbours(session.model, memory, session.parts.judged, **session.options)
    lines = [f"{key.removeprefix('knn_')} nearest neighbours: {value:.2f}" for key, value in report.items()]
    return dict(report), "\n".join(lines)


def linear(session: Session) -> Told:
    from cenote.evaluate.linear import linear_probe

    train, val = session.memory("a linear probe"), session.parts.val
    if val is None:
        raise ValueError(f"a linear probe needs validation images in {session.parts.judged.name} to choose its decay")
    report = linear_probe(session.model, train, val, session.parts.judged, **session.options)
    return dict(report), f"linear probe: {report['linear']:.2f} (decay {report['linear_decay']:g})"


def localize(session: Session) -> Told:
    from cenote.evaluate.localize import localize
    from cenote.evaluate.thresholds import save_threshold
    from cenote.show.localization import write_localization
    from cenote.show.localization_text import localization_text

    parts = session.parts
    with session.progress("localize", len(parts.judged) + (0 if parts.val is None else len(parts.val))) as progress:
        result = localize(session.model, parts.judged, parts.val, progress=progress, **session.options)
    if result.threshold is not None:
        save_threshold(session.run, result, parts.judged.name, result.report["threshold_from"])
        if session.out is not None:
            write_localization(result, session.out)
    lines = [f"left out: {sentence}" for sentence in result.report["unreadable"]]
    return result.report, "\n".join([*lines, localization_text(result.report)])


def discover(session: Session) -> Told:
    from cenote.evaluate.discover import METHODS, discover
    from cenote.show.discovery import table, write_pages

    judged = session.parts.judged
    with session.progress("discover", len(judged)) as progress:
        report = discover(session.model, judged, list(METHODS), workers=session.workers, progress=progress)
    if session.out is not None:
        session.out.mkdir(parents=True, exist_ok=True)
        write_pages(report, judged, session.out)
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    return report, "\n".join([*lines, table(report)])


def segment(session: Session) -> Told:
    from tempfile import TemporaryDirectory

    from cenote.show.segmentation import segmentation_page
    from cenote.train.segment import SEGMENT, segment

    train, judged = session.memory("linear segmentation"), session.parts.judged
    with TemporaryDirectory() as nowhere:
        folder = Path(nowhere) if session.out is None else session.out / "segment"
        resume = (folder / "checkpoint.pt").exists()
        found = segment(session.model, train, judged, folder, SEGMENT, resume=resume, say=lambda sentence: None)
    if (page := session.picture("segmentation.jpg")) is not None:
        order = sorted(found.scores, key=lambda place: found.scores[place])
        shown = [*order[:4], *order[-4:]] if len(order) > 8 else order
        heading = f"{_title(session)} · the worst four and the best four of {len(order)}"
        predicted = found.predict(judged, shown)
        segmentation_page(judged, {i: predicted[i] for i in shown}, found.scores, heading).save(page, quality=92)
    report = found.report
    text = f"linear segmentation: mIoU {report['miou']:.2f}, mAcc {report['macc']:.2f}, aAcc {report['aacc']:.2f}"
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    return report, "\n".join([*lines, f"{text} ({report['images']} images)"])


def background(session: Session) -> Told:
    from cenote.data.backgrounds import VARIANTS
    from cenote.evaluate.background import background
    from cenote.show.robustness import draw_variant_bars, variant_sheet
    from cenote.show.robustness_text import background_text

    judged = session.parts.judged
    with session.progress("background", len(judged) * len(VARIANTS)) as progress, _kept(session, "background") as kept:
        report = background(session.model, judged, seed=session.seed, progress=progress, **kept, **session.options)
    if (bars := session.picture("background.png")) is not None:
        draw_variant_bars(report, _title(session)).savefig(bars, dpi=110)
        place = next((i for i in range(len(judged)) if judged.has_masks[i] and judged.labels[i] >= 0), 0)
        variant_sheet(judged, place, session.seed).save(bars.with_name("variants.jpg"), quality=92)
    return report, background_text(report)


def corruption(session: Session) -> Told:
    from cenote.data.corruptions import CORRUPTIONS, SEVERITIES
    from cenote.evaluate.corruption import corruption
    from cenote.show.robustness import corruption_sheet, draw_corruption_bars, severity_sheet
    from cenote.show.robustness_text import corruption_text

    judged = session.parts.judged
    passes = len(CORRUPTIONS) * len(SEVERITIES) + 1
    with session.progress("corruption", len(judged) * passes) as progress, _kept(session, "corruption") as kept:
        report = corruption(session.model, judged, seed=session.seed, progress=progress, **kept, **session.options)
    if (bars := session.picture("corruption.png")) is not None:
        draw_corruption_bars(report, _title(session)).savefig(bars, dpi=110)
        corruption_sheet(judged.image(0), 3).save(bars.with_name("corruptions.jpg"), quality=92)
        severity_sheet(judged.image(0)).save(bars.with_name("severities.jpg"), quality=92)
    return report, corruption_text(report)


PROTOCOLS: dict[str, Callable[[Session], Told]] = {
    "classify": classify,
    "knn": knn,
    "linear": linear,
    "localize": localize,
    "discover": discover,
    "segment": segment,
    "background": background,
    "corruption": corruption,
}


def _title(session: Session) -> str:
    config = session.model.config
    return f"{session.parts.judged.name} · {config['backbone']} + {config['pool']}"


@contextmanager
def _kept(session: Session, protocol: str) -> Iterator[dict[str, Any]]:
    """Passes that are done, in a file beside the pictures: a killed run goes on behind them."""
    if session.out is None:
        yield {}
        return
    from cenote.data.files import write_atomically

    path = session.out / f".{protocol}.json"
    session.out.mkdir(parents=True, exist_ok=True)
    judged = session.parts.judged
    identity = [str(session.run.resolve()), judged.name, session.parts.name, len(judged), session.seed]
    try:
        found = json.loads(path.read_text())
        done = dict(found["done"]) if found["of"] == identity else {}
    except (OSError, ValueError, KeyError, TypeError):
        done = {}

    def keep(name: str, value: dict[str, Any]) -> None:
        done[name] = value
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps({"of": identity, "done": done}))

    yield {"kept": done, "keep": keep}
    path.unlink(missing_ok=True)
