"""brax's PPO at work, as `benchmarks/robots.py` asks for it, with the arguments of that script. Prints a line of JSON:
steps per second of training without evaluations, seconds of compilation, bytes of memory.
"""

import contextlib
import json
import statistics
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import most_memory
from robots import arguments

LEAST = 3  # intervals that are timed


class Enough(Exception):
    """So many seconds have been timed."""


def main() -> None:
    """Train until the seconds are over, and print the figures."""
    options = arguments().parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # some packages greet on import
        import jax
        import jax.numpy as jnp

        # brax 0.14 asks for it, and JAX has it no longer.
        jax.device_put_replicated = lambda tree, devices: jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)
        from brax.training.agents.ppo import networks, train

        suite, _, name = options.env.partition(":")
        if suite == "playground":
            from mujoco_playground import registry, wrapper

            env, more = (
                registry.load(name, config_overrides={"impl": "jax"}),
                {"wrap_env_fn": wrapper.wrap_for_brax_training},
            )
            length = int(env._config.episode_length)
        else:
            from brax import envs

            env, more, length = envs.get_environment(name), {}, 1000
        layers = {"policy_hidden_layer_sizes": options.layers, "value_hidden_layer_sizes": options.layers}
        if not isinstance(env.observation_size, int):
            layers |= {"policy_obs_key": "state", "value_obs_key": "privileged_state"}
        steps, times = options.environments * options.unroll * options.updates, [time.perf_counter()]

        def progress(done: int, metrics: dict) -> None:
            if done:
                times.append(time.perf_counter())
            if len(times) > 1 + LEAST and times[-1] - times[1] > options.seconds:
                raise Enough

        many = 100_000  # intervals, more than ever are made
        with contextlib.suppress(Enough):
            train.train(
                env,
                num_timesteps=many * steps,
                num_evals=many + 1,
                run_evals=False,
                progress_fn=progress,
                num_envs=options.environments,
                batch_size=options.environments // options.minibatches,
                num_minibatches=options.minibatches,
                unroll_length=options.unroll,
                num_updates_per_batch=options.epochs,
                episode_length=length,
                normalize_observations=True,
                learning_rate=3e-4,
                network_factory=partial(networks.make_ppo_networks, **layers),
                **more,
            )
    seconds = [b - a for a, b in pairwise(times)]  # the first interval compiles
    figures = {
        "train": steps / statistics.median(seconds[1:]),
        "compile": seconds[0] - statistics.median(seconds[1:]),
        "memory": most_memory(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
