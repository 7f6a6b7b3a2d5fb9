"""How much of the differences in fitness between members is luck of few episodes, in runs that are there.

Two estimates for each arm, over the generations of all its runs. *True*: the share of the variance of fitness between
members that is no luck, from two halves of the episodes, where runs recorded it; and the episodes that would tell half.
*Kept*: the share of a member's lead that is still there one generation later, by regression on the fitness with which its
weights left the generation before; a slope, so that it does not matter who was copied for a high fitness. That needs nothing
but fitness, but leads that were learned or lost since then count too.

    python benchmarks/luck_of_fitness.py studies/default/runs
"""

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from common import table

from shoal.experiment.experiment import Experiment
from shoal.report.lineage import Lineage
from shoal.report.reliability import GENERATIONS, MEMBERS, reliability
from shoal.report.run import Run, read_run
from shoal.run.train import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="?", type=Path, help="folder with finished runs (default: one is made, a short one)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.runs is None:
            sizes = {"population": MEMBERS, "generations": GENERATIONS, "interval": 512}
            train(Experiment("CartPole-v1", method="pbt", run_dir=f"{folder}/pbt/0", **sizes))
        root = options.runs or Path(folder)
        arms: dict[str, list[Run]] = defaultdict(list)
        for result in sorted(root.rglob("result.json")):
            run = read_run(result.parent)
            if len(run.lineage.uids) >= MEMBERS:
                arms[str(result.parent.parent.relative_to(root))].append(run)
    rows = [[name, str(len(runs)), *estimates(runs)] for name, runs in arms.items()]
    table("What is true of the fitness of members", ["", "runs", "episodes", "true", "episodes for half", "kept"], rows)


def estimates(runs: list[Run]) -> list[str]:
    """The episodes and the estimates of an arm."""
    found, slope, error = reliability(*runs), *kept([run.lineage for run in runs])
    episodes = f"{np.nanmedian(runs[0].lineage.episodes):.0f}"
    half = str(found.half) if found and found.known else "–"
    true = f"{found.truth:.0%} ± {found.error:.0%}" if found else "–"
    return [episodes, true, half, f"{slope:.0%} ± {error:.0%}"]


def kept(lineages: list[Lineage]) -> tuple[float, float]:
    """The slope of the fitness of members on that of whom they come from, within generations; and its standard error."""
    sums = []
    for lineage in lineages:
        for row, (above, columns) in enumerate(zip(*lineage.sources, strict=True)):
            known = (columns >= 0) & np.isfinite(lineage.fitness[row])
            before, after = lineage.fitness[above[known], columns[known]], lineage.fitness[row, known]
            if known.sum() >= MEMBERS and np.isfinite(before).all():
                (whole, both), _ = np.cov(before, after)
                sums.append((whole, both))
    whole, both = np.array(sums).T
    slope = both.sum() / whole.sum()
    return float(slope), float(np.sqrt(np.square(both - slope * whole).sum()) / whole.sum())


if __name__ == "__main__":
    main()
