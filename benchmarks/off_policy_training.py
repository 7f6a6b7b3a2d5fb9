"""Training TD3 and SAC on a simulator outside the device: a population in one program against one process per agent.

Environment steps per second on gym:HalfCheetah-v5, all members together, one update per step, batches of 256, 256-256
networks; after the steps of random actions and after everything is compiled. Shoal's population has a core for the
simulators and all of them for learning; of the baselines, SBX and Stable-Baselines3, as many processes run at a time as
there are cores, each bound to its own. Every baseline is measured at its usual one step and one update in turn, and SBX
also with 50 of each at a time, which is how Shoal does it and costs it fewer calls.

Two figures for Shoal: training alone, and everything (fitness from training episodes, copying, records, checkpoints). Then
where the time goes, from a run with clocks around acting, stepping and updating: once as it is, where simulators step while
the device learns, and once with each update waited for. Acting is split into what it takes when nothing else runs and the
rest of it; in the first case the time waited for updates is under «rest», wherever else the host meets them.

    python benchmarks/off_policy_training.py [--peer PYTHON --populations 2 4 8]

PYTHON is the interpreter of an environment with stable-baselines3, sbx-rl and gymnasium's mujoco; without it only Shoal is
measured.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from common import last_json, shoal_until, table

BASELINE = Path(__file__).with_name("baselines") / "sb3_off_policy.py"
TARGETS = {"sbx-td3": 1.3, "sbx-sac": 1.7, "sb3-td3": 2.5}
ROLLOUT = 50


def settings(agent: str, learning_starts: int) -> dict:
    """Of a run of Shoal's."""
    rates = ["policy_learning_rate", "critic_learning_rate"] + ["temperature_learning_rate"] * (agent == "sac")
    return {
        "env": "gym:HalfCheetah-v5",
        "agent": agent,
        "config": {
            "rollout_length": ROLLOUT,
            "learning_starts": learning_starts,
            "buffer_size": 100_000,
            "batch_size": 256,
            "layers": [256, 256],
        },
        "hyper": {"update_ratio": 1.0, **dict.fromkeys(rates, 1e-3 if agent == "td3" else 3e-4)},
        "fitness": {"source": "training"},
    }


def shoal(agent: str, population: int, options: argparse.Namespace) -> tuple[float, float]:
    """Steps per second of a run: training alone, and with everything. The first generation, which compiles, is left out."""
    given = settings(agent, options.learning_starts).items()
    flat = [f"{a}.{b}={json.dumps(v)}" for a, x in given if isinstance(x, dict) for b, v in x.items()]
    count = options.generations + 1
    arguments = ["--env", "gym:HalfCheetah-v5", "--agent", agent, "--population", str(population)]
    arguments += ["--interval", str(options.interval), "--generations", str(count), "--set", *flat, "final_episodes=1"]
    _, rows = shoal_until(arguments, lambda rows: len(rows) == count)
    steps = rows[-1]["steps"] - rows[0]["steps"]
    training = sum(row["timing"]["train"] for row in rows[1:])
    return steps / training, steps / (rows[-1]["timing"]["seconds"] - rows[0]["timing"]["seconds"])


def baseline(algorithm: str, every: int, options: argparse.Namespace) -> tuple[float, float]:
    """Of as many processes as there are cores: steps per second, and milliseconds of CPU time per step."""
    rate = "3e-4" if algorithm.endswith("sac") else "1e-3"
    command = [options.peer, str(BASELINE), "--algorithm", algorithm, "--every", str(every), "--rate", rate]
    run = last_json([*command, "--steps", str(options.steps), "--learning-starts", str(options.learning_starts)])
    return run["steps_per_second"], run["cpu_ms_per_step"]


def compare(options: argparse.Namespace) -> None:
    """Shoal's populations against each baseline, one after the other in every repeat."""
    ours: dict[tuple[str, int], list] = {(a, n): [] for a in options.agents for n in options.populations}
    kinds = [("sbx-td3", 1), ("sbx-td3", ROLLOUT), ("sbx-sac", 1), ("sbx-sac", ROLLOUT), ("sb3-td3", 1)]
    theirs: dict[tuple[str, int], list] = {k: [] for k in kinds if options.peer and k[0][-3:] in options.agents}
    for _ in range(options.repeats):
        for key in ours:
            ours[key].append(shoal(*key, options))
        for kind in theirs:
            theirs[kind].append(baseline(*kind, options))
    rows = [[f"Shoal {a.upper()}, {n}, training", *_figures([x for x, _ in found])] for (a, n), found in ours.items()]
    rows += [[f"Shoal {a.upper()}, {n}, everything", *_figures([x for _, x in y])] for (a, n), y in ours.items()]
    for (algorithm, every), found in theirs.items():
        cpu = statistics.median(x for _, x in found)
        rows.append(
            [f"{algorithm}, one process each, {every} at a time", *_figures([x for x, _ in found]), f"{cpu:.2f}"]
        )
    columns = ["", "steps/s", "spread", "CPU ms per step"]
    table("Environment steps per second, HalfCheetah, one update per step", columns, rows)
    rows = []
    for (algorithm, every), found in theirs.items():
        for (agent, n), mine in ours.items():
            if algorithm.endswith(agent):
                base = statistics.median(x for x, _ in found)
                target = TARGETS[algorithm] if every == 1 else ""
                ratios = [f"{statistics.median(x) / base:.2f}" for x in zip(*mine, strict=True)]
                rows.append([f"Shoal {agent.upper()}, {n}, over {algorithm}, {every} at a time", *ratios, str(target)])
    if rows:
        table("Ratios", ["", "training", "everything", "to reach"], rows)


def _figures(rates: list[float]) -> list[str]:
    return [f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f} to {max(rates):,.0f}"]


# ------------------------------------------------------------------------------------- where time goes


def clocks(agent: str, population: int, iterations: int, learning_starts: int) -> list[dict[str, float]]:
    """Milliseconds per rollout of each part: as it is; then with updates waited for, so that nothing runs beside another."""
    import jax
    import numpy as np

    from shoal.experiment.files import from_dict
    from shoal.experiment.plan import make_plan
    from shoal.members.devices import prepare

    prepare()
    parts = make_plan(
        from_dict({**settings(agent, learning_starts), "population": population, "interval": ROLLOUT * iterations})
    )
    shard = parts.kind.shard(parts.members(), parts.setup)
    rollouts = shard.rollouts
    act, step, update = rollouts._act, rollouts._step, rollouts._update
    spent: dict[str, float] = {}
    first: list[float] = []

    def timed(name: str, function, block: bool):
        def call(*arguments):
            began = time.perf_counter()
            result = function(*arguments)
            if block:
                jax.block_until_ready(result)
            spent[name] += time.perf_counter() - began
            first.extend([time.perf_counter() - began] * (name == "acting"))
            return result

        return call

    _, hyper = parts.evolver.init((0, 0, 0), np.arange(population))
    shard.begin(hyper)
    shard.train(0, learning_starts // ROLLOUT + 2, 1)
    results = []
    for generation, wait in enumerate((False, True), 1):
        spent |= dict.fromkeys(("acting", "simulators", "updating"), 0.0)
        first.clear()
        rollouts._act = timed("acting", act, True)
        rollouts._step = timed("simulators", step, False)
        rollouts._update = timed("updating", update, wait)
        began, cpu = time.perf_counter(), time.process_time()
        shard.train(generation, iterations, 1)
        jax.block_until_ready(shard.population.members.learned)
        total, cpu = time.perf_counter() - began, time.process_time() - cpu
        result = {name: x / iterations * 1e3 for name, x in spent.items()}
        result["fastest acting"] = statistics.quantiles(first, n=10)[0] * ROLLOUT * 1e3
        result["rest"] = (total - sum(spent.values())) / iterations * 1e3
        result["cpu"] = cpu / iterations / population / ROLLOUT * 1e3
        result["total"] = total / iterations * 1e3
        results.append(result)
    shard.close()
    return results


def split(options: argparse.Namespace) -> None:
    """A table of the parts of a rollout."""
    rows = []
    for agent in options.agents:
        for n in options.populations:
            arguments = ["--clocks", agent, str(n), "--rollouts", str(options.rollouts)]
            arguments += ["--learning-starts", str(options.learning_starts)]
            both = last_json([sys.executable, __file__, *arguments])
            for name, x in zip(("as it is", "one after another"), both, strict=True):
                waiting = x["acting"] - x["fastest acting"]
                cells = [x["fastest acting"], waiting, x["simulators"], x["updating"], x["rest"], x["total"]]
                rows.append([f"{agent.upper()}, {n}, {name}", *(f"{c:,.1f}" for c in cells)])
                rows[-1] += [f"{n * ROLLOUT / x['total'] * 1e3:,.0f}", f"{x['cpu']:.2f}"]
    columns = [
        "",
        "acting",
        "acting, waiting",
        "simulators",
        "updating",
        "rest",
        "in all",
        "steps/s",
        "CPU ms per step",
    ]
    table(f"Milliseconds per rollout of {ROLLOUT} steps of each member and as many updates", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peer", metavar="PYTHON", help="interpreter with the baselines' packages")
    add("--agents", nargs="+", choices=["td3", "sac"], default=["td3", "sac"])
    add("--populations", nargs="+", type=int, default=[4], metavar="N")
    add("--repeats", type=int, default=3, help="of each (default: %(default)s)")
    add("--interval", type=int, default=2_000, help="steps of a member per generation (default: %(default)s)")
    add("--generations", type=int, default=3, help="that are timed (default: %(default)s)")
    add("--steps", type=int, default=3_000, help="of each baseline that are timed (default: %(default)s)")
    add("--learning-starts", type=int, default=1_000, help="steps of random actions (default: %(default)s)")
    add("--rollouts", type=int, default=20, help="that are taken apart (default: %(default)s)")
    add("--only", choices=["compare", "split"], help="one of the two parts")
    add("--clocks", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.clocks:
        agent, population = options.clocks
        print(json.dumps(clocks(agent, int(population), options.rollouts, options.learning_starts)))
        return
    if options.only != "split":
        compare(options)
    if options.only != "compare":
        split(options)


if __name__ == "__main__":
    main()
