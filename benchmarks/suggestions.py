"""Where methods send their children: learning rates that learn nothing or destroy, and the corners of the space.

A toy of PPO in wide ranges, as those of ARLBench: eight hyperparameters, of which the learning rate alone has five decades.
A member's skill rises in proportion to its rate up to an optimum, which lies lower for those that are skilled already; above
that it rises less, then falls, and higher still the member diverges. The others change how fast. What is measured of it is
the skill with an error of the member's own, and one that all members of a generation share, because each generation plays
other episodes: `shared` is its part of the variance of a change of fitness. `on noise` nothing depends on anything.

    python benchmarks/suggestions.py [--before SRC]

SRC is the folder `src` of another version, which is measured beside this one.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from common import last_json, table

from shoal.core.population import PopulationStats, PureEvolver
from shoal.core.space import Range, SearchSpace
from shoal.methods.components import make_method
from shoal.methods.ranges import at_bound, places

SPACE = {
    "learning_rate": Range(1e-6, 0.1, "log"),
    "discount": Range(0.8, 0.9999, "one_minus_log"),
    "trace": Range(0.8, 0.9999, "one_minus_log"),
    "clip": Range(0.01, 0.5, "log"),
    "entropy_weight": Range(1e-5, 0.5, "log"),
    "value_weight": Range(0.0, 1.0),
    "max_gradient": Range(0.05, 10.0, "log"),
    "epochs": Range(1, 20, "log", integer=True),
}
OPTIMA = np.array([0.5, 0.6, 0.65, 0.5, 0.4, 0.4, 0.6])  # of all but the learning rate, in the unit scale
FASTEST = 0.08  # of the skill that is left, in one interval
ERROR = 0.02  # of one measurement of the skill
LOW, DIVERGES = 2e-6, 0.02  # learning rates
FIGURES = ("low", "high", "bounds", "decades", "skill", "noise")


def learned(skill: np.ndarray, hyper: dict[str, np.ndarray]) -> np.ndarray:
    """How much more skill members [N] have after an interval; NaN where they diverge."""
    decades = _decades(skill, hyper)
    pace = np.where(decades < 0, 10.0**decades, 1 - decades**2)
    at = np.column_stack([places(SPACE[name], hyper[name]) for name in SPACE if name != "learning_rate"])
    pace *= np.where(pace > 0, (1 - np.square(at - OPTIMA)).prod(1), 1)
    change = FASTEST * np.where(pace > 0, pace * (1 - skill), pace * skill)
    return np.where(hyper["learning_rate"] > DIVERGES, np.nan, change)


def _decades(skill: np.ndarray, hyper: dict[str, np.ndarray]) -> np.ndarray:
    """How many decades learning rates lie above the optimum, [N]."""
    return np.log10(hyper["learning_rate"]) - np.log10(2e-3) + skill


def live(
    evolver: PureEvolver, seed: int, members: int, generations: int, shared: float, noise: bool
) -> dict[str, float]:
    """The figures of one population."""
    chance, everybody = np.random.default_rng(seed), np.arange(members)
    spread = np.sqrt(shared / (1 - shared) * (ERROR**2 + (FASTEST / 4) ** 2 / 2))
    skill, nothing = np.full(members, 0.05), np.full(members, np.nan)
    state, hyper = evolver.init((seed, 0), everybody)
    rates, bounds, decades, found = [], [], [], []
    for generation in range(generations):
        if not noise:
            skill = np.clip(skill + learned(skill, hyper), 0, 1)
        fitness = skill + ERROR * chance.normal(size=members) + spread * chance.normal()
        whole = np.full(members, generation)
        seen = PopulationStats(everybody, whole, 1000 * (whole + 1), fitness, nothing, whole, hyper)
        state, decision = evolver.decide((seed, generation), state, seen, everybody)
        skill, hyper = skill[decision.parents], decision.hyper
        born = decision.parents != everybody
        if generation >= generations // 4:  # those before are mostly what members began with
            rates += hyper["learning_rate"][born].tolist()
            decades += np.abs(_decades(skill, hyper))[born].tolist()
            bounds += np.concatenate([at_bound(r, hyper[name][born]) for name, r in SPACE.items()]).tolist()
            found.append(decision.metrics.get("pb2/noise", np.nan))
    return {
        "low": float(np.mean(np.array(rates) < LOW)),
        "high": float(np.mean(np.array(rates) > DIVERGES)),
        "bounds": float(np.mean(bounds)),
        "decades": float(np.median(decades)),
        "skill": float(np.nanmax(skill)),
        "noise": float(np.median(found)),
    }


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Of every method the mean of its figures over the seeds, and the standard error of its skill."""
    rows = {}
    for name in options.methods:
        for noise in (False, True):
            evolver = make_method(name).evolver(SearchSpace(SPACE, {}, {}), options.population)
            runs = [
                live(evolver, seed, options.population, options.generations, options.shared, noise)
                for seed in range(options.seeds)
            ]
            figures = [float(np.mean([run[figure] for run in runs])) for figure in FIGURES]
            error = np.std([run["skill"] for run in runs]) / np.sqrt(len(runs))
            rows[f"{name}{', on noise' * noise}"] = [*figures, float(error)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--methods", nargs="+", default=["pbt", "pb2"], metavar="NAME", help="(default: pbt pb2)")
    add("--before", type=Path, metavar="SRC", help="another version's folder src, measured too")
    add("--seeds", type=int, default=20, help="populations of each (default: %(default)s)")
    add("--population", type=int, default=8, help="(default: %(default)s)")
    add("--generations", type=int, default=40, help="(default: %(default)s)")
    add("--shared", type=float, default=0.8, help="of the variance of changes, by episodes (default: %(default)s)")
    add("--json", action="store_true", help="figures instead of a table")
    options = parser.parse_args()
    rows = measure(options)
    if options.json:
        print(json.dumps(rows))
        return
    if options.before:
        command = [sys.executable, __file__, *sys.argv[1:], "--json"]
        before = last_json(command, PYTHONPATH=str(options.before.resolve()))
        rows |= {f"{name}, before": row for name, row in before.items()}
    columns = ["", f"below {LOW:g}", f"above {DIVERGES:g}", "at bounds", "decades off", "best skill", "pb2/noise"]
    lines = []
    for name, (low, high, bounds, decades, skill, noise, error) in rows.items():
        if "on noise" in name:
            decades = skill = error = np.nan
        shown = [
            f"{low:.0%}",
            f"{high:.0%}",
            f"{bounds:.0%}",
            f"{decades:.2f}",
            f"{skill:.3f} ± {error:.3f}",
            f"{noise:g}",
        ]
        lines.append([name, *("" if "nan" in x else x for x in shown)])
    table(f"Children's hyperparameters, {options.seeds} populations of {options.population}", columns, lines)


if __name__ == "__main__":
    main()
