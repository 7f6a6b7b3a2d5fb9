"""Training robots: a population of PPO in one program against brax's PPO, which trains one agent, in the same call.

Both have the same work per step: environments x unroll steps between two rounds of updates, the same minibatches and epochs,
a policy and a critic of these layers, observations normalised. brax's agent is measured without its evaluations, Shoal's
population without and with them and with evolution. Every figure comes from a process of its own.

    python benchmarks/robots.py --peer PYTHON --env playground:CartpoleBalance
    python benchmarks/robots.py --peer PYTHON --env playground:Go1JoystickFlatTerrain --environments 8192 --unroll 20 \\
        --minibatches 32 --layers 512 256 128

The second one has the sizes of MuJoCo Playground's own settings, for a GPU. Memory is the most that the device had in use,
on a CPU that of the process.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from common import last_json, most_memory, table, timed_generations

PEER = Path(__file__).with_name("baselines") / "brax_ppo.py"


def cell(options: argparse.Namespace) -> dict[str, float]:
    """Steps per second of a population, aggregate: of training alone, and of all; seconds of compilation, and bytes."""
    from shoal.experiment.experiment import Experiment, Fitness
    from shoal.experiment.plan import make_plan
    from shoal.members.devices import prepare

    prepare()
    steps = options.environments * options.unroll * options.updates
    config = {
        "num_envs": options.environments,
        "rollout_length": options.unroll,
        "num_minibatches": options.minibatches,
    }
    config |= {"layers": options.layers, "normalize_observations": True}
    plan = make_plan(
        Experiment(
            env=options.env,
            method="independent" if options.cell == 1 else "pbt",
            population=options.cell,
            interval=steps,
            config=config,
            hyper={"epochs": options.epochs},
            fitness=Fitness(episodes=options.episodes),
        )
    )
    shard = plan.kind.shard(plan.members(), plan.setup)
    train, whole = zip(*timed_generations(plan, shard, options.seconds), strict=True)
    return {
        "train": options.cell * steps / statistics.median(train),
        "whole": options.cell * steps / statistics.median(whole),
        "compile": shard.compile_seconds,
        "memory": most_memory(),
    }


def measure(options: argparse.Namespace) -> None:
    """The table: brax's agent, then Shoal's populations."""
    shared, began = sys.argv[1:], time.perf_counter()
    found = {"brax's PPO, one agent": last_json([options.peer, str(PEER), *shared])} if options.peer else {}
    for population in options.populations:
        own = last_json([sys.executable, __file__, *shared, "--cell", str(population)])
        found[f"Shoal, population {population}"] = own
    base = next(iter(found.values()))["train"]
    rows = [
        [
            name,
            f"{x['train']:,.0f}",
            f"{x['train'] / base:.2f}",
            f"{x['whole']:,.0f}" if "whole" in x else "",
            f"{x['compile']:.0f}",
            f"{x['memory'] / 1e6:,.0f}",
        ]
        for name, x in found.items()
    ]
    columns = ["", "steps/s", "against the first", "with evaluation", "compiling, s", "memory, MB"]
    table(f"{options.env}, all members together, {time.perf_counter() - began:.0f} s", columns, rows)


def arguments() -> argparse.ArgumentParser:
    """What this script and its peer understand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--env", default="brax:inverted_pendulum", help="of brax: or playground: (default: %(default)s)"
    )
    parser.add_argument("--populations", type=int, nargs="+", default=[1, 4, 8], help="(default: 1 4 8)")
    parser.add_argument("--environments", type=int, default=64, help="of a member (default: %(default)s)")
    parser.add_argument("--unroll", type=int, default=30, help="steps between updates (default: %(default)s)")
    parser.add_argument("--minibatches", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=4, help="over a rollout (default: %(default)s)")
    parser.add_argument("--layers", type=int, nargs="+", default=[64, 64], help="(default: 64 64)")
    parser.add_argument("--updates", type=int, default=8, help="rollouts in an interval (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=4, help="that measure a member of Shoal (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="that are timed, of each (default: %(default)s)")
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has brax; without it only Shoal is measured")
    parser.add_argument("--cell", type=int, metavar="N", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    options = arguments().parse_args()
    if options.cell:
        print(json.dumps(cell(options)))
    else:
        measure(options)


if __name__ == "__main__":
    main()
