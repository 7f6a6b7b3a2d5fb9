"""The share of the differences in fitness between members that is no luck of few episodes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.report.lineage import inner
from shoal.report.run import Run

MEMBERS, GENERATIONS = 4, 5  # with fewer of them nothing is said
SURE = 2  # standard errors
VAGUE = 0.25  # a standard error that says nothing


class Reliability(NamedTuple):
    """The trust that the fitness of so many episodes deserves.

    truth: the share of the variance of fitness between members of a generation that is not luck, over all generations
    error: the standard error of that share
    """

    episodes: int
    truth: float
    error: float

    @property
    def known(self) -> bool:
        """True where the differences are larger than luck makes them."""
        return self.truth > SURE * self.error

    @property
    def half(self) -> int:
        """Episodes of which the fitness is half truth, half luck (Spearman 1910, Brown 1910)."""
        return math.ceil(self.episodes * (1 / self.truth - 1))

    def describe(self) -> str:
        """Return a sentence, without its full stop."""
        if not self.known:
            most = min(max(self.truth, 0) + SURE * self.error, 1)
            return (
                f"{self.episodes} episodes do not tell members apart: {1 - most:.0%} or more of their variance is luck"
            )
        text = f"{self.episodes} episodes tell {self.truth:.0%} (± {self.error:.0%}) of the variance between members"
        return f"{text}; the rest is luck" if self.truth >= 0.5 else f"{text}: {self.half} would tell half"


def reliability(*runs: Run) -> Reliability | None:
    """The reliability of the fitness of runs; None where it is exact, was not recorded, or too little to say."""
    if any(run.exact for run in runs):
        return None
    generations = [both for run in runs for worker in run.workers or (run,) for both in variances(worker)]
    whole, by_luck = np.array(generations).reshape(-1, 2).T
    if len(whole) < GENERATIONS or not whole.sum() > 0:
        return None
    share = by_luck.sum() / whole.sum()
    error = np.sqrt(np.square(by_luck - share * whole).sum()) / whole.sum()
    if error > VAGUE:
        return None
    return Reliability(int(np.nanmedian(runs[0].lineage.episodes)), float(1 - share), float(error))


def variances(run: Run) -> list[tuple[float, float]]:
    """Variance of fitness between members in each generation, and an unbiased estimate of its noise."""
    table, training = run.lineage, inner(run.experiment, "fitness").get("source") == "training"
    # Training episodes are each member's own. In evaluations members play the same ones, so a member's deviation over
    # episodes also has what makes these hard for all, which does not matter for who is better.
    noise = table.returns_std / np.sqrt(table.episodes) if training else run.metric("fitness/noise")
    found = []
    for fitness, of_each in zip(table.fitness, noise, strict=True):
        known = np.isfinite(fitness) & np.isfinite(of_each)
        if known.sum() >= MEMBERS:
            by_luck = np.square(of_each[known]).mean() if training else of_each[known].var(ddof=1)
            found.append((float(fitness[known].var(ddof=1)), float(by_luck)))
    return found
