"""Rank the results of a tournament, and say honestly what the differences mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from ...metrics.intervals import wilson_interval
from ...report.tournament import CandidateResult, TournamentReport

CLS_LEAD = 5.0  # points by which CLS must lead before the recommendation explains why
CEILING = 98.0  # percent of the images; better pools can hardly be distinguished
Results = Sequence[CandidateResult]


def conclude(report: TournamentReport, groups: Sequence[str]) -> None:
    """Add ties, winners of the `groups` in their order, and the recommendation to a report."""
    results, images = report.standings, report.images
    tied = {result.name for result in ties(results, images)}
    report.groups = group_winners(sorted(results, key=lambda r: groups.index(r.group)))
    for result in results:
        result.tie = len(tied) > 1 and result.name in tied
        result.group_winner = report.groups.get(result.group) == result.name
    choice = recommended(results, images, report.box_images)
    report.recommended = choice.name if choice else None
    sentences = [
        _too_easy(results, images),
        recommendation(results, images, report.box_images, frozen=report.recipe is None),
        _map_warning(choice, report.centred_box),
    ]
    report.recommendation = " ".join(filter(None, sentences))
    report.noise = noise(results, images)


def rank(results: Results) -> list[CandidateResult]:
    """Sort by mean accuracy, the best first, candidates that failed last."""
    return sorted(results, key=lambda result: -result.mean if result.accuracy else math.inf)


def noise(results: Results, images: int) -> float:
    """Return the largest difference of two means that the seeds may explain.

    It is two standard errors of a difference; the deviation is pooled over all candidates, since
    three seeds of one candidate say little about it. It is at least one of the images.
    """
    repeated = [result for result in results if len(result.accuracy) > 1]
    one_image = 100 / max(images, 1)
    if not repeated:
        return one_image
    pooled = math.sqrt(fmean(result.deviation**2 for result in repeated))
    seeds = min(len(result.accuracy) for result in repeated)
    return max(2 * pooled * math.sqrt(2 / seeds), one_image)


def ties(results: Results, images: int) -> list[CandidateResult]:
    """Return the best candidate and all that are tied with it, the best first."""
    finished = [result for result in rank(results) if result.accuracy]
    tolerance = noise(results, images) + 1e-9
    return [result for result in finished if finished[0].mean - result.mean <= tolerance]


def group_winners(results: Results) -> dict[str, str]:
    """Return the name of the best candidate of each group, in the order of the groups."""
    winners: dict[str, CandidateResult] = {}
    for result in results:
        best = winners.get(result.group)
        if result.accuracy and (best is None or result.mean > best.mean):
            winners[result.group] = result
    return {group: winner.name for group, winner in winners.items()}


def recommended(results: Results, images: int, box_images: int = 0) -> CandidateResult | None:
    """Return the smallest of the tied candidates whose maps are best; None if all failed.

    Without boxes all maps are equal.
    """
    equal = best_maps(ties(results, images), box_images)
    return min(equal, key=lambda result: (result.parameters, -result.mean), default=None)


def best_maps(tied: list[CandidateResult], box_images: int) -> list[CandidateResult]:
    """Return those whose boxes are not worse than the best ones beyond the sampling of images."""
    scores = {result.name: fmean(result.boxes) for result in tied if result.boxes}
    if not scores or not box_images:
        return tied
    best = max(scores.values())
    lowest = 100 * wilson_interval(best / 100, box_images)[0]
    return [result for result in tied if scores.get(result.name, -1.0) >= lowest]


def recommendation(results: Results, images: int, box_images: int = 0, frozen: bool = True) -> str:
    """Return one sentence that names the candidate to take, its ties and the noise."""
    tied = ties(results, images)
    if not tied:
        return "No candidate finished: the table says why."
    best, choice = tied[0], recommended(results, images, box_images)
    assert choice is not None
    about_cls = _about_cls(best, results) if frozen else ""
    seeds = min(len(result.accuracy) for result in tied)
    if seeds < 2:
        ahead = f"{best.name} is ahead with {best.mean:.1f}"
        if choice is not best:
            advantage = _advantage(choice, tied, box_images)
            ahead += f", tied with {choice.name}, which is saved because {advantage}"
        return f"{ahead}, but one seed decides nothing: run with --seeds 3 or more."
    finished = [result for result in rank(results) if result.accuracy]
    if len(finished) == 1:
        return (
            f"{best.name} reaches {_score(best)} over {seeds} seeds; no other candidate finished."
        )
    if len(tied) == 1:
        second = finished[1]
        return (
            f"Take {best.name}: {_score(best)} over {seeds} seeds, {best.mean - second.mean:.1f} "
            f"above {second.name}, which is more than the noise of the seeds"
            f"{about_cls}."
        )
    others = _join([result.name for result in tied if result not in (best, choice)])
    noise_note = f"(differences up to {noise(results, images):.1f} are noise)"
    smallest = f"and {_advantage(choice, tied, box_images)}{about_cls}."
    if choice is best:
        return (
            f"Take {best.name}: it is first with {_score(best)} over {seeds} seeds, tied with "
            f"{others} {noise_note}, {smallest}"
        )
    also = f" and with {others}" if others else ""
    return (
        f"Take {choice.name}: {_score(choice)} is tied with the first, {best.name} with "
        f"{_score(best)}, over {seeds} seeds{also} {noise_note}, {smallest}"
    )


def _advantage(choice: CandidateResult, tied: list[CandidateResult], box_images: int) -> str:
    equal = best_maps(tied, box_images)
    if len(equal) == len(tied):
        return "it is the smallest of them"
    boxes = f"boxes {fmean(choice.boxes):.1f}"
    if len(equal) == 1:
        return f"its map is the best of theirs ({boxes})"
    return f"it is the smallest of the {len(equal)} with the best maps ({boxes})"


def _too_easy(results: Results, images: int) -> str:
    """Say that the images cannot tell the pools apart, if most pools have nearly all right."""
    tied, finished = ties(results, images), [result for result in results if result.accuracy]
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
    patches = [result for result in results if result.accuracy and result.tokens == "patches"]
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
