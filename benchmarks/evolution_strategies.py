"""Evolution strategies on the device: generations per second against evosax, and against one process per perturbation.

CartPole, 64-64 tanh, one episode per member; in all of them CartPole's thresholds are out of reach, so that every episode
lasts 500 steps whatever the policies do. A generation is everything: drawing members, their episodes, the step of the
mean; Shoal's also measures the mean itself (a row more), shares stats and decides on the host.

- Generations per second at populations 64 to 8192 against evosax's Open_ES, one compiled function per generation, on
  all cores; and the fraction of the floor. Beside it the rate of the whole command `shoal train`, with its records,
  lineage and checkpoints, between the first generation and the last.
- The same at population 40 against a process per perturbation, as pytorch-es does it.

The floor. A step of a member takes 8,960 operations (products of one vector with weights of its own, 4 x 64, 64 x 64 and
64 x 2) and reads its 18.4 kB of weights, from a cache at best: two operations for four bytes, so that the speed of such
products bounds it and not that of large ones. A generation of P members takes 500 P of both, and 37 kB P more through
memory: members are written when they are drawn and their noise is read for the step of the mean. The rate is
measured in the same call, with as many members at a time as lie in a core's cache; activations and the environment are
not in it.

    python benchmarks/evolution_strategies.py --evosax PYTHON --torch PYTHON [--populations 64 512] [--command]

The interpreters are those of environments with evosax and gymnax, and with torch and gymnasium; without one of them its
comparison is left out. Every population is measured in a process of its own, on either side.
"""

import argparse
import json
import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from baselines.matrix_rate import matrix_rate
from common import COMPILING, last_json, shoal_until, table, timed_generations

BASELINES = Path(__file__).with_name("baselines")
LAYERS, STEPS = (4, 64, 64, 2), 500
ENV, SETTINGS = "gymnax:CartPole-v1", {"x_threshold": 1e9, "theta_threshold_radians": 1e9}
WEIGHTS = sum(a * b for a, b in pairwise(LAYERS))
BYTES = 4 * (WEIGHTS + sum(LAYERS[1:]))
PRODUCTS = "32 members [32,1,64] x [32,64,64]"


def build(population: int, chunk: int | None = None) -> Any:
    """The plan of a run, and its shard."""
    from shoal.experiment.experiment import Experiment, Fitness
    from shoal.experiment.plan import make_plan
    from shoal.members.devices import prepare

    prepare()
    plan = make_plan(
        Experiment(
            method={"name": "es"} | ({"chunk": chunk} if chunk else {}),
            env=ENV,
            env_options=SETTINGS,
            agent="policy",
            population=population,
            config={"layers": list(LAYERS[1:-1])},
            fitness=Fitness(episodes=1),
        )
    )
    return plan, plan.kind.shard(plan.members(), plan.setup)


def measure(population: int, seconds: float, chunk: int | None) -> dict[str, float]:
    """Generations of Shoal, the means of all members measured too; the host waits for all of it."""
    plan, shard = build(population, chunk)
    times = [whole for _, whole in timed_generations(plan, shard, seconds)]
    steps, made = STEPS * (COMPILING + len(times)), shard.stats().steps
    assert (made == steps).all(), f"members made {made.min()} steps or more, not {steps}"
    return {
        "population": population,
        "generations_per_second": 1 / statistics.median(times),
        "best": 1 / min(times),
        "devices": plan.kind.devices(plan.members()),
    }


def command(population: int, generations: int) -> float:
    """Generations per second of `shoal train`, all but the first two, which compile."""
    arguments = ["--method", "es", "--env", ENV, "--agent", "policy", "--population", str(population)]
    arguments += ["--generations", str(generations), "--set", "fitness.episodes=1"]
    arguments += [f"config.layers=[{', '.join(map(str, LAYERS[1:-1]))}]"]
    arguments += [f"env_options.{name}={value}" for name, value in SETTINGS.items()]
    _, rows = shoal_until(arguments, lambda rows: len(rows) == generations)
    return (len(rows) - 2) / (rows[-1]["timing"]["seconds"] - rows[1]["timing"]["seconds"])


def shoal(population: int, options: argparse.Namespace) -> dict:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--measure", str(population), "--seconds", str(options.seconds)]
    return last_json(command + (["--chunk", str(options.chunk)] if options.chunk else []))


def baseline(python: str, script: str, *arguments: str) -> dict:
    return last_json([python, str(BASELINES / script), *arguments])


def floor(rate: float, population: int) -> float:
    """Generations per second that the products alone would allow; rate in operations per second of all cores."""
    return rate / (2 * WEIGHTS * STEPS * population)


def compare(options: argparse.Namespace) -> None:
    """Populations against evosax."""
    rates = matrix_rate((1,), options.seconds)[1]
    rows, rate = [], 0.0
    for n in options.populations:
        ours = shoal(n, options)
        rate = rates[PRODUCTS] * 1e9 * ours["devices"]
        mine = ours["generations_per_second"]
        row = [str(n), f"{mine:.2f}", f"{ours['best']:.2f}", f"{mine / floor(rate, n):.0%}"]
        if options.evosax:
            theirs = baseline(options.evosax, "evosax_es.py", "--population", str(n), "--seconds", str(options.seconds))
            row += [f"{theirs['generations_per_second']:.2f}", f"{mine / theirs['generations_per_second']:.1f}"]
        if options.command:
            row += [f"{command(n, max(8, min(200, int(mine * options.seconds)))):.2f}"]
        rows.append(row)
        print(f"population {n}: {row}", file=sys.stderr)
    columns = ["population", "Shoal", "best", "of the floor"]
    columns += (["evosax", "ratio"] if options.evosax else []) + (["shoal train"] if options.command else [])
    title = (
        f"Generations per second, {STEPS} steps of every member. A member's step: {2 * WEIGHTS:,} operations on "
        f"{BYTES / 1e3:.1f} kB of weights; at {rate / 1e9:,.0f} GFLOP/s (matrix products of a batch: "
        f"{rates['layer [128,64] x [64,64]']:,.0f} on one core) a floor of {2 * WEIGHTS / rate * 1e9:.0f} ns"
    )
    table(title, columns, rows)


def processes(options: argparse.Namespace) -> None:
    """Population 40 against a process for each."""
    ours, theirs = shoal(40, options), baseline(options.torch, "process_es.py", "--population", "40")
    a, b = ours["generations_per_second"], theirs["generations_per_second"]
    rows = [["a process per perturbation", f"{b:.2f}", "1"], ["Shoal", f"{a:.1f}", f"{a / b:.0f}"]]
    if options.command:
        whole = command(40, 200)
        rows.append(["shoal train, all records", f"{whole:.1f}", f"{whole / b:.0f}"])
    table(f"Generations per second at population 40, {STEPS} steps", ["", "generations/s", "ratio"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--evosax", metavar="PYTHON", help="interpreter with evosax and gymnax")
    add("--torch", metavar="PYTHON", help="interpreter with torch and gymnasium")
    add("--populations", nargs="*", type=int, default=[64, 128, 512, 1024, 4096, 8192], metavar="N")
    add("--seconds", type=float, default=5, help="of each measurement (default: %(default)s)")
    add("--chunk", type=int, metavar="N", help="members that a device measures at a time (default: the method's)")
    add("--command", action="store_true", help="measure `shoal train` too")
    add("--measure", type=int, metavar="N", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.seconds, options.chunk)))
        return
    if options.populations:
        compare(options)
    if options.torch:
        processes(options)


if __name__ == "__main__":
    main()
