"""The weights of a shaped reward, tuned by a sparse objective: success.

A hand pushes a puck to a goal. Each member trains with its own weights. Fitness is how often the puck is at the goal at the
end of an episode. As long as no member succeeds, members are ranked by their return with the environment's default weights.
"""

import jax
import jax.numpy as jnp

from shoal import Box, DeviceEnvironment, Experiment, Spec, train

GENERATIONS, INTERVAL, EPISODE = 10, 8192, 50
SPEED, RADIUS, NEAR = 0.1, 0.2, 0.15
WEIGHTS = ("reach", "push", "arrive", "effort")


def puck(reach: float = 1.0, push: float = 1.0, arrive: float = 1.0, effort: float = 1.0) -> DeviceEnvironment:
    """The arguments are environment parameters: the weights of the distance from hand to puck, of the distance from puck to
    goal, of being at the goal, and of moving."""

    def observed(hand, puck, goal):
        return jnp.concatenate([hand, puck - hand, goal - puck])

    def reset(key):
        sides = jax.random.uniform(key, (2,), minval=-0.4, maxval=0.4)
        hand, puck, goal = jnp.array([-0.6, 0.0]), jnp.array([0.0, sides[0]]), jnp.array([0.6, sides[1]])
        return observed(hand, puck, goal), (hand, puck, goal, jnp.int32(0))

    def step(key, state, action):
        hand, puck, goal, time = state
        hand, time = jnp.clip(hand + SPEED * action, -1.0, 1.0), time + 1
        apart = puck - hand
        distance = jnp.linalg.norm(apart) + 1e-6
        puck = jnp.clip(puck + apart / distance * jnp.maximum(RADIUS - distance, 0.0), -1.0, 1.0)  # the hand pushes it
        left = jnp.linalg.norm(goal - puck)
        shaped = reach * distance + push * left + effort * jnp.square(action).sum()
        reward = arrive * (left < NEAR) - 0.1 * shaped
        return observed(hand, puck, goal), (hand, puck, goal, time), reward, jnp.bool_(False), time >= EPISODE

    def info(state):
        _, puck, goal, _ = state
        return {"success": (jnp.linalg.norm(goal - puck) < NEAR).astype(jnp.float32)}

    spec = Spec((6,), "float32", Box((-1.0, -1.0), (1.0, 1.0)))
    return DeviceEnvironment(spec, reset, step, info=info)


def main() -> None:
    weight = {"low": 0.1, "high": 10.0, "scale": "log", "initial": "sampled"}  # no good default is known
    result = train(
        Experiment(
            env=puck,  # its arguments are environment parameters
            method="pbt",
            population=8,
            generations=GENERATIONS,
            interval=INTERVAL,
            space={"learning_rate": [1e-4, 1e-2, "log"]} | {f"env.{name}": weight for name in WEIGHTS},
            fitness={"objective": "success", "tie_breaker": "return"},
        )
    )
    chosen = ", ".join(f"{name} {result.champion.hyper[f'env.{name}']:.2g}" for name in WEIGHTS)
    print(f"weights at last: {chosen}")
    print(f"the puck lies at the goal in {result.evaluation['mean']:.0%} of the episodes")


if __name__ == "__main__":
    main()
