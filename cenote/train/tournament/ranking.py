"""Rank the results of a tournament, and say honestly what the differences mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ...metrics.arrays import Array
from ...metrics.intervals import behind_best
from ...report.tournament import CandidateResult, TournamentReport

CLS_LEAD = 5.0  # points by which CLS must lead before the recommendation explains why
CEILING = 98.0  # percent of the images; better pools can hardly be distinguished
Results = Sequence[CandidateResult]


def conclude(report: TournamentReport, groups: Sequence[str]) -> None:
    """Add ties, winners of the `groups` in their order, and the recommendation to a report."""
    results = report.standings
    compare(results)
    report.groups = group_winners(sorted(results, key=lambda r: groups.index(r.group)))
    for result in results:
        result.group_winner = report.groups.get(result.group) == result.name
    choice = recommended(results)
    report.recommended = choice.name if choice else None
    sentences = [
        _too_easy(results),
        recommendation(results, frozen=report.recipe is None),
        _map_warning(choice, report.centred_box),
    ]
    report.recommendation = " ".join(filter(None, sentences))


def rank(results: Results) -> list[CandidateResult]:
    """Sort by mean accuracy, the best first, candidates that failed last."""
    return sorted(results, key=lambda result: -result.mean if result.finished else math.inf)


def compare(results: Results) -> None:
    """Add to each finished result how far it is behind the first, and whether it is a tie."""
    finished = [result for result in results if result.finished]
    if not finished:
        return
    behind, margins = _behind_best([result.outcomes for result in finished])
    for result, difference, margin in zip(finished, behind, margins, strict=True):
        result.behind, result.margin = float(difference), float(margin)
        result.tie = bool(len(finished) > 1 and difference <= margin)
    if sum(result.tie for result in finished) == 1:
        finished[int(np.argmin(behind))].tie = False  # the first alone is not a tie


def _behind_best(outcomes: Sequence[Sequence[Array]]) -> tuple[Array, Array]:
    """Return `behind_best` in percent of the outcomes of each candidate and seed."""
    behind, margins = behind_best(np.array(outcomes, np.float64))
    return 100 * behind, 100 * margins


def ties(results: Results) -> list[CandidateResult]:
    """Return the best candidate and all that are tied with it, the best first."""
    finished = [result for result in rank(results) if result.finished]
    return [result for i, result in enumerate(finished) if i == 0 or result.tie]


def group_winners(results: Results) -> dict[str, str]:
    """Return the name of the best candidate of each group, in the order of the groups."""
    winners: dict[str, CandidateResult] = {}
    for result in results:
        best = winners.get(result.group)
        if result.finished and (best is None or result.mean > best.mean):
            winners[result.group] = result
    return {group: winner.name for group, winner in winners.items()}


def recommended(results: Results) -> CandidateResult | None:
    """Return the smallest of the tied candidates with the best maps that are nearly as accurate.

    Without boxes all maps are equal. None if all candidates failed.
    """
    close = most_accurate(best_maps(ties(results)))
    return min(close, key=lambda result: (result.parameters, -result.mean), default=None)


def most_accurate(tied: list[CandidateResult]) -> list[CandidateResult]:
    """Return the first and those behind it by at most half of the interval of a tie."""
    return [r for r in tied if r is tied[0] or tied[0].mean - r.mean <= (r.margin or 0) / 2]


def best_maps(tied: list[CandidateResult]) -> list[CandidateResult]:
    """Return those whose boxes are behind the best by at most half of the interval of a tie."""
    with_boxes = [result for result in tied if result.boxes]
    if not with_boxes:
        return tied
    behind, margins = _behind_best([result.box_outcomes for result in with_boxes])
    return [result for i, result in enumerate(with_boxes) if behind[i] <= margins[i] / 2]


def recommendation(results: Results, frozen: bool = True) -> str:
    """Return one sentence that names the candidate to take, and its ties."""
    tied = ties(results)
    if not tied:
        return "No candidate finished: the table says why."
    best, choice = tied[0], recommended(results)
    assert choice is not None
    about_cls = _about_cls(best, results) if frozen else ""
    seeds = min(len(result.accuracy) for result in tied)
    if seeds < 2:
        ahead = f"{best.name} is ahead with {best.mean:.1f}"
        if choice is not best:
            advantage = _advantage(choice, tied)
            ahead += f", tied with {choice.name}, which is saved because {advantage}"
        return f"{ahead}, but one seed decides nothing: run with --seeds 3 or more."
    finished = [result for result in rank(results) if result.finished]
    if len(finished) == 1:
        return (
            f"{best.name} reaches {_score(best)} over {seeds} seeds; no other candidate finished."
        )
    if len(tied) == 1:
        second = finished[1]
        return (
            f"Take {best.name}: {_score(best)} over {seeds} seeds, {second.behind:.1f} above "
            f"{second.name}; other images and seeds could change that by {second.margin:.1f}"
            f"{about_cls}."
        )
    others = _join([result.name for result in tied if result not in (best, choice)])
    smallest = f"and {_advantage(choice, tied)}{about_cls}"
    smallest += "; other images and seeds could reverse their order."
    if choice is best:
        return (
            f"Take {best.name}: it is first with {_score(best)} over {seeds} seeds, tied with "
            f"{others}, {smallest}"
        )
    also = f" and with {others}" if others else ""
    return (
        f"Take {choice.name}: {_score(choice)} is tied with the first, {best.name} with "
        f"{_score(best)}, over {seeds} seeds{also}, {smallest}"
    )


def _advantage(choice: CandidateResult, tied: list[CandidateResult]) -> str:
    equal = best_maps(tied)
    close = most_accurate(equal)
    superlative = "smallest" if len(close) > 1 else "most accurate"
    if len(close) == len(tied):
        return "it is the smallest of them"
    if len(equal) == len(tied):
        if len(close) == 1:
            return "the others are behind by more than half of what other images could change"
        return f"it is the smallest of the {len(close)} most accurate ones"
    boxes = f"boxes {fmean(choice.boxes):.1f}"
    if len(equal) == 1:
        return f"its map is the best of theirs ({boxes})"
    return f"it is the {superlative} of the {len(equal)} with the best maps ({boxes})"


def _too_easy(results: Results) -> str:
    """Say that the images cannot tell the pools apart, if most pools have nearly all right."""
    tied, finished = ties(results), [result for result in results if result.finished]
    if len(tied) < 2 or len(tied) < len(finished) / 2 or tied[0].mean < CEILING:
        return ""
    return (
        f"This set is too easy to tell the pools apart: {len(tied)} of {len(finished)} are tied "
        f"with the first, which has {tied[0].mean:.1f}%."
    )


def _map_warning(choice: CandidateResult | None, centred_box: float | None) -> str:
    if choice is None or centred_box is None or not choice.boxes:
        return ""
    boxes = fmean(choice.boxes)
    if boxes >= centred_box:
        return ""
    return (
        f"The map of {choice.name} is worse than a fixed box in the middle (boxes {boxes:.1f}, the "
        f"fixed box {centred_box:.1f}): do not use it to localize."
    )


def _score(result: CandidateResult) -> str:
    return f"{result.mean:.1f} ± {result.deviation:.1f}"


def _about_cls(best: CandidateResult, results: Results) -> str:
    """Explain a CLS token that is far better than every pool over the patches."""
    patches = [result for result in results if result.finished and result.tokens == "patches"]
    if not patches or best in patches:
        return ""
    second = max(patches, key=lambda result: result.mean)
    if best.mean - second.mean < CLS_LEAD:
        return ""
    return (
        "; an encoder trained with CLS keeps its information in CLS, and the best pool over its "
        f"frozen patches, {second.name}, is {best.mean - second.mean:.1f} behind"
    )


def _join(names: Sequence[str], limit: int = 4) -> str:
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
