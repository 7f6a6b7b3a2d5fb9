"""What a population of external trainers costs beside the trainers alone.

Eight PPO members of Stable-Baselines3 on CartPole in two processes, against eight bare models in two processes with the
same settings, in turns: steps per second, while they train. A round is what lies between two intervals but the
evaluation: deciding, copying, recording and the checkpoint. First, how long a process takes to be ready, and its first
and a further member.

    python benchmarks/external_trainers.py --python PATH [--ray PATH] [--members 8 --intervals 6 --steps 4096 --repeats 3]

PATH is an interpreter that has Stable-Baselines3; `--trainer` measures another trainer, without the bare models. With
`--ray`, an interpreter that has ray[tune]: a round of Ray Tune's PBT too, over as many members that train nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import generations, table

import shoal
from shoal.experiment.experiment import Fitness
from shoal.trainers.process import Recipe, TrainerProcess, limited
from shoal.trainers.remote import RemoteTrainer
from shoal.trainers.trainers import TrainerProcesses, own_folders

PROCESSES, WARM_UP = 2, 1  # intervals that do not count
BARE, RAY = (Path(__file__).parent / "baselines" / name for name in ("sb3_bare.py", "ray_tune.py"))
RAY_ROUNDS = 10
CONFIG = {"n_envs": 8, "n_steps": 128, "device": "cpu"}


def start_up(arguments: argparse.Namespace, config: dict) -> list[float]:
    """Seconds until a process is ready, and for its first and a further member, an interval of the shortest included."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Recipe(arguments.trainer, "CartPole-v1", {}, config, own_folders())
        process = TrainerProcess(arguments.python, recipe, Path(folder) / "log", limited(1))
        times = [time.perf_counter()]
        hyper = process.description["hyper"]
        times.append(time.perf_counter())
        for uid in range(2):
            RemoteTrainer(process, uid, hyper, uid).train(0, 1)
            times.append(time.perf_counter())
        process.close()
    return np.diff(times).tolist()


def bare(arguments: argparse.Namespace) -> float:
    """Steps per second of bare models in two processes at once; each counts until the slower one is done."""
    given = [arguments.members // PROCESSES, WARM_UP + arguments.intervals, arguments.steps]
    command = [arguments.python, str(BARE), *map(str, given), json.dumps(CONFIG)]
    started = [
        subprocess.Popen(command, env=os.environ | limited(1), stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    seconds = [json.loads(process.communicate()[0])[WARM_UP:] for process in started]
    return arguments.members * arguments.steps / statistics.median(max(pair) for pair in zip(*seconds, strict=True))


def population(arguments: argparse.Namespace, config: dict) -> tuple[float, float]:
    """Steps per second of a population while it trains, and seconds of a round. Medians over generations."""
    with tempfile.TemporaryDirectory() as folder:
        shoal.train(
            shoal.Experiment(
                **{"env": "CartPole-v1", "agent": arguments.trainer, "python": arguments.python, "config": config},
                **{"method": "pbt", "population": arguments.members, "generations": WARM_UP + arguments.intervals},
                **{"interval": arguments.steps, "final_episodes": 2, "run_dir": f"{folder}/run"},
                fitness=Fitness(episodes=2),
                processes=TrainerProcesses(count=PROCESSES),
            )
        )
        rows = generations(Path(folder) / "run")[WARM_UP:]
    train = statistics.median(row["timing"]["train"] for row in rows)
    begun = [row["timing"]["seconds"] for row in rows]
    measured = [row["timing"]["train"] + row["timing"]["evaluate"] for row in rows[1:]]
    rounds = [whole - part for whole, part in zip(np.diff(begun), measured, strict=True)]
    return arguments.members * arguments.steps / train, statistics.median(rounds)


def ray_round(arguments: argparse.Namespace, synchronous: bool) -> float:
    """Seconds of a round of Ray Tune, in which members only report, save and copy."""
    command = [arguments.ray, str(RAY), f"{arguments.members}", f"{RAY_ROUNDS}", f"{synchronous}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="(default: this one)")
    parser.add_argument("--ray", help="an interpreter that has ray[tune] (default: without)")
    parser.add_argument("--trainer", default="sb3:PPO", help="(default: %(default)s)")
    parser.add_argument("--members", type=int, default=8, help="in two processes (default: %(default)s)")
    parser.add_argument(
        "--intervals", type=int, default=6, help=f"that count, two at least, after {WARM_UP} (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=4096, help="of an interval (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of both, in turns (default: %(default)s)")
    arguments = parser.parse_args()
    config = CONFIG if arguments.trainer.startswith("sb3:") else {}
    ready, first, further = start_up(arguments, config)
    rows = [["a process is ready", f"{ready:.2f} s"], ["its first member", f"{first:.2f} s"]]
    rows += [["a further member", f"{1000 * further:,.0f} ms"]]
    ours, alone = [], []
    for _ in range(arguments.repeats):
        ours.append(population(arguments, config))
        if config:
            alone.append(bare(arguments))
    rates, rounds = zip(*ours, strict=True)
    rows += [["a round between intervals", f"{1000 * statistics.median(rounds):,.0f} ms"]]
    rows += [["population", f"{statistics.median(rates):,.0f} steps/s"]]
    if config:
        ratios = [x / y for x, y in zip(rates, alone, strict=True)]
        rows += [["bare models", f"{statistics.median(alone):,.0f} steps/s"]]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        rows += [["population / bare", f"{statistics.median(ratios):.2f}{spread}"]]
    if arguments.ray:
        for name, synchronous in (("asynchronous", False), ("synchronous", True)):
            rows += [[f"a round of Ray Tune, {name}", f"{1000 * ray_round(arguments, synchronous):,.0f} ms"]]
    table(f"{arguments.members} members of {arguments.trainer} in {PROCESSES} processes", ["", ""], rows)


if __name__ == "__main__":
    main()
