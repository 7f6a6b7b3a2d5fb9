"""The tables of a page of docs/results, from the CSV file of a study there: arms, every pair of arms, and means of
tasks.

    python benchmarks/tables.py default-ten-seeds
"""

import argparse
from collections.abc import Sequence

import numpy as np
from figures import comparisons, returns, scores

from shoal.study import statistics


def arms(scaled: dict[str, np.ndarray]) -> None:
    """Print every arm of scores [S, K], the best first."""
    print("| arm | interquartile mean | 95 % interval | mean | seeds |\n|---|---:|---:|---:|---:|")
    for arm in sorted(scaled, key=lambda arm: -statistics.interquartile_mean(scaled[arm])):
        middle, low, high = statistics.middle(scaled[arm])
        print(f"| {arm} | {middle:.4g} | {low:.4g} to {high:.4g} | {scaled[arm].mean():.4g} | {len(scaled[arm])} |")


def means(found: dict[str, dict[str, np.ndarray]]) -> None:
    """Print the mean score of every arm on every task."""
    tasks = list(next(iter(found.values())))
    print(f"\n| mean | {' | '.join(tasks)} |\n|---|{'---:|' * len(tasks)}")
    for arm, of in found.items():
        print(f"| {arm} | {' | '.join(f'{of[task].mean():.4g}' for task in tasks)} |")


def pairs(scaled: dict[str, np.ndarray], shown: Sequence[tuple[str, str]]) -> None:
    """Print these pairs of arms, corrected for the number of all."""
    known = comparisons(scaled)
    print("\n| arm | against | probability of improvement | p |\n|---|---|---:|---:|")
    for one, other in shown:
        print(f"| {one} | {other} | {known[one, other].cells()} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="the name of a CSV file of docs/results")
    study = parser.parse_args().study
    scaled = scores(study)
    arms(scaled)
    pairs(scaled, [(one, other) for one in scaled for other in scaled if one != other])
    means(returns(study))


if __name__ == "__main__":
    main()
