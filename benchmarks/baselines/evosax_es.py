"""evosax at work: Open_ES driving gymnax's CartPole, a generation at a time.

Written as a good user of evosax would: members under vmap, the steps of an episode under scan, asking, evaluating and
telling in one compiled function, everything else as JAX has it (one device with the threads of all cores). Policies are
64-64 tanh; a member plays one episode of 500 steps, the same start for all of them.

CartPole's thresholds are out of reach (`THRESHOLDS`), so that no episode ends before its 500 steps: what is compared is
the speed of equal work. `benchmarks/evolution_strategies.py`, which calls this, sets them for Shoal too.

    python benchmarks/baselines/evosax_es.py --population 512

Prints one line of JSON: generations per second, as the median and the best of the generations, and seconds of compiling.
Needs jax, flax, optax, evosax and gymnax.
"""

import argparse
import json
import statistics
import time

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax
from evosax.algorithms import Open_ES

STEPS, LAYERS = 500, (64, 64)
SKIP = 2  # generations that compile: a first state has other types than one that evosax has updated
THRESHOLDS = {"x_threshold": 1e9, "theta_threshold_radians": 1e9}


class Policy(nn.Module):
    """Logits of an observation."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in LAYERS:
            x = nn.tanh(nn.Dense(width)(x))
        return nn.Dense(2)(x)


def make(population: int):
    """The first state and a compiled generation: (state, key) -> (state, mean return)."""
    env, params = gymnax.make("CartPole-v1")
    params, policy = params.replace(**THRESHOLDS), Policy()
    start = policy.init(jax.random.key(0), jnp.zeros(4))
    strategy = Open_ES(population, start, optimizer=optax.adam(0.01), std_schedule=optax.constant_schedule(0.05))
    settings = strategy.default_params

    def play(weights, key):
        """The return of one member."""
        obs, state = env.reset_env(key, params)

        def step(carry, _):
            obs, state, total, alive = carry
            action = policy.apply(weights, obs).argmax()
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            done = terminated | env.is_truncated(state, params)
            return (obs, state, total + reward * alive, alive & ~done), None

        state = jax.tree.map(jnp.asarray, state)
        (_, _, total, _), _ = jax.lax.scan(step, (obs, state, jnp.float32(0), jnp.bool(True)), length=STEPS)
        return total

    @jax.jit
    def generation(state, key):
        ask_key, tell_key, play_key = jax.random.split(key, 3)
        members, state = strategy.ask(ask_key, state, settings)
        returns = jax.vmap(play, (0, None))(members, play_key)
        state, _ = strategy.tell(tell_key, members, -returns, state, settings)  # evosax minimises
        return state, returns.mean()

    return strategy.init(jax.random.key(1), start, settings), generation


def measure(population: int, seconds: float) -> dict[str, float]:
    """Generations, each waited for, as whoever logs them does."""
    state, generation = make(population)
    times, began, number = [], time.perf_counter(), 0
    while number < SKIP + 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        state, mean = jax.block_until_ready(generation(state, jax.random.key(number)))
        times.append(time.perf_counter() - start)
        number += 1
        if number == SKIP:
            began = time.perf_counter()
    assert mean == STEPS, f"episodes were {mean} steps long, not {STEPS}"
    counted = times[SKIP:]
    return {
        "population": population,
        "generations_per_second": 1 / statistics.median(counted),
        "best": 1 / min(counted),
        "generations": len(counted),
        "compile": sum(times[:SKIP]) - SKIP * min(counted),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--population", type=int, default=512, help="members, an even number (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="to be measured (default: %(default)s)")
    options = parser.parse_args()
    print(json.dumps(measure(options.population, options.seconds)))


if __name__ == "__main__":
    main()
