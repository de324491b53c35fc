"""The protocols of `cenote evaluate`, each joined to its pictures: judge, draw, say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._given import counted, say
from ._keeping import goes_on, kept_passes
from ._retrieving import retrieve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from PIL.Image import Image

    from cenote.data import Dataset
    from cenote.evaluate.localize import Localization
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
    data: Dataset | None = None  # all of it, where no split was asked for
    without_match: str = "exclude"  # queries with nothing to find
    options: dict[str, Any] = field(init=False)
    finished: list[Path] = field(default_factory=list)  # of interrupted runs: not needed once results.json is there

    def __post_init__(self) -> None:
        self.options = {"batch": self.batch, "workers": self.workers}

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], object]]:
        from tqdm import tqdm

        with tqdm(total=total, desc=what, unit="image", disable=None, leave=False) as bar:
            yield bar.update

    def draw(self, name: str, write: Callable[[Path], object]) -> None:
        """`write` is given the folder, if there is one; a picture that fails is told and costs no figure."""
        if self.out is None:
            return
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            write(self.out)
        except Exception as error:
            say(f"{name} was not drawn: {error}")

    def draw_one(self, name: str, make: Callable[[], Any]) -> None:
        """A figure or an image, or None for none."""
        self.draw(name, lambda folder: _save(make(), folder / name))

    def tidy(self) -> None:
        """Results are written: what a killed run would have gone on with is in the way of the next."""
        for path in self.finished:
            path.unlink(missing_ok=True)
        self.finished.clear()

    @property
    def title(self) -> str:
        config = self.model.config
        return f"{self.parts.judged.name} · {config['backbone']} + {config['pool']}"

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
        lines.append(f"left out: {counted(report['unknown_class'], 'image')} of classes that the model does not know")
    where = f"{counted(report['images'], 'image')} of {session.parts.name}"
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
    from cenote.show.localization import write_localization
    from cenote.show.localization_text import localization_text

    parts = session.parts
    with session.progress("localize", len(parts.judged) + (0 if parts.val is None else len(parts.val))) as progress:
        result = localize(session.model, parts.judged, parts.val, progress=progress, **session.options)
    lines = [f"left out: {sentence}" for sentence in result.report["unreadable"]]
    lines.append(localization_text(result.report))
    session.draw("curve.png, cases.jpg", lambda folder: write_localization(result, folder))
    _keep_threshold(session, result)
    return result.report, "\n".join(lines)


def _keep_threshold(session: Session, result: Localization) -> None:
    """For `cenote localize`: what validation images chose, and an oracle's only where there is nothing better."""
    from cenote.evaluate.thresholds import FILE, read_threshold, save_threshold

    if result.threshold is None:
        return
    oracle = result.report["threshold_from"] != "val"
    try:
        before = read_threshold(session.run)
    except (OSError, ValueError):  # unreadable, damaged, or of another model
        before = None
    why = None
    if oracle and before is not None:
        why = f"it is an oracle's, and {session.run / FILE} holds one: {before.source}"
    else:
        split = session.parts.name if oracle else "val"
        try:
            save_threshold(session.run, result, session.parts.judged.name, split, oracle)
        except OSError as error:  # a shared model may be read-only
            why = f"{session.run / FILE}: {error.strerror or error}"
    if why is not None:
        say(f"the threshold was not kept ({why}): cenote localize --threshold {result.threshold:.2f} uses it")


def discover(session: Session) -> Told:
    from cenote.evaluate.discover import METHODS, discover
    from cenote.show.discovery import table, write_pages

    judged = session.parts.judged
    journal = None if session.out is None else session.out / ".sightings.jsonl"
    with session.progress("discover", len(judged)) as progress:
        report = discover(
            session.model, judged, list(METHODS), workers=session.workers, progress=progress, journal=journal
        )
    session.draw("discover_*.jpg", lambda folder: write_pages(report, judged, folder))
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    return report, "\n".join([*lines, table(report)])


def segment(session: Session) -> Told:
    from tempfile import TemporaryDirectory

    from cenote.show.segmentation import segmentation_page
    from cenote.train.engine import Stopped
    from cenote.train.segment import SEGMENT, segment

    train, judged = session.memory("linear segmentation"), session.parts.judged
    with TemporaryDirectory() as nowhere:
        folder = Path(nowhere) if session.out is None else session.out / "segment"
        resume = goes_on(session, folder)
        try:
            found = segment(session.model, train, judged, folder, SEGMENT, resume=resume, say=lambda sentence: None)
        except Stopped as stop:
            if "interrupted" in str(stop):
                raise KeyboardInterrupt from None
            raise

    def page() -> Any:
        order = sorted(found.scores, key=lambda place: found.scores[place])
        shown = [*order[:4], *order[-4:]] if len(order) > 8 else order
        heading = f"{session.title} · the worst four and the best four of {len(order)}"
        predicted = found.predict(judged, shown)
        return segmentation_page(judged, {i: predicted[i] for i in shown}, found.scores, heading)

    session.draw_one("segmentation.jpg", page)
    report = {**found.report, "images": len(found.scores)}  # without those whose mask could not be read
    text = f"linear segmentation: mIoU {report['miou']:.2f}, mAcc {report['macc']:.2f}, aAcc {report['aacc']:.2f}"
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    return report, "\n".join([*lines, f"{text} ({counted(report['images'], 'image')})"])


def background(session: Session) -> Told:
    from cenote.data.backgrounds import VARIANTS
    from cenote.evaluate.background import background, is_imagenet_9
    from cenote.show.robustness import draw_variant_bars, variant_sheet
    from cenote.show.robustness_text import background_text

    judged = session.parts.judged
    published = is_imagenet_9(judged)
    total = len(judged) * (1 if published else len(VARIANTS))
    with session.progress("background", total) as progress:
        kept = kept_passes(session, "background", masks=not published)
        report = background(session.model, judged, seed=session.seed, progress=progress, **kept, **session.options)
    session.draw_one("background.png", lambda: draw_variant_bars(report, session.title))
    places = [] if published else [i for i in range(len(judged)) if judged.has_masks[i] and judged.labels[i] >= 0]
    place = _first_readable(judged, places)
    if place is not None:
        session.draw_one("variants.jpg", lambda: variant_sheet(judged, place, session.seed))
    return report, background_text(report)


def corruption(session: Session) -> Told:
    from cenote.data.corruptions import CORRUPTIONS, SEVERITIES
    from cenote.evaluate.corruption import as_judged, corruption, is_imagenet_c
    from cenote.show.robustness import corruption_sheet, draw_corruption_bars, severity_sheet
    from cenote.show.robustness_text import corruption_text

    judged = session.parts.judged
    published = is_imagenet_c(judged)
    passes = 1 if published else len(CORRUPTIONS) * len(SEVERITIES) + 1
    with session.progress("corruption", len(judged) * passes) as progress:
        kept = kept_passes(session, "corruption")
        report = corruption(session.model, judged, seed=session.seed, progress=progress, **kept, **session.options)
    session.draw_one("corruption.png", lambda: draw_corruption_bars(report, session.title))
    place = _first_readable(judged, [] if published else range(len(judged)))
    if place is not None:

        def shown(name: str, severity: int) -> Image:
            return as_judged(judged, session.seed, session.model, name, severity).image(place)

        session.draw_one("corruptions.jpg", lambda: corruption_sheet(judged.image(place), shown, 3))
        session.draw_one("severities.jpg", lambda: severity_sheet(shown))
    return report, corruption_text(report)


PROTOCOLS: dict[str, Callable[[Session], Told]] = {
    "classify": classify,
    "knn": knn,
    "linear": linear,
    "retrieve": retrieve,
    "localize": localize,
    "discover": discover,
    "segment": segment,
    "background": background,
    "corruption": corruption,
}
GO_ON = ("discover", "segment", "background", "corruption")  # with a folder, an interrupted one does


def _first_readable(dataset: Dataset, places: Iterable[int]) -> int | None:
    from cenote.data import BadImage

    for place in places:
        try:
            dataset.image(place)
        except BadImage:
            continue
        return place
    return None


def _save(picture: Any, path: Path) -> None:
    from cenote.data import write_atomically

    if picture is None:
        return
    with write_atomically(path) as temporary:
        if hasattr(picture, "savefig"):
            picture.savefig(temporary, dpi=110)
        else:
            picture.save(temporary, quality=92)
