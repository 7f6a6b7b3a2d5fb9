"""Early stopping: whether the best fitness of the generations still improves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from shoal.core.candidates import SMOOTHING
from shoal.core.population import Tie


@dataclass(frozen=True)
class Trend:
    """The course of the best fitness of a generation, which may stop a run early.

    One such fitness is partly luck, so improvement is one of the mean of several. All means are of equally many, because a
    mean of fewer is lucky more often. Where something breaks ties, means are compared as `ranks` does it.

    recent: of the last SMOOTHING generations that have one, the newest last
    highest: the highest mean of so many, once there is one
    since: generations since then, or since the mean of what breaks ties has risen while this one was tied
    errors, tie_breakers: of the ties of so many generations; of those alone where the tie-breaker is finite
    highest_error, highest_tie_breaker: their means, of the last improvement; None where there are too few
    """

    recent: list[float] = field(default_factory=list)
    highest: float | None = None
    since: int = 0
    errors: list[float] = field(default_factory=list)
    tie_breakers: list[float] = field(default_factory=list)
    highest_error: float = 0.0
    highest_tie_breaker: float | None = None

    def after(self, best: float, tie: Tie | None = None) -> Trend:
        """Return the state after one more generation. best: its best fitness, -inf if no member had one."""
        recent, errors, tie_breakers = self.recent, self.errors, self.tie_breakers
        if np.isfinite(best):
            recent = [*recent, best][-SMOOTHING:]
            errors = [*errors, tie.error][-SMOOTHING:] if tie else errors
            if tie and np.isfinite(tie.tie_breaker):
                tie_breakers = [*tie_breakers, tie.tie_breaker][-SMOOTHING:]
        new = replace(self, recent=recent, errors=errors, tie_breakers=tie_breakers)
        if len(recent) < SMOOTHING:
            return new
        mean, error = _mean(recent), _mean(errors) * (1 + 1e-9)  # as in `ranks`
        mean_tie_breaker = _mean(tie_breakers) if len(tie_breakers) == SMOOTHING else None
        if self.highest is None or mean - error > self.highest:
            return replace(new, highest=mean, since=0, highest_error=error, highest_tie_breaker=mean_tie_breaker)
        tied, before = mean >= self.highest - self.highest_error, self.highest_tie_breaker
        if tied and mean_tie_breaker is not None and (before is None or mean_tie_breaker > before):
            highest, error = max((mean, error), (self.highest, self.highest_error))
            return replace(new, highest=highest, since=0, highest_error=error, highest_tie_breaker=mean_tie_breaker)
        return replace(new, since=self.since + 1)


def _mean(values: list[float]) -> float:
    """Return the exact mean, which does not depend on the order of the values."""
    return math.fsum(x / SMOOTHING for x in values)
