"""An asymmetric actor-critic: the critic sees more than the policy. Observations are a dictionary, and the experiment names
the keys that each of the two sees."""

import jax
import jax.numpy as jnp

from shoal import DeviceEnvironment, Discrete, Experiment, Spec, train

UPDATES, STEPS, MEMBERS = 60, 64, 4  # of each member, and in each update


def luck(size: float = 20.0) -> DeviceEnvironment:
    """One step: `state`, -1 or 1, says which action has reward 1. Luck, -size or size, is added to either reward.

    `privileged_state` also has the luck: a critic that sees it can subtract it, so that the advantage depends on the action
    alone. For a critic that sees only `state`, luck is noise, which takes a great many steps to average out.
    """

    def reset(key):
        signs = jnp.where(jax.random.bernoulli(key, shape=(2,)), jnp.float32(1), jnp.float32(-1))
        drawn = signs * jnp.array([1.0, size])
        return seen(drawn), (drawn, jnp.float32(0))

    def seen(drawn):
        return {"state": drawn[:1], "privileged_state": drawn}

    def step(key, state, action):
        drawn, _ = state
        merit = (action == (drawn[0] > 0).astype(jnp.int32)).astype(jnp.float32)
        return seen(drawn), (drawn, merit), merit + drawn[1], jnp.bool(True), jnp.bool(False)

    shapes = {"state": (1,), "privileged_state": (2,)}
    # An experiment file may choose other keys: config: {actor: [...], critic: [...]}
    spec = Spec(shapes, "float32", Discrete(2), actor=("state",), critic=("privileged_state",))
    return DeviceEnvironment(spec, reset, step, info=lambda state: {"merit": state[1]})


def main() -> None:
    for critic in (["state", "privileged_state"], ["state"]):
        result = train(
            Experiment(
                env=luck,
                fitness={"objective": "merit", "deterministic": False},
                population=MEMBERS,
                generations=1,
                interval=UPDATES * STEPS,
                config={"layers": [], "num_envs": 8, "rollout_length": 8, "num_minibatches": 2, "critic": critic},
                hyper={"learning_rate": 0.01, "entropy_coefficient": 0.0},
                space={},
                final_episodes=1024,
            )
        )
        print(f"a critic that sees {' and '.join(critic)}: {result.summary['champion']['evaluation']['mean']:.2f}")


if __name__ == "__main__":
    main()
