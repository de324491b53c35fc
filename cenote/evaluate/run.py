"""Run protocols one after the other, and write results.json, pictures and the HTML page."""

from __future__ import annotations

import json
import logging
import pkgutil
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..data.files import write_text
from ..data.splits import refuse_several_classes
from ..report.blocks import Block
from ..report.html import evaluation_page, write_page
from ..report.sheet import save_picture
from .protocol import PROTOCOLS, Evaluation, Protocol, Report

for _module in pkgutil.iter_modules([str(Path(__file__).parent)]):
    if _module.name != "run":
        import_module(f"{__package__}.{_module.name}")  # registers its protocol

log = logging.getLogger(__name__)


def run_protocols(
    evaluation: Evaluation, names: Sequence[str], command: str = ""
) -> Iterator[tuple[str, Report]]:
    """Run the protocols; yield the name and the report of each.

    With an output folder everything is written after each protocol: the next may take an hour. Of
    several protocols, those that the data or the model is not suitable for are skipped.
    """
    reports: dict[str, Report] = {}
    blocks: dict[str, list[Block]] = {}
    for name in names:
        protocol = PROTOCOLS[name]()
        try:
            if protocol.one_class:
                refuse_several_classes(evaluation.test, name)
            report = reports[name] = protocol.run(evaluation)
        except ValueError as error:
            if not reports and name == names[-1]:
                raise
            log.warning("%s is skipped: %s", name, error)
            continue
        evaluation.results[name] = report.to_json()
        if evaluation.out is not None:
            evaluation.out.mkdir(parents=True, exist_ok=True)
            blocks[name] = _draw(evaluation, evaluation.out, name, protocol, report)
            text = json.dumps(evaluation.results, indent=2, allow_nan=False) + "\n"
            write_text(evaluation.out / "results.json", text)
            seconds = time.monotonic() - evaluation.started
            try:
                images = f"{len(evaluation.test)} images of {evaluation.splits.name}"
                lead = f"{images}: {', '.join(reports)}."
                page = evaluation_page(evaluation.title, lead, reports, blocks, command, seconds)
                write_page(evaluation.out, page)
            except Exception as error:  # a page that fails must not cost the results
                log.warning("index.html was not written: %s", error)
            while evaluation.progress_files:
                evaluation.progress_files.pop().unlink(missing_ok=True)
        yield name, report


def _draw(
    evaluation: Evaluation, out: Path, name: str, protocol: Protocol[Any], report: Report
) -> list[Block]:
    """Write pictures and return blocks; a picture that fails is only logged."""
    for file, draw in protocol.pictures(evaluation, report):
        try:
            picture = draw()
            if picture is not None:
                save_picture(picture, out / file)
        except Exception as error:
            log.warning("%s was not drawn: %s", file, error)
    try:
        return protocol.blocks(evaluation, report)
    except Exception as error:
        log.warning("%s is not on the page: %s", name, error)
        return []
