"""What a second rank brings: the same population over one and two ranks of MPI, one core each.

PPO on CartPole, a population of 16 in two shards. One rank trains its shards one after another on one core; two ranks
have a shard and a core each. Efficiency is the seconds of one rank over twice those of two; beside it stands one rank
that has both cores. Medians over generations; exchange is what lies between the end of an evaluation and the adoption
of what a decision copies, waiting for the slower rank included.

    python benchmarks/scaling.py [--generations 9 --interval 32768 --repeats 3]
"""

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path

from common import SHOAL, generations, mpiexec, table

CASES = {
    "1 rank, 1 core": (["taskset", "-c", "0"], 1),
    "2 ranks, 1 core each": ([], 2),
    "1 rank, 2 cores": ([], 1),
}
PHASES = ("train", "evaluate", "evolve")
WARM_UP = 3  # generations that do not count


def measure(prefix: list[str], ranks: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Median seconds of each phase of a generation."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [*prefix, *mpiexec(ranks), *SHOAL, "train", "--quiet", "--run-dir", str(run)]
        command += ["--exchange", "mpi", "--shards", "2", "--population", "16", "--env", "gymnax:CartPole-v1"]
        command += ["--generations", str(WARM_UP + arguments.generations), "--interval", str(arguments.interval)]
        command += ["--set", "final_episodes=1"]
        subprocess.run(command, check=True, capture_output=True)
        rows = [row["timing"] for row in generations(run)][WARM_UP:]
    return {phase: statistics.median(row[phase] for row in rows) for phase in PHASES}


def main() -> None:
    """Measure, in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--generations", type=int, default=9, help=f"that count, after {WARM_UP} (default: %(default)s)"
    )
    parser.add_argument("--interval", type=int, default=32_768)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    for _ in range(arguments.repeats):
        for name, (prefix, ranks) in CASES.items():
            found[name].append(measure(prefix, ranks, arguments))
    base = statistics.median(run["train"] for run in found["1 rank, 1 core"])
    rows = []
    for name, runs in found.items():
        middle = {phase: statistics.median(run[phase] for run in runs) for phase in PHASES}
        spread = " to ".join(f"{1000 * f(run['train'] for run in runs):,.0f}" for f in (min, max))
        cores = 1 if name == "1 rank, 1 core" else 2
        efficiency = f"{base / middle['train'] / cores:.2f}"
        milliseconds = [f"{1000 * middle[phase]:,.1f}" for phase in PHASES]
        rows.append([name, *milliseconds, spread, efficiency, f"{middle['evolve'] / sum(middle.values()):.2%}"])
    names = ["", "train ms", "evaluate ms", "exchange ms", "train, from to", "efficiency", "exchange of all"]
    table("Population 16 on CartPole, two shards", names, rows)


if __name__ == "__main__":
    main()
