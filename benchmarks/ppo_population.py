"""A population in one program against one process per agent: PPO on CartPole, Stable-Baselines3 over MPI as EVO does.

Two claims, each with its baseline measured in the same call:

- environment steps per second at population 8, evaluation included, with equal PPO settings: 64-64 tanh networks,
  updates from 2048 steps, 10 epochs, minibatches of 64;
- seconds from the command's start until the population's mean fitness is at least 475 at population 32, each with its
  own defaults, imports and compilation included (cold: nothing compiled before; warm: the second run of a user).

    python benchmarks/ppo_population.py --peer PYTHON

PYTHON is the interpreter of an environment with stable-baselines3, torch, mpi4py and mpich.
"""

import argparse
import statistics
import time
from pathlib import Path

from common import last_json, mpiexec, shoal_until, table

BASELINE = Path(__file__).with_name("baselines") / "sb3_mpi.py"
EQUAL = [
    "config.minibatches=32",
    "hyper.epochs=10",
    "space={learning_rate: [1.0e-4, 1.0e-3, log]}",
    "fitness.episodes=5",
]


def sb3(python: str, ranks: int, *arguments: str) -> dict:
    """One run of the baseline."""
    return last_json([*mpiexec(ranks, python), python, "-m", "mpi4py", str(BASELINE), *arguments])


def throughput(python: str, ranks: int, repeats: int) -> None:
    """Steps per second at population 8 with equal settings."""
    rows, ours, theirs = [], {}, []
    for copies in (1, 8):
        settings = [f"config.rollout={2048 // copies}", f"config.environments={copies}", *EQUAL]
        rates = []
        for seed in range(repeats):
            arguments = [
                "--population",
                "8",
                "--generations",
                "12",
                "--interval",
                "16384",
                "--seed",
                str(seed),
                "--set",
                *settings,
            ]
            _, generations = shoal_until(arguments, lambda rows: len(rows) == 12)
            # The generations between: all but the first, which compiles.
            first, last = generations[0], generations[-1]
            seconds = last["timing"]["seconds"] - first["timing"]["seconds"]
            rates.append((last["steps"] - first["steps"]) / seconds)
        ours[copies] = rates
    for seed in range(repeats):
        run = sb3(python, ranks, "--population", "8", "--generations", "6", "--interval", "4096", "--seed", str(seed))
        theirs.append(run["steps_per_second"])
    base = statistics.median(theirs)
    rows.append([f"Stable-Baselines3, {ranks} ranks", f"{base:,.0f}", _spread(theirs), "1"])
    for copies, rates in ours.items():
        rate = statistics.median(rates)
        rows.append(
            [
                f"Shoal, {copies} x {2048 // copies} steps per update",
                f"{rate:,.0f}",
                _spread(rates),
                f"{rate / base:.1f}",
            ]
        )
    table(
        "Steps per second, population 8, equal settings, evaluation included", ["", "steps/s", "spread", "ratio"], rows
    )


def time_to_target(python: str, ranks: int, repeats: int) -> None:
    """Seconds from the command's start to a population mean of 475 at population 32."""
    results: dict[str, list[float]] = {"Stable-Baselines3": [], "Shoal, cold": [], "Shoal, warm": []}
    for seed in range(repeats):
        began = time.perf_counter()
        run = sb3(python, ranks, "--population", "32", "--target", "475", "--seconds", "900", "--seed", str(seed))
        if not run["reached"]:
            raise SystemExit("the baseline did not reach the target")
        results["Stable-Baselines3"].append(time.perf_counter() - began)
        for name in ("Shoal, cold", "Shoal, warm"):
            arguments = ["--population", "32", "--generations", "100", "--seed", str(seed)]
            reached = shoal_until(
                arguments, lambda rows: rows[-1]["fitness"]["mean"] >= 475, cold=name.endswith("cold")
            )
            results[name].append(reached[0])
    base = statistics.median(results["Stable-Baselines3"])
    rows = [
        [name, f"{statistics.median(x):.1f}", _spread(x, ".1f"), f"{base / statistics.median(x):.1f}"]
        for name, x in results.items()
    ]
    table(
        "Seconds to a population mean of 475, population 32, own defaults",
        ["", "seconds", "spread", "times less"],
        rows,
    )


def _spread(values: list[float], form: str = ",.0f") -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, metavar="PYTHON", help="interpreter with the baseline's packages")
    parser.add_argument("--ranks", type=int, default=4, help="MPI ranks of the baseline (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="seeds of each (default: %(default)s)")
    parser.add_argument("--only", choices=["throughput", "target"], help="one of the two claims")
    options = parser.parse_args()
    if options.only != "target":
        throughput(options.peer, options.ranks, options.repeats)
    if options.only != "throughput":
        time_to_target(options.peer, options.ranks, options.repeats)


if __name__ == "__main__":
    main()
