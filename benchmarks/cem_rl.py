"""What a joint update of CEM-RL costs: all trained actors and their shared critics in one program, or actor by actor.

17 observations, 6 actions, 256-256 networks, batches of 256 for each of K actors, a step of every policy in each update,
50 updates per call. Of Shoal's learner half of a population of 2 K is trained, as in a run, and it draws its batches from
a full memory; PyTorch is handed its batches. PyTorch runs with the threads of all cores: actor by actor, and with
policies stacked and the critics on one batch of all actors. That both compute the same losses and weights from equal
weights, batches and noise is checked first; where they differ by more than --limit, it ends with exit code 1.

The floor is the matrix arithmetic of an update (`operations`) over the rate of large float32 products in the same call.

    python benchmarks/cem_rl.py [--peer PYTHON --actors 5 10]

PYTHON is the interpreter of an environment with torch; without it only Shoal is measured. Every cell is measured in a
process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from baselines.cell import Cell, alone, parse, peak
from common import last_json, table
from update_step import dense

BASELINE = Path(__file__).with_name("baselines") / "torch_cem_rl.py"
BATCH, CAPACITY = 256, 10_000
COMPARED, CHECKED = 3, 2  # actors and joint updates that are compared
HYPER = {"policy_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "policy_delay": 1.0, "tau": 0.005}


def operations(actors: int) -> float:
    """Operations of the matrix products of a joint update.

    For each actor's batch the target policy and both target critics forwards, both critics forwards and backwards, the
    policy forwards and backwards, through the first critic.
    """
    policy, critic = dense(BATCH, (17, 256, 256, 6)), dense(BATCH, (23, 256, 256, 1))
    through = critic["forward"] + dense(BATCH, (23, 256, 256, 1), inputs=6)["inputs"]
    targets = policy["forward"] + 2 * critic["forward"]
    return actors * (targets + 2 * sum(critic.values()) + sum(policy.values()) + through)


# --------------------------------------------------------------------------------------------- Shoal


def learner_and_population(actors: int) -> tuple[Any, Any]:
    """CEM-RL that trains so many of twice as many members, its memory full of random transitions."""
    import jax
    import jax.numpy as jnp
    from update_cell import VECTOR, random_rollout

    from shoal.agents.td3 import td3
    from shoal.members.devices import prepare
    from shoal.methods.cem_rl import CemRl
    from shoal.rl.replay_buffer import store

    prepare()
    agent = td3(VECTOR, batch_size=BATCH, buffer_size=CAPACITY)
    learner = CemRl(gradient_members=actors).learner(agent, 2 * actors)
    numbers = learner.agent.hyper._replace(**HYPER)
    hyper = jax.tree.map(lambda x: jnp.full(2 * actors, x, jnp.float32), numbers)
    population = jax.jit(learner.init)(jax.random.key(0), jnp.arange(2 * actors, dtype=jnp.uint32), hyper)
    memory = population.shared.replay_buffer
    steps = jax.tree.map(jnp.asarray, random_rollout("td3", CAPACITY, 0))
    memory = store(memory, steps, jnp.ones_like(steps.terminated), memory.owner)
    return learner, population._replace(shared=population.shared._replace(replay_buffer=memory))


def measure(cell: Cell) -> dict[str, Any]:
    """Calls of `cell.steps` joint updates."""
    import jax
    import jax.numpy as jnp

    learner, population = learner_and_population(cell.population)

    def updates(population: Any, count: jax.Array) -> Any:
        def one(i: jax.Array, population: Any) -> Any:
            return learner.improve(population, jax.random.fold_in(jax.random.key(1), count + i))[0]

        return jax.lax.fori_loop(0, cell.steps, one, population)

    program, state = jax.jit(updates, donate_argnums=0), [population, 0]
    del population

    def call() -> None:
        state[0] = jax.block_until_ready(program(state[0], jnp.int32(state[1])))
        state[1] += cell.steps

    result = alone(call, cell)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(state[0].members.learned.policy))
    return {**result, "memory_mb": peak()}


def export(path: str) -> None:
    """Weights before and after some updates, batches, noise and losses, as one file of arrays."""
    import jax

    from shoal.methods import shared_critic

    learner, population = learner_and_population(COMPARED)
    arrays: dict[str, np.ndarray] = {}

    def put(update: int) -> None:
        actors, critic = population.members.learned, population.shared.critic
        for name, owner in (
            ("policy", actors),
            ("target_policy", actors),
            ("critics", critic),
            ("target_critics", critic),
        ):
            for where, x in jax.tree_util.tree_leaves_with_path(getattr(owner, name)):
                layer, kind = (str(p.key) for p in where[-2:])
                arrays[f"{update}/{name}/{layer.split('_')[1]}/{kind}"] = np.asarray(x)

    put(0)
    for i in range(1, CHECKED + 1):
        key = jax.random.key(i)
        # What the learner does with the key: these batches, and this noise.
        batch_key, noise_key = jax.random.split(key)
        keys, discount = jax.random.split(batch_key, COMPARED), population.hyper.discount[:COMPARED]
        batch = shared_critic.batches(population.shared.replay_buffer, keys, (BATCH,), discount)
        noise = [jax.random.normal(k, batch.action.shape[1:]) for k in jax.random.split(noise_key, COMPARED)]
        arrays |= {f"{i}/batch/{name}": np.asarray(x) for name, x in batch._asdict().items()}
        arrays[f"{i}/noise"] = np.stack(noise)
        population, metrics = jax.jit(learner.improve)(population, key)
        arrays[f"{i}/loss"] = np.asarray(metrics["loss/critic"][0])
        put(i)
    np.savez(path, **arrays)


# ---------------------------------------------------------------------------------------------- both


def check(python: str, limit: float) -> bool:
    """Whether Shoal and PyTorch compute the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "shoal.npz")
        subprocess.run([sys.executable, __file__, "--export", path], check=True)
        results = last_json([python, str(BASELINE), "--compare", path])
    fine = all(error <= limit for errors in results.values() for error in errors.values())
    rows = [[name, *(f"{errors[k]:.1e}" for k in ("loss", "weights"))] for name, errors in results.items()]
    title = f"Relative errors between Shoal and PyTorch over {CHECKED} joint updates, at most {limit:g} allowed"
    table(title, ["", "loss", "weights"], rows)
    return fine


def compare(options: argparse.Namespace) -> None:
    """The table."""
    cell_script = str(Path(__file__).with_name("update_cell.py"))
    rate = last_json([sys.executable, cell_script, "--rate", str(options.seconds)])["rate"]
    kinds = [("Shoal", [sys.executable, __file__], "vectorised")]
    if options.peer:
        kinds.append(("PyTorch, actor by actor", [options.peer, str(BASELINE)], "sequential"))
        kinds.append(("PyTorch, all at once", [options.peer, str(BASELINE)], "vectorised"))
    rows = []
    for actors in options.actors:
        cells = {}
        for name, command, method in kinds:
            cell = Cell("cem_rl", options.steps, method, actors, options.calls, options.seconds)
            cells[name] = last_json([*command, "--cell", json.dumps(cell._asdict())])
        mine, least = cells["Shoal"]["mean"], operations(actors) * options.steps / rate
        for name, x in cells.items():
            each = [x[k] / options.steps * 1e3 for k in ("mean", "min", "max", "cpu")]
            spread = f"{each[1]:.2f} to {each[2]:.2f}"
            ratio = "" if name == "Shoal" else f"{x['mean'] / mine:.2f}"
            rows.append([f"{actors} actors, {name}", f"{each[0]:.2f}", spread, f"{each[3]:.2f}", ratio])
            rows[-1] += [f"{least / x['mean']:.0%}", f"{x['memory_mb']:,.0f}"]
    columns = ["", "ms per joint update", "least to most", "CPU ms", "Shoal against it", "of the floor", "MB"]
    work = f"{operations(1) / 1e6:,.0f} MFLOP per update and actor"
    title = f"{options.steps} joint updates per call, {work}, {rate / 1e9:,.0f} GFLOP/s"
    table(title, columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peer", metavar="PYTHON", help="interpreter with torch")
    add("--actors", nargs="+", type=int, default=[5, 10], metavar="K")
    add("--steps", type=int, default=50, help="updates per call (default: %(default)s)")
    add("--calls", type=int, default=22, help="of a cell at most, of which two do not count (default: %(default)s)")
    add("--seconds", type=float, default=20, help="after which a cell makes no more than 5 (default: %(default)s)")
    add("--limit", type=float, default=1e-4, help="of a relative error (default: %(default)s)")
    add("--only", choices=["check", "time"])
    add("--cell", type=parse, help=argparse.SUPPRESS)
    add("--export", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(measure(options.cell)))
    elif options.export:
        export(options.export)
    elif options.only == "check" and not options.peer:
        parser.error("--only check: --peer is needed")
    else:
        agree = not options.peer or options.only == "time" or check(options.peer, options.limit)
        if options.only != "check":
            compare(options)
        raise SystemExit(0 if agree else 1)


if __name__ == "__main__":
    main()
