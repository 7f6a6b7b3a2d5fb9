"""Significant differences between arms, by the runs that are done; and how many seeds these take."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, count, product
from typing import NamedTuple

import numpy as np

from shoal.records.words import many
from shoal.report.rendering import prose
from shoal.study import statistics
from shoal.study.results import Results
from shoal.study.study_file import Study

LEVEL = 0.05  # of the p-value, after Holm's correction, below which arms are significantly different
SMALL = 0.05  # a difference that matters, as a share of the scale of a task


class Pair(NamedTuple):
    """Two arms compared.

    improvement: probability of improvement, that a run of the first scores higher than one of the second; low, high: its
    interval
    """

    one: str
    other: str
    improvement: float
    low: float
    high: float
    p: float  # corrected for the numbers of comparisons and of interim analyses
    least: float  # that p could be with so many seeds
    seeds: int  # of the arm that has fewer

    @property
    def summary(self) -> str:
        """The comparison in a sentence."""
        if self.p < LEVEL:
            better, worse = (self.one, self.other) if self.improvement > 0.5 else (self.other, self.one)
            improvement = max(self.improvement, 1 - self.improvement)
            found = f"{better} is significantly better than {worse}: probability of improvement {improvement:.0%}"
        else:
            found = f"{self.one} and {self.other} are not significantly different with {many(self.seeds, 'seed')}"
        return f"{found} (p = {self.p:.2g})."


class Comparison:
    """The statistics of a study's results. Arms with fewer than two seeds done are left out.

    scores: by arm [S, K], as they are compared; reached: the same, NaN for runs without a champion
    without: how many runs of each arm have no champion
    middles: of each arm with a champion on every task the interquartile mean and the ends of its interval; the highest first
    ranked: the arms in the order of their middles, then those without
    pairs: those of arms that are asked about; analyses: the numbers of seeds by which they have been compared
    """

    def __init__(self, results: Results):
        self.results = results
        self.reached = {arm: x for arm in results.study.arms if len(x := results.scores(arm)) > 1}
        self.scores = {arm: results.counted(arm) for arm in self.reached}
        self.without = {arm: int(np.isnan(x).sum()) for arm, x in self.reached.items()}
        whole = [arm for arm, x in self.reached.items() if np.isfinite(x).any(0).all()]
        middles = {arm: statistics.middle(self.scores[arm]) for arm in whole}
        self.middles = dict(sorted(middles.items(), key=lambda item: -item[1][0]))
        self.ranked = [*self.middles, *(arm for arm in self.scores if arm not in self.middles)]
        self.analyses = analysed(results)
        self.pairs = compared(results, self.analyses)


def analysed(results: Results) -> list[int]:
    """The numbers of seeds after which arms have been compared so far: the interim analyses of which no run is missing.

    A study that names none has one analysis, of all that is done.
    """
    study = results.study
    if not study.interim_analyses:
        return [study.seeds]
    over = {*results.outcomes, *results.failures}
    runs = (key for task, arm in product(study.all_tasks, study.arms) for key in study.runs(task, arm))
    missing = [key.seed for key in runs if key not in over]
    return [n for n in study.interim_analyses if n <= min(missing, default=n)]


def compared(results: Results, analyses: list[int]) -> list[Pair]:
    """The pairs of arms that are asked about, as far as they have two seeds at the first of these analyses."""
    tables = [_scores(results, n) for n in analyses]
    pairs = [pair for pair in asked(results.study) if tables and all(arm in tables[0] for arm in pair)]
    shares = statistics.shares(results.study.interim_analyses or analyses)[: len(analyses)]
    raw = [statistics.p_of_analyses([(table[a], table[b]) for table in tables], shares) for a, b in pairs]
    found = []
    for (a, b), p in zip(pairs, statistics.holm(np.array(raw)).tolist(), strict=True):
        one, other, times = tables[-1][a], tables[-1][b], len(pairs) / shares[-1]
        ends = statistics.improvement_interval(one, other, 1 - (1 - statistics.CONFIDENCE) / times)
        better, low, high = map(float, (statistics.improvement(one, other), *ends))
        least = times * statistics.least_p(len(one), len(other), one.shape[1])
        found.append(Pair(a, b, better, low, high, p, least, min(len(one), len(other))))
    return found


def asked(study: Study) -> list[tuple[str, str]]:
    """The pairs of arms that a study asks about: all, where it names none."""
    return study.pairs or list(combinations(study.arms, 2))


def stopped(results: Results) -> int | None:
    """The interim analysis at which all pairs that are asked about differ significantly, where the study ends; None where it
    goes on."""
    analyses = analysed(results) if results.study.interim_analyses else []
    for k, n in enumerate(analyses):
        found = compared(results, analyses[: k + 1])
        if len(found) == len(asked(results.study)) and all(pair.p < LEVEL for pair in found):
            return n
    return None


def _scores(results: Results, seeds: int) -> dict[str, np.ndarray]:
    """Scores of the runs of the first seeds, by arm; of arms that have at least two of them."""
    first = replace(results, outcomes={key: o for key, o in results.outcomes.items() if key.seed < seeds})
    return {arm: first.counted(arm) for arm in results.study.arms if len(first.seeds(arm)) > 1}


def least_seeds(study: Study) -> int:
    """The smallest number of seeds of each arm with which the test of a study can find any difference significant."""
    level, tasks = _level(study), len(study.all_tasks)
    return next(n for n in count(2) if statistics.least_p(n, n, tasks) < level)


def _level(study: Study) -> float:
    """The level of a single comparison at the last analysis: corrected for the numbers of comparisons and of analyses."""
    shares = statistics.shares(study.interim_analyses or [study.seeds])
    return LEVEL / max(1, len(asked(study))) * shares[-1]


def seeds_summary(results: Results) -> str:
    """A summary of how many seeds a significant difference takes, from the standard deviations so far."""
    study, tasks, level = results.study, len(results.study.all_tasks), _level(results.study)
    if not asked(study):
        return ""
    tables = list(_scores(results, study.seeds).values())
    scaled, needed = any("scale" in task for task in study.tasks.values()), None
    if tables:
        size = np.ones(tasks) if scaled else np.ptp(np.concatenate(tables), axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = SMALL * size / np.sqrt(np.mean([table.var(0, ddof=1) for table in tables], 0))
        needed = statistics.seeds_needed(np.nan_to_num(ratio, nan=0.0, posinf=np.inf), level)
    return prose(
        "study_seeds", seeds=study.seeds, share=f"{SMALL:.0%}", known=bool(tables), scaled=scaled, needed=needed,
        least=least_seeds(study),
        difference=statistics.least_difference(study.seeds, tasks, level),
    )  # fmt: skip
