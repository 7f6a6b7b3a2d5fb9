"""Does the interval of the probability of improvement hold what it says? Simulated studies whose truth is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from shoal.study.statistics import improvement_interval

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]  # scores [studies, seeds, tasks]
STUDIES = 2_000
CASES = [(seeds, tasks) for seeds in (3, 5, 10) for tasks in (1, 2, 4)]


def normal(mean: float, std: float = 1.0) -> Draw:
    return lambda draw, shape: draw.normal(mean, std, shape)


def failing(*shares: float) -> Draw:
    """Runs that fail now and then, and otherwise do better than all that are near 0: that share of them, task by task."""
    return lambda draw, shape: np.where(draw.random(shape) < np.resize(shares, shape[-1]), -2.0, 2.0)


def heavy(shift: float) -> Draw:
    return lambda draw, shape: draw.standard_cauchy(shape) + shift


def whole(low: int, high: int) -> Draw:
    return lambda draw, shape: draw.integers(low, high, shape)


def capped(mean: float) -> Draw:
    """Scores that cannot be above a ceiling, which many reach."""
    return lambda draw, shape: np.minimum(draw.normal(mean, 1, shape), 1)


STEADY = normal(0, 0.1)
BELOW = [norm.cdf(1 - mean) for mean in (0, 1)]  # the ceiling
KINDS: dict[str, tuple[Draw, Draw, float]] = {  # two arms, and the true chance that the first scores higher
    "alike": (normal(0), normal(0), 0.5),
    "ahead by one standard deviation": (normal(1), normal(0), norm.cdf(1 / np.sqrt(2))),
    "ahead by three deviations": (normal(3), normal(0), norm.cdf(3 / np.sqrt(2))),
    "spread ten times as wide": (normal(0, 10), normal(0), 0.5),
    "spread ten times as wide, and ahead": (normal(10, 10), normal(0), norm.cdf(10 / np.sqrt(101))),
    "heavy tails": (heavy(2), heavy(0), 0.5 + np.arctan(1) / np.pi),  # the difference of two is of scale 2
    "skewed": (lambda d, s: d.exponential(3, s), lambda d, s: d.exponential(1, s), 0.75),
    "ties": (whole(1, 4), whole(0, 4), 0.625),
    "a ceiling": (  # above it: a tie half, or the first alone; both below it: as if there were none
        capped(1), capped(0), (1 - BELOW[1]) * (BELOW[0] + (1 - BELOW[0]) / 2)
        + norm.expect(lambda x: norm.cdf(x), loc=1, ub=1),
    ),
    **{f"fails in {share:.0%}": (failing(share), STEADY, 1 - share) for share in (0.05, 0.1, 0.3, 0.5)},
    "both fail": (failing(0.3), failing(0.6), 0.7 * 0.6 + (0.7 * 0.4 + 0.3 * 0.6) / 2),
}  # fmt: skip


def held(kind: tuple[Draw, Draw, float], seeds: tuple[int, int], tasks: int) -> tuple[float, float]:
    """The share of studies whose interval holds the truth, and the median width of the intervals."""
    first, second, truth = kind
    draw = np.random.default_rng([*seeds, tasks])
    one, other = (arm(draw, (STUDIES, n, tasks)) for arm, n in zip((first, second), seeds, strict=True))
    low, high = improvement_interval(one, other)
    return float(((low <= truth) & (truth <= high)).mean()), float(np.median(high - low))


@pytest.mark.parametrize(("seeds", "tasks"), CASES)
def test_it_holds_the_truth_whatever_the_distributions(seeds: int, tasks: int) -> None:
    """In 95 % of studies; 0.935 is three deviations below."""
    shares = {name: held(kind, (seeds, seeds), tasks)[0] for name, kind in KINDS.items()}
    assert min(shares.values()) > 0.935, shares


@pytest.mark.parametrize("seeds", [(3, 10), (10, 3)])
def test_of_arms_with_unlike_numbers_of_seeds(seeds: tuple[int, int]) -> None:
    assert min(held(kind, seeds, 2)[0] for kind in KINDS.values()) > 0.935


def test_of_tasks_that_disagree() -> None:
    """An arm that always fails on one task, never on another, sometimes on a third."""
    for shares in ((0.0, 1.0), (0.1, 0.9), (0.0, 0.0, 0.0, 0.4), (0.05, 0.5, 0.5, 0.95)):
        kind = (failing(*shares), STEADY, 1 - float(np.mean(shares)))
        assert min(held(kind, (n, n), len(shares))[0] for n in (3, 5, 10)) > 0.935, shares


def test_what_the_documentation_says_of_it() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) \|", _documented(), re.MULTILINE)
    assert [(int(seeds), int(tasks)) for seeds, tasks, *_ in rows] == CASES
    for seeds, tasks, least, alike, width in rows:
        shares = [held(kind, (int(seeds), int(seeds)), int(tasks)) for kind in KINDS.values()]
        assert float(least) == pytest.approx(100 * min(share for share, _ in shares), abs=1.5)
        assert float(alike) == pytest.approx(100 * shares[0][0], abs=1.5)
        assert float(width) == pytest.approx(shares[0][1], abs=0.03)


def _documented() -> str:
    return (Path(__file__).parents[2] / "docs/explanation/statistics.md").read_text()
