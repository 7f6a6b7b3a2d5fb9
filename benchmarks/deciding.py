"""What it takes to decide for all members of a large population, as every rank of a run over MPI does.

The baseline is what no rank can do without: the stats of all members, made from the rows that were gathered, and sorted by
fitness. Random numbers come from one stream for all members; beside it stands a generator for each of them.

    python benchmarks/deciding.py [--members 8000 80000] [--selectors truncation ...] [--repeats 5]
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from common import table

from shoal.core.keys import draws
from shoal.core.population import PopulationStats
from shoal.core.space import Range, SearchSpace
from shoal.distributed.rows import from_rows, to_rows
from shoal.methods.explore import Perturb
from shoal.methods.pbt import Pbt
from shoal.methods.select import SELECTORS

SPACE = {f"h{i}": Range(0.1, 10.0, "log") for i in range(8)}


def least(repeats: int, call: Callable[[int], object]) -> float:
    """The least milliseconds of a call, which is given its number."""
    took = []
    for i in range(repeats):
        began = time.perf_counter()
        call(i)
        took.append(time.perf_counter() - began)
    return 1e3 * min(took)


def figures(selector: str, members: int, repeats: int) -> list[str]:
    """A row: milliseconds of the baseline, of deciding, and of luck by a generator for each member."""
    evolver = Pbt(select=SELECTORS[selector](), explore=Perturb()).evolver(SearchSpace(SPACE, {}, {}), members)
    uid = np.arange(members)
    evolution, hyper = evolver.init((0,), uid)
    whole, fitness = np.zeros(members, np.int64), np.random.default_rng(0).normal(size=members)
    stats = PopulationStats(uid, whole, whole, fitness, np.ones(members), whole + 8, hyper)
    rows = to_rows(stats, {}, [])
    base = least(repeats, lambda _: np.argsort(from_rows(rows, stats, {})[0].fitness))
    decide = least(repeats, lambda i: evolver.decide((i,), evolution, stats, uid))
    one = least(repeats, lambda i: draws((i,), uid, 2))
    each = least(1, lambda i: [np.random.default_rng((i, int(u))).random(2) for u in uid])
    return [selector, f"{members:,}", *(f"{ms:.3g}" for ms in (base, decide, one, each)), f"{each / one:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[8_000, 80_000])
    parser.add_argument(
        "--selectors", nargs="+", choices=list(SELECTORS), default=["truncation", "tournament", "t_test"]
    )
    parser.add_argument("--repeats", type=int, default=5)
    a = parser.parse_args()
    columns = ("selector", "members", "stats and sorting ms", "deciding ms", "luck ms", "of generators ms", "ratio")
    table("deciding for all", columns, [figures(s, n, a.repeats) for n in a.members for s in a.selectors])


if __name__ == "__main__":
    main()
