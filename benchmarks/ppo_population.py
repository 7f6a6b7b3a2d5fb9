"""A population in one program against one process per agent: PPO on CartPole, Stable-Baselines3 over MPI as EVO does.

Two claims, each with its baseline measured in the same call:

- environment steps per second at population 8, evaluation included, with equal PPO settings: 64-64 tanh networks,
  updates from 2048 steps, 10 epochs, minibatches of 64;
- seconds from the command's start until the population's mean fitness is at least 475 at population 32, each with its
  own defaults, imports and compilation included (cold: nothing compiled before; warm: the second run of a user).

    python benchmarks/ppo_population.py [--peer PYTHON]

PYTHON is the interpreter of an environment with stable-baselines3, torch, mpi4py and mpich; without it only Shoal is
measured.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import last_json, mpiexec, shoal_until, table

UPDATE = 2048  # steps of an update
BASELINE = Path(__file__).with_name("baselines") / "sb3_mpi.py"
EQUAL = [
    "config.num_minibatches=32",
    "hyper.epochs=10",
    "space={learning_rate: [1.0e-4, 1.0e-3, log]}",
    "fitness.episodes=5",
]


def sb3(options: argparse.Namespace, seed: int, *arguments: str) -> dict:
    """One run of the baseline."""
    command = [*mpiexec(options.ranks, options.peer), options.peer, "-m", "mpi4py", str(BASELINE)]
    return last_json([*command, "--seed", str(seed), *arguments])


def rate_of(copies: int, seed: int, options: argparse.Namespace) -> float:
    """Steps per second between the generations of a run: all but the first, which compiles."""
    arguments = ["--population", "8", "--seed", str(seed), "--interval", str(options.interval)]
    arguments += ["--generations", str(options.generations + 1)]
    arguments += ["--set", f"config.rollout_length={UPDATE // copies}", f"config.num_envs={copies}", *EQUAL]
    _, rows = shoal_until(arguments, lambda rows: len(rows) == options.generations + 1)
    first, last = rows[0], rows[-1]
    return (last["steps"] - first["steps"]) / (last["timing"]["seconds"] - first["timing"]["seconds"])


def throughput(options: argparse.Namespace) -> None:
    """Steps per second at population 8 with equal settings."""
    found: dict[str, list[float]] = {}
    for copies in options.copies:
        name = f"Shoal, {copies} x {UPDATE // copies} steps per update"
        found[name] = [rate_of(copies, seed, options) for seed in range(options.repeats)]
    size = ("--population", "8", "--generations", "6", "--interval", "4096")
    theirs = [sb3(options, seed, *size)["steps_per_second"] for seed in range(options.repeats) if options.peer]
    title = "Steps per second, population 8, equal settings, evaluation included"
    show(title, ("steps/s", ",.0f"), "ratio", found, theirs, lambda rate, base: rate / base)


def time_to_target(options: argparse.Namespace) -> None:
    """Seconds from the command's start until the population's mean is the target."""
    found: dict[str, list[float]] = {"Shoal, cold": [], "Shoal, warm": []}
    size = str(options.population)
    theirs = []
    for seed in range(options.repeats):
        if options.peer:
            began = time.perf_counter()
            run = sb3(options, seed, "--population", size, "--target", str(options.target), "--seconds", "900")
            if not run["reached"]:
                raise SystemExit("the baseline did not reach the target")
            theirs.append(time.perf_counter() - began)
        arguments = ["--population", size, "--generations", "100", "--seed", str(seed)]
        with tempfile.TemporaryDirectory() as cache:
            for times in found.values():  # the second run reads what the first one has compiled
                reached = shoal_until(
                    arguments, lambda rows: rows[-1]["fitness"]["mean"] >= options.target, Path(cache)
                )
                times.append(reached[0])
    title = f"Seconds to a population mean of {options.target:g}, population {size}, own defaults"
    show(title, ("seconds", ".1f"), "times less", found, theirs, lambda seconds, base: base / seconds)


def show(
    title: str,
    unit: tuple[str, str],
    ratio: str,
    found: dict[str, list[float]],
    theirs: list[float],
    against: Callable[[float, float], float],
) -> None:
    """A table: medians and spreads of Shoal and, if there is one, of the baseline, and what Shoal's are against it."""
    name, form = unit
    rows = []
    for who, values in (({"Stable-Baselines3": theirs} if theirs else {}) | found).items():
        middle = statistics.median(values)
        rows.append([who, f"{middle:{form}}", f"{min(values):{form}} to {max(values):{form}}"])
        rows[-1] += [f"{against(middle, statistics.median(theirs)):.1f}"] if theirs else [""]
    table(title, ["", name, "spread", ratio], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter with the baseline's packages")
    parser.add_argument("--ranks", type=int, default=4, help="MPI ranks of the baseline (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="seeds of each (default: %(default)s)")
    parser.add_argument("--generations", type=int, default=11, help="of Shoal that are timed (default: %(default)s)")
    parser.add_argument("--interval", type=int, default=16384, help="of Shoal, in steps (default: %(default)s)")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 8], help="environments of a member of Shoal's")
    parser.add_argument("--population", type=int, default=32, help="that has a target (default: %(default)s)")
    parser.add_argument("--target", type=float, default=475, help="mean of a population (default: %(default)s)")
    parser.add_argument("--only", choices=["throughput", "target"], help="one of the two claims")
    options = parser.parse_args()
    if options.only != "target":
        throughput(options)
    if options.only != "throughput":
        time_to_target(options)


if __name__ == "__main__":
    main()
