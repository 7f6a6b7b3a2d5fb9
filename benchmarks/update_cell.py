"""One cell of `update_step.py` under JAX: Shoal's own agents, and the machine's matrix rate.

python benchmarks/update_cell.py --cell JSON
python benchmarks/update_cell.py --rate SECONDS
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from baselines.cell import Cell, alone, parse, peak, together

from shoal.agents.dqn import dqn
from shoal.agents.sac import sac
from shoal.agents.td3 import td3
from shoal.core import tree
from shoal.core.keys import member_keys
from shoal.core.spec import Box, Discrete, Spec
from shoal.core.types import Agent, Member, Population, Rollout
from shoal.members.devices import MEMBERS, REPLICATED, DeviceLayout, prepare
from shoal.rl.independent import independent
from shoal.rl.replay_buffer import store

VECTOR = Spec((17,), "float32", Box((-1.0,) * 6, (1.0,) * 6))
IMAGE = Spec((84, 84, 4), "uint8", Discrete(14))
ONE_DEVICE = "--xla_force_host_platform_device_count=1"


def make_agent(name: str, steps: int) -> Agent:
    """An agent that makes `steps` updates per environment step."""
    common: dict[str, Any] = {"rollout_length": 1, "num_envs": 1, "max_update_ratio": steps, "learning_starts": 0}
    if name == "dqn":
        return dqn(IMAGE, layers=(256,), network="nature_cnn", batch_size=32, buffer_size=1_000, **common)
    return {"td3": td3, "sac": sac}[name](VECTOR, batch_size=256, buffer_size=10_000, **common)


def random_rollout(name: str, length: int, seed: int) -> Rollout:
    """`length` steps in one environment one after another, 1 % of which end an episode; leaves [length, 1, ...]."""
    draw, shape = np.random.default_rng(seed), (length, 1)
    reward = draw.normal(size=shape).astype(np.float32)
    terminated, truncated = draw.random(shape) < 0.01, np.zeros(shape, bool)
    if name == "dqn":
        obs = draw.integers(0, 256, (length + 1, 1, *IMAGE.obs_shape), np.uint8)
        action: np.ndarray = draw.integers(0, 14, shape, np.int32)
    else:
        obs = draw.normal(size=(length + 1, 1, 17)).astype(np.float32)
        action = draw.uniform(-1, 1, (*shape, 6)).astype(np.float32)
    return Rollout(obs[:-1], action, reward, obs[1:], terminated, truncated, ())


def filled(agent: Agent, key: jax.Array, hyper: Any, steps: Rollout) -> Member:
    """A member whose memory is full of `steps`."""
    member = agent.init(key, hyper)
    return member._replace(
        replay_buffer=store(member.replay_buffer, steps, jnp.ones_like(steps.terminated), member.own.mark)
    )


def vectorised(cell: Cell) -> tuple[Callable, Callable]:
    """All members in one program, over all devices, as a run of Shoal has them."""
    prepare()
    agent, layout = make_agent(cell.agent, cell.steps), DeviceLayout(cell.population)
    learner, place = independent(agent), layout.place
    who = place(np.arange(cell.population, dtype=np.uint32))
    hyper = agent.hyper._replace(update_ratio=cell.steps)
    hyper = place(jax.tree.map(lambda x: np.full(cell.population, x, np.float32), hyper))

    def first(uid: jax.Array, hyper: Any, steps: Rollout) -> Population:
        members = jax.vmap(lambda key, h: filled(agent, key, h, steps))(member_keys(jax.random.key(0), uid), hyper)
        return Population(members, (), hyper)

    def step(population: Population, rollout: Rollout, uid: jax.Array, count: jax.Array) -> Any:
        keys = member_keys(jax.random.fold_in(jax.random.key(1), count), uid)
        return learner.update(population, rollout, keys)

    slots = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper).replay_buffer.steps.reward.shape[0]
    start = layout.program(first, MEMBERS, MEMBERS, REPLICATED)
    population = start(who, hyper, place(random_rollout(cell.agent, slots, 0), REPLICATED))
    one = random_rollout(cell.agent, 1, 1)
    rollout = place(jax.tree.map(lambda x: np.stack([x] * cell.population), one))
    program = layout.program(step, MEMBERS, MEMBERS, MEMBERS, REPLICATED, donate=(0,))
    program.begin(population, rollout, who, np.int32(0))  # the first call waits for it
    state = [population, 0]
    del population

    def call() -> None:
        state[0], metrics = program(state[0], rollout, who, np.int32(state[1]))
        state[1] += 1
        jax.block_until_ready((state[0], metrics))

    def report() -> dict[str, Any]:
        assert tree.finite(state[0].members.learned).all(), "the weights are not finite"
        return {"compile": program.compiling[1] - program.compiling[0], "devices": layout.devices, **_device_memory()}

    return call, report


def separate(cell: Cell, agents: int, seed: int = 0) -> tuple[Callable, Callable]:
    """Members of one jitted program for a single one, called for each of them in turn."""
    os.environ.setdefault("XLA_FLAGS", ONE_DEVICE)  # whose threads are all that this process may use
    prepare()
    agent = make_agent(cell.agent, cell.steps)
    hyper = jax.tree.map(np.float32, agent.hyper._replace(update_ratio=cell.steps))
    slots = jax.eval_shape(agent.init, jax.random.key(0), agent.hyper).replay_buffer.steps.reward.shape[0]
    steps = jax.device_put(random_rollout(cell.agent, slots, 0))
    start = jax.jit(lambda number, steps: filled(agent, jax.random.fold_in(jax.random.key(0), number), hyper, steps))
    members = [start(np.uint32(seed + i), steps) for i in range(agents)]
    rollout = jax.device_put(random_rollout(cell.agent, 1, 1))

    def step(member: Member, hyper: Any, rollout: Rollout, number: jax.Array, count: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), count), number)
        return agent.update(member, hyper, rollout, key)

    began, zero = time.perf_counter(), np.uint32(0)
    program = jax.jit(step, donate_argnums=0).lower(members[0], hyper, rollout, zero, zero).compile()
    compiling, count = time.perf_counter() - began, [0]

    def call() -> None:
        for i in range(agents):
            members[i], _ = program(members[i], hyper, rollout, np.uint32(seed + i), np.uint32(count[0]))
        count[0] += 1
        jax.block_until_ready(members)

    def report() -> dict[str, Any]:
        assert all(tree.finite(jax.tree.map(lambda x: x[None], m.learned)).all() for m in members)
        return {"compile": compiling, "devices": 1, **_device_memory()}

    return call, report


def measure(cell: Cell) -> dict[str, Any]:
    """Run one cell."""

    def begin(number: int) -> tuple[Callable, Callable]:
        cores = sorted(os.sched_getaffinity(0))
        if cell.population >= len(cores):  # JAX makes as many threads as it has cores
            os.sched_setaffinity(0, {cores[number % len(cores)]})
        return separate(cell, 1, number)

    if cell.method == "parallel":
        return together(begin, cell)
    call, report = vectorised(cell) if cell.method == "vectorised" else separate(cell, cell.population)
    result = alone(call, cell)
    return {**result, "memory_mb": peak(), **report()}


def _device_memory() -> dict[str, float]:
    """Of an accelerator; a CPU has no figures of its own."""
    stats = [d.memory_stats() or {} for d in jax.devices() if d.platform != "cpu"]
    return {"memory_mb": sum(s.get("peak_bytes_in_use", 0) for s in stats) / 2**20} if stats else {}


def rate(seconds: float) -> dict[str, Any]:
    """FLOP/s of float32 products on all cores of this machine, or on its accelerator: the best within so long."""
    platform = jax.devices()[0].platform
    size, times = 2048 if platform == "cpu" else 8192, []
    x = jax.random.normal(jax.random.key(0), (size, size)) / size**0.5
    chain = jax.jit(lambda x: jax.lax.fori_loop(0, 4, lambda _, y: y @ x, x))
    while len(times) < 2 or sum(times) < seconds:  # the first compiles
        began = time.perf_counter()
        chain(x).block_until_ready()
        times.append(time.perf_counter() - began)
    return {"rate": 4 * 2 * size**3 / min(times), "device": platform}


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cell", type=parse, metavar="JSON")
    what.add_argument("--rate", type=float, metavar="SECONDS")
    options = parser.parse_args()
    print(json.dumps(measure(options.cell) if options.cell else rate(options.rate)))


if __name__ == "__main__":
    main()
