"""What a step of PPO costs: a population in one program against compiled peers and against the machine's own limit.

Settings of all: CartPole, 4 environments x 128 steps, 4 epochs x 4 minibatches, 64-64 tanh, policy and critic apart.

- Throughput at population 8 and 64, with and without evaluation and evolution, against PureJaxRL (8 vmapped seeds),
  rejax (8) and EvoRL's PBT-PPO (8 and 64, its evaluation included), as far as they are given.
- The floor: matrix operations per step over the machine's matrix rate, the bytes that an update reads and writes, the
  fraction of the floor reached, and the split into collecting and updating.
- Time per member against population 1, 2, 4 … 256 at fixed work per member.
- Time per epoch where members differ in how many they make: nobody should wait for those that make more.

    python benchmarks/ppo_step.py [--peer PYTHON --purejaxrl CHECKOUT --rejax --evorl CHECKOUT]

PYTHON is an interpreter with the peers' packages; see benchmarks/baselines/compiled_peers.py.
"""

import argparse
import functools
import json
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from baselines.matrix_rate import matrix_rate
from common import table, timed_generations

PEERS = Path(__file__).with_name("baselines") / "compiled_peers.py"
STEPS = 4 * 128  # of a member per iteration
LAYERS = (4, 64, 64)


def build(population: int, **changes):
    """The plan of a run of CartPole with PPO's defaults, but for these changes, and its shard."""
    from shoal.experiment.experiment import Experiment
    from shoal.experiment.plan import make_plan
    from shoal.members.devices import prepare

    prepare()
    plan = make_plan(Experiment(env="gymnax:CartPole-v1", population=population, interval=16 * STEPS, **changes))
    return plan, plan.kind.shard(plan.members(), plan.setup)


@functools.cache
def measure(population: int, seconds: float) -> dict[str, float]:
    """Steps per second of training alone, and with evaluation, decision and adoption; microseconds per member."""
    plan, shard = build(population, method="independent" if population == 1 else "pbt")
    train, whole = zip(*timed_generations(plan, shard, seconds), strict=True)
    steps = plan.iterations * STEPS * population
    return {
        "train": steps / statistics.median(train),
        "best": steps / min(train),
        "whole": steps / statistics.median(whole),
        "member": statistics.median(train) / plan.iterations / population * 1e6,
        "compile": shard.compile_seconds,
        "devices": plan.kind.devices(plan.members()),
    }


def throughput(options: argparse.Namespace) -> None:
    """Steps per second beside the peers that are given."""
    rows, ours = [], {n: measure(n, options.seconds) for n in options.populations}
    if options.purejaxrl or options.rejax or options.evorl:
        command = [options.peer, str(PEERS)]
        command += ["--purejaxrl", options.purejaxrl] if options.purejaxrl else []
        command += ["--evorl", options.evorl] if options.evorl else []
        command += ["--rejax"] if options.rejax else []
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in output.splitlines():
            peer = json.loads(line)
            rate = statistics.median(peer["steps_per_second"])
            mine = ours[peer["population"]]
            own = mine["whole"] if "evorl" in peer["peer"].lower() else mine["train"]
            rows.append([f"{peer['peer']}, {peer['population']}", f"{rate:,.0f}", f"{own / rate:.2f}"])
    for n, x in ours.items():
        rows.append([f"Shoal, {n}, training", f"{x['train']:,.0f} (best {x['best']:,.0f})", ""])
        rows.append([f"Shoal, {n}, evaluation and evolution included", f"{x['whole']:,.0f}", ""])
    table("Environment steps per second, equal settings", ["", "steps/s", "Shoal against it"], rows)


def floor(options: argparse.Namespace) -> None:
    """Operations and bytes of a step, and how near the machine's limit it runs."""
    weights = sum(a * b for a, b in pairwise(LAYERS))
    policy, critic = 2 * (weights + LAYERS[-1] * 2), 2 * (weights + LAYERS[-1])
    acting, values = policy, 2 * critic  # the values of both ends of each step
    learning = 4 * 3 * (policy + critic)  # 4 epochs, forwards and backwards
    operations = acting + values + learning
    rates, n = matrix_rate((1,), options.seconds)[1], options.populations[0]
    cores = measure(n, options.seconds)
    rate = rates["layer [128,64] x [64,64]"] * cores["devices"]
    limit = rate * 1e9 / operations
    parameters = weights * 2 + LAYERS[-1] * 3 + 2 * 128 + 3
    moved = 16 * (3 * 2 * 4 * parameters) / STEPS  # 16 minibatches read and write weights and two moments
    rows = [
        ["matrix operations per step", f"{operations:,}"],
        ["of these learning", f"{learning / operations:.0%}"],
        ["bytes of weights and moments moved per step", f"{moved:,.0f}"],
        [f"matrix rate of {cores['devices']} cores, minibatch through a layer", f"{rate:,.0f} GFLOP/s"],
        ["floor", f"{limit:,.0f} steps/s"],
        [f"reached at population {n}", f"{cores['train']:,.0f} steps/s"],
        ["fraction of the floor", f"{cores['train'] / limit:.0%}"],
    ]
    table("What a step costs", ["", ""], rows)


def scaling(options: argparse.Namespace) -> None:
    """Time per member over the size of the population."""
    rows, base = [], 0.0
    for n in options.sizes:
        x = measure(n, options.seconds)
        base = base or x["member"]
        rows.append(
            [str(n), f"{x['member']:,.0f}", f"{x['member'] / base:.2f}", f"{x['train']:,.0f}", f"{x['compile']:.1f}"]
        )
    columns = ["population", "µs per member and iteration", f"against {options.sizes[0]}", "steps/s", "compile s"]
    table("Cost against population, 512 steps of each member per iteration", columns, rows)


def epochs(options: argparse.Namespace) -> None:
    """Members that make as many epochs each, and members that differ."""
    rows, base = [], 0.0
    for name, drawn in (("4 each", {}), ("1 to 7, drawn", {"epochs": {"low": 1, "high": 7, "integer": True}})):
        plan, shard = build(options.populations[-1], method="independent", space=drawn)
        mean = float(plan.evolver.init((0, 0, 0), shard.uid)[1]["epochs"].mean())
        train, _ = zip(*timed_generations(plan, shard, options.seconds), strict=True)
        took = statistics.median(train) / plan.iterations / len(shard.uid) / mean * 1e6
        base = base or took
        rows.append([name, f"{mean:.2f}", f"{took:,.0f}", f"{took / base:.2f}"])
    columns = ["epochs", "mean", "µs per member and epoch", "against 4 each"]
    table(f"Members that differ in their epochs, population {options.populations[-1]}", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default=sys.executable, metavar="PYTHON", help="interpreter with the peers' packages")
    parser.add_argument("--purejaxrl", metavar="CHECKOUT")
    parser.add_argument("--evorl", metavar="CHECKOUT")
    parser.add_argument("--rejax", action="store_true")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement (default: %(default)s)")
    parser.add_argument(
        "--populations", nargs="+", type=int, default=[8, 64], help="beside the peers, which have these"
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[2**i for i in range(9)], help="populations that scale")
    parser.add_argument("--only", choices=["throughput", "floor", "scaling", "epochs"])
    options = parser.parse_args()
    for name, part in (("throughput", throughput), ("floor", floor), ("scaling", scaling), ("epochs", epochs)):
        if options.only in (None, name):
            part(options)


if __name__ == "__main__":
    main()
