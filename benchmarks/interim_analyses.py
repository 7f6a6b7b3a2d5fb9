"""Familywise error and power of studies with interim analyses (group-sequential), simulated with the study's own test.

A study ends as soon as all of its pairs of arms are significantly different. Each arm has normal scores on each task. The
first arm of a case is ahead of the others by so many standard deviations; the others are equal, and if it is ahead by none,
all are. An error is a pair of equal arms that is significantly different.

    python benchmarks/interim_analyses.py --studies 10000 --naive
"""

from __future__ import annotations

import argparse
from itertools import combinations

import numpy as np

from shoal.study.compare import LEVEL
from shoal.study.statistics import holm, p_of_analyses, p_value, shares


def study(scores: np.ndarray, analyses: list[int], naive: bool) -> tuple[set[tuple[int, int]], int]:
    """Return the pairs of arms that are significantly different, and the number of seeds after which the study ended.

    scores: [arms, seeds, tasks]. analyses: numbers of seeds. naive: each analysis counts as if it were the only one
    """
    pairs, parts = list(combinations(range(len(scores)), 2)), shares(analyses)
    found: set[tuple[int, int]] = set()
    for k in range(len(analyses)):
        tables = [[(scores[a, :n], scores[b, :n]) for n in analyses[: k + 1]] for a, b in pairs]
        raw = [min(p_value(*t) for t in each) if naive else p_of_analyses(each, parts[: k + 1]) for each in tables]
        found = {pair for pair, p in zip(pairs, holm(np.array(raw)), strict=True) if p < LEVEL}
        if len(found) == len(pairs):
            break
    return found, analyses[k]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--analyses", type=int, nargs="+", default=[5, 10, 15, 20])
    parser.add_argument("--cases", nargs="+", default=["2,1,0", "2,2,0", "4,1,0", "4,1,2", "2,1,1.5", "2,1,3"])
    parser.add_argument(
        "--naive", action="store_true", help="also by the same test without a correction for interim analyses"
    )
    given = parser.parse_args()
    print(f"analyses after {given.analyses} seeds, {given.studies} studies")
    for case in given.cases:
        arms, tasks, ahead = (float(x) for x in case.split(","))
        alike = int(arms) - bool(ahead)  # those behind the first, or all
        for naive in [False, True][: 1 + given.naive]:
            errors, detected, seeds = 0, 0, 0
            for seed in range(given.studies):
                scores = np.random.default_rng(seed).normal(size=(int(arms), given.analyses[-1], int(tasks)))
                scores[0] += ahead
                found, at = study(scores, given.analyses, naive)
                errors += any(0 not in pair or alike == arms for pair in found)
                detected += bool(ahead) and sum(0 in pair for pair in found) / (arms - 1)
                seeds += at
            name = (
                f"{int(arms)} arms, {int(tasks)} tasks, ahead {ahead:g}{', each analysis by itself' if naive else ''}"
            )
            shown = [f"errors {errors / given.studies:.1%}" if alike > 1 else "errors none possible"]
            shown += [f"significantly different {detected / given.studies:.1%}"] if ahead else []
            print(f"{name}: {', '.join(shown)}, {seeds / given.studies:.1f} seeds")


if __name__ == "__main__":
    main()
