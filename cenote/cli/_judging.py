"""The protocols of `cenote evaluate`, each joined to its pictures: judge, draw, say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arguments import pluralize, print_message
from ._keeping import goes_on, kept_passes
from ._retrieving import retrieve
from ._session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from PIL.Image import Image

    from cenote.data import Dataset
    from cenote.evaluate.localize import Localization


Told = tuple[dict[str, Any], str]  # for results.json, and to print


def classify(session: Session) -> Told:
    from cenote.evaluate.classify import classify

    with session.progress("classify", len(session.parts.judged)) as progress:
        report = classify(session.model, session.parts.judged, progress=progress, **session.options)
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    if report["unknown_class"]:
        lines.append(
            f"left out: {pluralize(report['unknown_class'], 'image')} of classes that the model does not know"
        )
    where = f"{pluralize(report['images'], 'image')} of {session.parts.name}"
    lines.append(f"{where}: top-1 {report['accuracy']:.2f}, top-5 {report['top5']:.2f}")
    return report, "\n".join(lines)


def knn(session: Session) -> Told:
    from cenote.evaluate.classify import neighbours

    memory = session.memory("k-NN")
    report = neighbours(session.model, memory, session.parts.judged, **session.options)
    lines = [
        f"{key.removeprefix('knn_')} nearest neighbours: {value:.2f}"
        for key, value in report.items()
    ]
    return dict(report), "\n".join(lines)


def linear(session: Session) -> Told:
    from cenote.evaluate.linear import linear_probe

    train, val = session.memory("a linear probe"), session.parts.val
    if val is None:
        raise ValueError(
            f"a linear probe needs validation images in {session.parts.judged.name} to choose its decay"
        )
    report = linear_probe(session.model, train, val, session.parts.judged, **session.options)
    return dict(report), f"linear probe: {report['linear']:.2f} (decay {report['linear_decay']:g})"


def localize(session: Session) -> Told:
    from cenote.evaluate.localize import localize
    from cenote.report.html.evaluation_blocks import localize_blocks
    from cenote.report.localization import write_localization
    from cenote.report.localization_text import localization_text

    parts = session.parts
    with session.progress(
        "localize", len(parts.judged) + (0 if parts.val is None else len(parts.val))
    ) as progress:
        result = localize(
            session.model, parts.judged, parts.val, progress=progress, **session.options
        )
    lines = [f"left out: {sentence}" for sentence in result.report["unreadable"]]
    lines.append(localization_text(result.report))
    session.draw("curve.png, cases.jpg", lambda folder: write_localization(result, folder))
    session.show("localize", lambda folder: localize_blocks(result))
    _keep_threshold(session, result)
    return result.report, "\n".join(lines)


def _keep_threshold(session: Session, result: Localization) -> None:
    """For `cenote localize`: what validation images chose, and an oracle's only where there is nothing better."""
    from cenote.evaluate.calibration import save_threshold
    from cenote.predict.thresholds import FILE, read_threshold

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
        print_message(
            f"the threshold was not kept ({why}): cenote localize --threshold {result.threshold:.2f} uses it"
        )


def discover(session: Session) -> Told:
    from cenote.evaluate.discover import METHODS, discover
    from cenote.report.discovery import table, write_pages
    from cenote.report.html.found import discover_blocks

    judged = session.parts.judged
    journal = None if session.out is None else session.out / ".sightings.jsonl"
    with session.progress("discover", len(judged)) as progress:
        report = discover(
            session.model,
            judged,
            list(METHODS),
            workers=session.workers,
            progress=progress,
            journal=journal,
        )
    session.draw("discover_*.jpg", lambda folder: write_pages(report, judged, folder))
    session.show("discover", lambda folder: discover_blocks(report, judged))
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    return report, "\n".join([*lines, table(report)])


def segment(session: Session) -> Told:
    from tempfile import TemporaryDirectory

    from cenote.report.html.evaluation_blocks import sheet_blocks
    from cenote.report.segmentation import segmentation_page
    from cenote.train.engine import Stopped
    from cenote.train.segment import SEGMENT, segment

    train, judged = session.memory("linear segmentation"), session.parts.judged
    with TemporaryDirectory() as nowhere:
        folder = Path(nowhere) if session.out is None else session.out / "segment"
        resume = goes_on(session, folder)
        try:
            found = segment(
                session.model,
                train,
                judged,
                folder,
                SEGMENT,
                resume=resume,
                say=lambda sentence: None,
            )
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
    alt = "Photographs, their true parts and those that were told, the worst and the best"
    session.show(
        "segment", lambda folder: sheet_blocks(folder / "segmentation.jpg", "Segmentation", alt)
    )
    report = {
        **found.report,
        "images": len(found.scores),
    }  # without those whose mask could not be read
    text = f"linear segmentation: mIoU {report['miou']:.2f}, mAcc {report['macc']:.2f}, aAcc {report['aacc']:.2f}"
    lines = [f"left out: {sentence}" for sentence in report["unreadable"]]
    return report, "\n".join([*lines, f"{text} ({pluralize(report['images'], 'image')})"])


def background(session: Session) -> Told:
    from cenote.data.backgrounds import VARIANTS
    from cenote.evaluate.background import background, is_imagenet_9
    from cenote.report.html.evaluation_blocks import background_blocks
    from cenote.report.robustness import draw_variant_bars, variant_sheet
    from cenote.report.robustness_text import background_text

    judged = session.parts.judged
    published = is_imagenet_9(judged)
    total = len(judged) * (1 if published else len(VARIANTS))
    with session.progress("background", total) as progress:
        kept = kept_passes(session, "background", masks=not published)
        report = background(
            session.model, judged, seed=session.seed, progress=progress, **kept, **session.options
        )
    session.draw_one("background.png", lambda: draw_variant_bars(report, session.title))
    places = (
        []
        if published
        else [i for i in range(len(judged)) if judged.has_masks[i] and judged.labels[i] >= 0]
    )
    place = _first_readable(judged, places)
    if place is not None:
        session.draw_one("variants.jpg", lambda: variant_sheet(judged, place, session.seed))
    session.show(
        "background",
        lambda folder: background_blocks(
            report, folder / "variants.jpg" if place is not None else None
        ),
    )
    return report, background_text(report)


def corruption(session: Session) -> Told:
    from cenote.data.corruptions import CORRUPTIONS, SEVERITIES
    from cenote.evaluate.corruption import as_judged, corruption, is_imagenet_c
    from cenote.report.html.evaluation_blocks import corruption_blocks
    from cenote.report.robustness import corruption_sheet, draw_corruption_bars, severity_sheet
    from cenote.report.robustness_text import corruption_text

    judged = session.parts.judged
    published = is_imagenet_c(judged)
    passes = 1 if published else len(CORRUPTIONS) * len(SEVERITIES) + 1
    with session.progress("corruption", len(judged) * passes) as progress:
        kept = kept_passes(session, "corruption")
        report = corruption(
            session.model, judged, seed=session.seed, progress=progress, **kept, **session.options
        )
    session.draw_one("corruption.png", lambda: draw_corruption_bars(report, session.title))
    place = _first_readable(judged, [] if published else range(len(judged)))
    if place is not None:

        def shown(name: str, severity: int) -> Image:
            return as_judged(judged, session.seed, session.model, name, severity).image(place)

        session.draw_one("corruptions.jpg", lambda: corruption_sheet(judged.image(place), shown, 3))
        session.draw_one("severities.jpg", lambda: severity_sheet(shown))
    session.show(
        "corruption",
        lambda folder: corruption_blocks(
            report, folder / "corruptions.jpg" if place is not None else None
        ),
    )
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
GO_ON = (
    "discover",
    "segment",
    "background",
    "corruption",
)  # with a folder, an interrupted one does


def _first_readable(dataset: Dataset, places: Iterable[int]) -> int | None:
    from cenote.data import BadImage

    for place in places:
        try:
            dataset.image(place)
        except BadImage:
            continue
        return place
    return None
