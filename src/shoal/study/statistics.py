"""Statistics of a handful of seeds (Agarwal et al. 2021, arXiv 2108.13264).

Scores are [S, K]: S seeds of each of K tasks; higher is better. Seeds are the sample, tasks are strata: a resample draws
seeds anew within each task, and keeps the tasks (section 4.1). Statistics take any number of such tables: [..., S, K].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

RESAMPLES, SEED = 5_000, 0
CONFIDENCE = 0.95
POWER = 0.8
CHUNK = 2**23  # numbers that are drawn at a time, which bounds the memory that they need


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of all scores, tasks together (section 4.3): [...]."""
    return np.asarray(stats.trim_mean(scores.reshape(*scores.shape[:-2], -1), 0.25, axis=-1))


def interval(scores: np.ndarray, resamples: int = RESAMPLES) -> np.ndarray:
    """[2, ...] The ends of the interval that holds the interquartile mean with 95 % confidence, by the stratified percentile
    bootstrap: each table has its seeds drawn anew in the same ways."""
    generator, means = np.random.default_rng(SEED), []
    chunk, tail = max(1, CHUNK // scores.size), (1 - CONFIDENCE) / 2
    for first in range(0, resamples, chunk):
        rows = generator.integers(scores.shape[-2], size=(min(chunk, resamples - first), *scores.shape[-2:]))
        means.append(interquartile_mean(scores[..., rows, np.arange(scores.shape[-1])]))
    return np.quantile(np.concatenate(means, -1), [tail, 1 - tail], axis=-1)


def middle(scores: np.ndarray, resamples: int = RESAMPLES) -> np.ndarray:
    """[3, ...] The interquartile mean, and the ends of its interval; that of one seed is its own interval."""
    mean = interquartile_mean(scores)
    return np.stack([mean, *(interval(scores, resamples) if scores.shape[-2] > 1 else (mean, mean))])


def improvement(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The probability that a run of one arm scores higher than one of another, ties as half: [...].

    The mean over tasks of the Mann-Whitney statistic (section 4.3). The arms may have unlike numbers of seeds.
    """
    a, b = one[..., :, None, :], other[..., None, :, :]
    return ((a > b) + 0.5 * (a == b)).mean((-3, -2, -1))


def improvement_interval(
    one: np.ndarray, other: np.ndarray, confidence: float = CONFIDENCE
) -> tuple[np.ndarray, np.ndarray]:
    """The ends, [...] each, of an interval that holds the true `improvement` whatever the distributions are.

    It is Clopper and Pearson's (1934) of as many trials as the arm with fewer seeds has runs, on all tasks together. For the
    pairs of runs are all the ways to match those runs, each with another one of the other arm, and a matching is so
    many independent trials: their mean over matchings and tasks spreads no wider than such trials (Hoeffding 1956, 1963).
    So the interval is rather too wide than too narrow, most where both arms spread alike.
    """
    trials, tail = min(one.shape[-2], other.shape[-2]) * one.shape[-1], (1 - confidence) / 2
    won = trials * improvement(one, other)
    low, high = stats.beta.ppf(tail, won, trials - won + 1), stats.beta.ppf(1 - tail, won + 1, trials - won)
    return np.where(won > 0, low, 0.0), np.where(won < trials, high, 1.0)


def p_value(one: np.ndarray, other: np.ndarray) -> float:
    """The chance of an `improvement` as far from a half as this one, or farther, where arms do not differ.

    Two-sided and exact: of all ways to divide the runs of each task between the arms, the share that is as extreme. Runs
    of one seed are not paired, although their members may have begun alike: so the chance is rather too high than too low.
    """
    ranks = (2 * stats.rankdata(np.concatenate([one, other]), axis=0).T).astype(int)  # those of ties are halves
    ranks //= np.gcd.reduce(ranks, axis=None)
    chances = np.ones(1)  # of each sum of the ranks of `one` from the least on, over all tasks so far
    for task in ranks:
        chances = np.convolve(chances, _rank_sums(np.sort(task), len(one)))
    seen, middle = ranks[:, : len(one)].sum(), ranks.sum() * len(one) / ranks.shape[1]
    sums = np.sort(ranks)[:, : len(one)].sum() + np.arange(len(chances))
    return float(chances[np.abs(sums - middle) >= abs(seen - middle) - 1e-6].sum())


def _rank_sums(ranks: np.ndarray, count: int) -> np.ndarray:
    """The chance of each sum, from the least on, of so many of these ascending integers, drawn without replacement."""
    chances = {0: np.ones(1)}  # by how many of the integers so far are drawn, of each sum that so many can have
    for tried, rank in enumerate(ranks):
        for drawn in sorted(chances, reverse=True):
            sums, chance = chances.pop(drawn), (count - drawn) / (len(ranks) - tried)  # that this one is drawn
            if chance > 0:
                without = chances.get(drawn + 1, np.empty(0))
                chances[drawn + 1] = np.zeros(rank - ranks[drawn] + len(sums))
                chances[drawn + 1][: len(without)] = without
                chances[drawn + 1][-len(sums) :] += chance * sums
            if chance < 1:
                chances[drawn] = (1 - chance) * sums
    return chances[count]


def holm(p: np.ndarray) -> np.ndarray:
    """p-values [M] of M comparisons, corrected for their number (Holm 1979): the smallest counts M times, and so on."""
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(corrected, 1.0)[np.argsort(order)]


def shares(analyses: Sequence[int]) -> list[float]:
    """Shares of the error of 5 % of interim analyses after so many seeds: in proportion to the seeds between them."""
    return [(n - before) / analyses[-1] for before, n in itertools.pairwise([0, *analyses])]


def p_of_analyses(tables: Sequence[tuple[np.ndarray, np.ndarray]], shares: Sequence[float]) -> float:
    """The p-value of two arms that are compared several times, the runs of one time among those of the next.

    Each counts against its share of the error alone, and the best of them stays. By Bonferroni's inequality that keeps the
    error, however the times hang together and whenever a study ends. Left out are times at which the arm was behind that
    is ahead by now: they are no evidence for it.
    """
    ahead = [np.sign(improvement(one, other) - 0.5) for one, other in tables]
    timed = zip(tables, shares, ahead, strict=True)
    return min(1.0, *(p_value(one, other) / share for (one, other), share, sign in timed if sign == ahead[-1]))


def least_p(one: int, other: int, tasks: int) -> float:
    """The least p-value that arms with so many runs on each task can have."""
    # By logarithms: among a million runs the number of ways to divide them has a million digits.
    ways = math.lgamma(one + other + 1) - math.lgamma(one + 1) - math.lgamma(other + 1)
    return 2 * math.exp(-tasks * ways)


def seeds_needed(differences: np.ndarray, level: float) -> int | None:
    """Seeds by which two arms are significantly different at this level in four of five studies.

    The arms differ on each task [K] by so many standard deviations of normal scores (Noether 1987, for the mean of the
    tasks' statistics). None where no number of seeds would do.
    """
    ahead = stats.norm.cdf(differences / np.sqrt(2)).mean() - 0.5
    if not ahead > 0:
        return None
    needed = math.ceil(_margin(level) ** 2 / (6 * len(differences) * ahead**2))
    return next(n for n in itertools.count(max(2, needed)) if least_p(n, n, len(differences)) < level)


def least_difference(seeds: int, tasks: int, level: float) -> float:
    """The difference in standard deviations, equal on all tasks, that so many seeds show in four of five studies;
    infinite where that takes arms whose runs hardly overlap."""
    ahead = _margin(level) / math.sqrt(6 * tasks * seeds)
    return math.inf if ahead >= 0.5 else float(np.sqrt(2) * stats.norm.ppf(0.5 + ahead))


def _margin(level: float) -> float:
    """Standard errors of a difference that is significant at a level, two-sided, in four of five studies."""
    return float(stats.norm.ppf(1 - level / 2) + stats.norm.ppf(POWER))


def profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs that score above each threshold: [T] (performance profile, section 4.2)."""
    return (scores.reshape(-1, 1) > thresholds).mean(0)
