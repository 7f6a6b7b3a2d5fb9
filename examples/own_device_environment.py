"""Your own environment as pure JAX functions: it is compiled together with the training, which makes it fast."""

import jax
import jax.numpy as jnp

from shoal import Box, DeviceEnvironment, Experiment, Spec, train

GENERATIONS, INTERVAL, EPISODE = 8, 8192, 64


def balloon(wind: float = 0.3) -> DeviceEnvironment:
    """Keep a balloon at height 0. It observes height and speed, and heats or cools; gusts push it around.

    The arguments of this function are the experiment's env_options.
    """

    def reset(key):
        height = jax.random.uniform(key, (), minval=-2.0, maxval=2.0)
        state = (height, jnp.float32(0), jnp.int32(0))  # height, speed, time
        return jnp.stack(state[:2]), state

    def step(key, state, action):
        height, speed, time = state
        speed = 0.9 * speed + 0.1 * action[0] + 0.1 * wind * jax.random.normal(key)
        height, time = height + speed, time + 1
        reward, lost = -jnp.abs(height), jnp.abs(height) > 5  # lost: terminated, no bootstrapping
        truncated = time >= EPISODE  # the time limit: the value is bootstrapped
        return jnp.stack([height, speed]), (height, speed, time), reward, lost, truncated

    action = Box(low=(-2.0,), high=(2.0,))  # actions arrive within these bounds
    return DeviceEnvironment(Spec((2,), "float32", action), reset, step)


def main() -> None:
    result = train(
        Experiment(
            env=balloon,  # in an experiment file: env: my_module:balloon
            env_options={"wind": 0.2},
            population=8,
            generations=GENERATIONS,
            interval=INTERVAL,
            space={"learning_rate": [1e-4, 1e-1, "log"], "discount": [0.8, 0.99, "one_minus_log"]},
        )
    )
    print(
        f"on average {-result.evaluation['mean'] / EPISODE:.2f} away from height 0; doing nothing, it would be 1 or more"
    )


if __name__ == "__main__":
    main()
