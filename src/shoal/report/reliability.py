"""Evaluation noise: the share of the variance of fitness between members that comes from the episodes alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.report.run import Run

MEMBERS, GENERATIONS = 4, 5  # the fewest that give an estimate
SURE = 2  # standard errors
VAGUE = 0.25  # a standard error above which there is no estimate


class Reliability(NamedTuple):
    """The reliability of fitness over so many episodes.

    truth: the share of the variance of fitness between members of a generation that is no noise, over all generations
    error: the standard error of that share
    """

    episodes: int
    truth: float
    error: float

    @property
    def known(self) -> bool:
        """True where members differ by significantly more than evaluation noise."""
        return self.truth > SURE * self.error

    @property
    def half(self) -> int:
        """Episodes with which half of the variance would be noise (Spearman 1910, Brown 1910)."""
        return math.ceil(self.episodes * (1 / self.truth - 1))

    def describe(self) -> str:
        """Return the share of noise as a clause, for a sentence or a heading on evaluation noise."""
        variance = "the variance of fitness between members"
        if not self.known:
            most = min(max(self.truth, 0) + SURE * self.error, 1)
            return f"with {self.episodes} episodes, at least {1 - most:.0%} of {variance} is noise"
        text = f"with {self.episodes} episodes, {1 - self.truth:.0%} of {variance} is noise"
        text += f" (standard error {self.error:.0%})"
        return text if self.truth >= 0.5 else f"{text}; {self.half} episodes would bring it to half"


def reliability(*runs: Run) -> Reliability | None:
    """The reliability of the fitness of runs; None if it is exact, not recorded, or too uncertain."""
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
    table, training = run.lineage, run.from_training
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
