"""Retrieval in `cenote evaluate`: which images ask, which are asked, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cenote.data import Dataset

    from ._session import Session

ONE_CLASS = "all of them are of one class: every neighbour is right, these figures say nothing"


def retrieve(session: Session) -> tuple[dict[str, Any], str]:
    from cenote.evaluate.landmarks import are_landmarks
    from cenote.evaluate.retrieve import retrieve
    from cenote.report.html.evaluation_blocks import retrieve_blocks
    from cenote.report.retrieval import retrieval_page, retrieval_text

    if session.data is not None and are_landmarks(session.data):
        return _landmarks(session, session.data)
    queries, gallery, where = _sets(session)
    total = len(queries) + (0 if gallery is None else len(gallery))
    with session.progress("retrieve", total) as progress:
        lone = session.without_match
        found = retrieve(
            session.model, queries, gallery, without_match=lone, progress=progress, **session.options
        )  # fmt: skip
    report = {**found.report, "of": where}
    within = queries if gallery is None else gallery
    session.draw_one(
        "retrieval.jpg", lambda: retrieval_page(report["cases"], queries, within, session.title)
    )
    session.show("retrieve", lambda folder: retrieve_blocks(report["cases"], queries, within))
    text = retrieval_text(report, where)
    return report, f"{text}\n{ONE_CLASS}" if report["classes"] == 1 and gallery is None else text


def _sets(session: Session) -> tuple[Dataset, Dataset | None, str]:
    """Queries, their gallery (None: they are their own) and a name.

    In-Shop has a split for each. A run of cenote metric is judged on what it held out itself: whole classes.
    """
    data = session.data
    if data is not None and {"query", "gallery"} <= set(data.splits):
        return data.split("query"), data.split("gallery"), "query"
    unseen = None if data is None else _unseen(session.run, data)
    return (
        (session.parts.judged, None, session.parts.name)
        if unseen is None
        else (unseen, None, "unseen classes")
    )


def fold_note(run: Path) -> str | None:
    """A run of the fair protocol trained four models or more, of which one is judged here."""
    try:
        report = json.loads((run / "results.json").read_text())
        fold = report["fold"] if report["protocol"] == "fair" else None
    except (OSError, ValueError, KeyError, TypeError):  # no such run
        return None
    if fold is None:
        return None
    return f"{run} holds several models: judged is the one that validated best, {fold}; results.json has their mean"


def _unseen(run: Path, data: Dataset) -> Dataset | None:
    """The images of the classes that the run held out, if this is the data it learned from."""
    from cenote.data.class_splits import class_names, class_splits

    try:
        report = json.loads((run / "results.json").read_text())
        held = class_splits(data).test if report["task"] == "metric" else None
        return held if held is not None and class_names(held) == report["classes"]["test"] else None
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
    ):  # no run of ours, or data that nothing can be held out of
        return None


def _landmarks(session: Session, dataset: Dataset) -> tuple[dict[str, Any], str]:
    from cenote.evaluate.landmarks import landmarks
    from cenote.report.retrieval import landmarks_text

    with session.progress("retrieve", len(dataset)) as progress:
        report = landmarks(session.model, dataset, progress=progress, **session.options)
    return report, landmarks_text(report)
