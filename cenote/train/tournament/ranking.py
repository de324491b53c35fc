"""What the numbers of a tournament say, and what they do not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from .candidates import Entry

FAR = 5.0  # points by which CLS must win before the encoder itself is named as the reason


@dataclass
class Standing:
    """What became of an entry: one value a seed, accuracy being that on test images where there are any."""

    entry: Entry
    lr: float | None = None
    accuracy: list[float] = field(default_factory=list)
    val: list[float] = field(default_factory=list)
    boxes: list[float] = field(default_factory=list)  # MaxBoxAccV2 in percent
    map: str | None = None  # of which kind: pool, cam, cls
    threshold: float | None = None  # that makes the best boxes of the first seed's maps
    failed: str | None = None

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def mean(self) -> float:
        return fmean(self.accuracy) if self.accuracy else float("nan")

    @property
    def deviation(self) -> float:
        return stdev(self.accuracy) if len(self.accuracy) > 1 else 0.0


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """The best first, those that did not finish last."""
    return sorted(standings, key=lambda s: -s.mean if s.accuracy else math.inf)


def noise(standings: Sequence[Standing], images: int) -> float:
    """How far two means may lie apart by the chance of the seeds alone: two standard errors of a difference.

    The deviation is pooled over all entries, since three seeds of one say little about it. Less than one of the
    images is never a difference.
    """
    several = [s for s in standings if len(s.accuracy) > 1]
    least = 100 / max(images, 1)
    if not several:
        return least
    pooled = math.sqrt(fmean(s.deviation**2 for s in several))
    return max(2 * pooled * math.sqrt(2 / min(len(s.accuracy) for s in several)), least)


def ties(standings: Sequence[Standing], images: int) -> list[Standing]:
    """The best, and all that cannot be told from it, the best first."""
    played = [s for s in ranked(standings) if s.accuracy]
    slack = noise(standings, images) + 1e-9
    return [s for s in played if played[0].mean - s.mean <= slack]


def group_winners(standings: Sequence[Standing]) -> dict[str, str]:
    """The best of each group, groups in the order in which they entered."""
    winners: dict[str, Standing] = {}
    for one in standings:
        if one.accuracy and (
            one.entry.group not in winners or one.mean > winners[one.entry.group].mean
        ):
            winners[one.entry.group] = one
    return {group: winner.name for group, winner in winners.items()}


def recommended(
    standings: Sequence[Standing], parameters: Mapping[str, int], images: int
) -> Standing | None:
    """Of those that cannot be told apart the one with the fewest parameters."""
    tied = ties(standings, images)
    return min(tied, key=lambda s: (parameters[s.name], -s.mean)) if tied else None


def recommendation(
    standings: Sequence[Standing], parameters: Mapping[str, int], images: int
) -> str:
    """One sentence that is honest about ties, about one seed, and about what CLS knows."""
    tied = ties(standings, images)
    if not tied:
        return "No contender finished: the table says why."
    best, taken = tied[0], recommended(standings, parameters, images)
    assert taken is not None
    seeds = min(len(s.accuracy) for s in tied)
    score = f"{best.mean:.1f} ± {best.deviation:.1f}"
    if seeds < 2:
        return f"{best.name} is ahead with {best.mean:.1f}, but one seed decides nothing: run with --seeds 3 or more."
    if len(tied) == 1 and len([s for s in standings if s.accuracy]) == 1:
        return f"{best.name} reaches {score} over {seeds} seeds, but nobody else finished to compare it with."
    if len(tied) == 1:
        second = next(s for s in ranked(standings) if s is not best)
        told = f"Take {best.name}: {score} over {seeds} seeds, {best.mean - second.mean:.1f} above {second.name}"
        return f"{told} and beyond the noise of the seeds{_about_cls(best, standings)}."
    slack = noise(standings, images)
    if taken is best:
        told = f"Take {best.name}: it is first with {score} over {seeds} seeds, though {_names(tied[1:])}"
        return (
            f"{told} cannot be told from it (differences up to {slack:.1f} are noise), and it is the smallest of "
            f"them{_about_cls(best, standings)}."
        )
    others = [s for s in tied if s not in (best, taken)]
    also = f", nor can {_names(others)}" if others else ""
    return (
        f"Take {taken.name}: {taken.mean:.1f} ± {taken.deviation:.1f} cannot be told from the first, {best.name} with "
        f"{score}, over {seeds} seeds{also} (differences up to {slack:.1f} are noise), and it is the smallest of "
        f"them{_about_cls(best, standings)}."
    )


def _about_cls(best: Standing, standings: Sequence[Standing]) -> str:
    """Said where CLS, alone or pooled with the patches, leaves every pool over the patches far behind."""
    patches = [
        s for s in standings if s.accuracy and s.entry.tokens == "patches" and s.entry.pool != "cls"
    ]
    if not patches or best in patches:
        return ""
    second = max(patches, key=lambda s: s.mean)
    if best.mean - second.mean < FAR:
        return ""
    return (
        f"; a CLS-trained encoder keeps its information in CLS, and the best pool over its frozen patches, "
        f"{second.name}, stays {best.mean - second.mean:.1f} behind"
    )


def _names(standings: Sequence[Standing], most: int = 4) -> str:
    names = [s.name for s in standings]
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
