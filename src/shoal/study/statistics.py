"""What a handful of seeds can say (Agarwal et al. 2021, arXiv 2108.13264).

Scores are [S, K]: S seeds of each of K tasks; higher is better. Seeds are the sample, tasks are strata: a resample draws
seeds anew within each task, and keeps the tasks (section 4.1). Statistics take any number of such tables: [..., S, K].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

RESAMPLES = 5_000
CONFIDENCE = 0.95
PERMUTATIONS = 10_000
CHUNK = 500  # resamples at a time, which bounds the memory that they need


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of all scores, tasks together (section 4.3): [...]."""
    return np.asarray(stats.trim_mean(scores.reshape(*scores.shape[:-2], -1), 0.25, axis=-1))


def interval(scores: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """The ends of the interval that holds the interquartile mean with 95 % confidence, by the stratified percentile
    bootstrap."""
    generator = np.random.default_rng(seed)
    return _ends([interquartile_mean(_resampled(scores, n, generator)) for n in _chunks(resamples)])


def improvement(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The probability that a run of one arm scores higher than one of another, ties as half: [...].

    The mean over tasks of the Mann-Whitney statistic (section 4.3). The arms may have unlike numbers of seeds.
    """
    a, b = one[..., :, None, :], other[..., None, :, :]
    return ((a > b) + 0.5 * (a == b)).mean((-3, -2, -1))


def improvement_interval(one: np.ndarray, other: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The interval of `improvement`; both arms are resampled."""
    generator = np.random.default_rng(seed)
    values = [improvement(_resampled(one, n, generator), _resampled(other, n, generator)) for n in _chunks(RESAMPLES)]
    return _ends(values)


def p_value(one: np.ndarray, other: np.ndarray, permutations: int = PERMUTATIONS, seed: int = 0) -> float:
    """The chance of an `improvement` as far from a half as this one, or farther, where arms do not differ.

    Two-sided, by permutations of runs between the arms within each task; the one that was seen counts as one of them.
    """
    generator = np.random.default_rng(seed)
    runs, seen = np.concatenate([one, other]), abs(improvement(one, other) - 0.5)
    extreme = 0
    for n in _chunks(permutations):
        mixed = generator.permuted(np.broadcast_to(runs, (n, *runs.shape)), axis=1)
        chance = improvement(mixed[:, : len(one)], mixed[:, len(one) :])
        extreme += int((np.abs(chance - 0.5) >= seen - 1e-12).sum())
    return (extreme + 1) / (permutations + 1)


def holm(p: np.ndarray) -> np.ndarray:
    """p-values [M] of M comparisons, corrected for their number (Holm 1979): the smallest counts M times, and so on."""
    order = np.argsort(p, kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    result = np.empty(len(p))
    result[order] = np.minimum(corrected, 1.0)
    return result


def profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs that score above each threshold: [T] (performance profile, section 4.2)."""
    return (scores.reshape(-1, 1) > thresholds).mean(0)


def _resampled(scores: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """[count, S, K] Tables whose seeds are drawn anew, within each task."""
    rows = generator.integers(len(scores), size=(count, *scores.shape))
    return np.take_along_axis(scores[None], rows, 1)


def _chunks(count: int) -> Iterator[int]:
    for start in range(0, count, CHUNK):
        yield min(CHUNK, count - start)


def _ends(values: list[np.ndarray]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(values), [tail, 1 - tail])
    return float(low), float(high)
