"""Your own agent: REINFORCE with a linear policy, written for one member; Shoal makes a population of it."""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from shoal import Agent, Discrete, Experiment, HyperparameterSpec, Member, Range, Spec, train

GENERATIONS, INTERVAL = 8, 8192


class Hyper(NamedTuple):
    """Hyperparameters, which may differ per member. They are passed as arguments, so that they can change at any time."""

    learning_rate: Annotated[Any, HyperparameterSpec("learning rate of Adam", Range(1e-4, 1.0, "log"))] = 0.01
    discount: Annotated[Any, HyperparameterSpec("discount factor", Range(0.5, 0.999, "one_minus_log"))] = 0.99


def reinforce(spec: Spec, num_envs: int = 8, rollout_length: int = 128) -> Agent:
    """The arguments after `spec` are the experiment's config: they fix shapes and are the same for all members."""
    assert isinstance(spec.action, Discrete)

    def init(key, hyper):
        params = jnp.zeros((*spec.obs_shape, spec.action.n))
        learned = (params, optax.adam(hyper.learning_rate).init(params))  # what a child copies from its parent
        return Member(learned, replay_buffer=(), own=())

    def act(learned, hyper, obs, carry, key):
        return jax.random.categorical(key, obs @ learned[0]), carry, ()

    def act_deterministic(learned, obs, carry):
        return jnp.argmax(obs @ learned[0], -1), carry

    def update(member, hyper, rollout, key):  # leaves of the rollout are [T, B, ...]
        def back(total, step):
            total = step[0] + hyper.discount * total * (1 - step[1])
            return total, total

        done = (rollout.terminated | rollout.truncated).astype(jnp.float32)
        _, returns = jax.lax.scan(back, jnp.zeros(num_envs), (rollout.reward, done), reverse=True)
        advantage = (returns - returns.mean()) / (returns.std() + 1e-8)

        def loss(params):
            log_prob = jax.nn.log_softmax(rollout.obs @ params)
            taken = jnp.take_along_axis(log_prob, rollout.action[..., None], -1)[..., 0]
            return -(taken * advantage).mean()

        params, state = member.learned
        value, gradient = jax.value_and_grad(loss)(params)
        change, state = optax.adam(hyper.learning_rate).update(gradient, state)
        return Member((optax.apply_updates(params, change), state), (), ()), {"loss/policy": value}

    return Agent(
        init=init,
        act=act,
        act_deterministic=act_deterministic,
        update=update,
        carry=lambda shape: (),
        hyper=Hyper(),
        rollout_length=rollout_length,
        num_envs=num_envs,
    )


def main() -> None:
    # In an experiment file: agent: my_module:reinforce
    result = train(Experiment(env="CartPole-v1", agent=reinforce, generations=GENERATIONS, interval=INTERVAL))
    print(f"REINFORCE: {result.evaluation['mean']:.0f} of 500, last trained with {result.champion.hyper}")


if __name__ == "__main__":
    main()
