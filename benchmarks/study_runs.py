"""What a run costs beside its training: by itself, and in a study, where runs of one structure share what was compiled.

Runs that hardly train, one of each kind after the other, in one process; what compiled programs on disk are there for both.
In seconds of the clock, and of the processor, which say more where other programs run.

python benchmarks/study_runs.py --cores 0
"""

import argparse
import os
import statistics
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from common import table

from shoal.experiment.experiment import Experiment
from shoal.members.devices import prepare
from shoal.members.trace_cache import Kept, trace_cache
from shoal.records.tensorboard import TensorBoard
from shoal.run.train import train

ENVS = ("CartPole-v1", "Breakout-MinAtar", "gym:CartPole-v1")
RUNS = 100  # of a minute, of which the last column tells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", help="to use (default: all)")
    parser.add_argument("--envs", nargs="+", default=ENVS, help="environments (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="of each kind, after the first (default: %(default)s)")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    prepare()
    rows = [row for env in options.envs for row in measured(env, options.runs)]
    table(
        "A run beside its training", ["", "first", "later ones", "of the processor", f"{RUNS} runs of a minute"], rows
    )


def measured(env: str, runs: int) -> list[list[str]]:
    """The rows of a table."""
    e = Experiment(env=env, method="pbt", generations=2, interval=64)
    kept: Kept = []
    times: dict[str, list[tuple[float, float]]] = {"by itself": [], "in a study": []}
    with tempfile.TemporaryDirectory() as folder:
        train(replace(e, run_dir=f"{folder}/warm"), [TensorBoard()])  # imports, and programs on disk
        for seed in range(1 + runs):
            for kind, found in times.items():
                shared: AbstractContextManager = trace_cache(kept) if kind == "in a study" else nullcontext()
                began = time.perf_counter(), time.process_time()
                with shared:
                    train(replace(e, seed=seed, run_dir=str(Path(folder) / kind / str(seed))), [TensorBoard()])
                found.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    rows = []
    for kind, ((first, _), *others) in times.items():
        later, busy = (statistics.median(x) for x in zip(*others, strict=True))
        minutes = RUNS + (first + (RUNS - 1) * later) / 60
        rows.append([f"{env}, {kind}", *(f"{x:.2f} s" for x in (first, later, busy)), f"{minutes:.1f} min"])
    return rows


if __name__ == "__main__":
    main()
