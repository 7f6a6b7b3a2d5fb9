"""Members that share nothing: every function of the agent, mapped over the member axis."""

from __future__ import annotations

import jax

from shoal.core.keys import member_keys
from shoal.core.types import Agent, Hyper, Learner, Metrics, Population, PyTree, Rollout


def independent(agent: Agent) -> Learner:
    """N members of one agent, none of which depends on another: PBT, random search, many seeds."""

    def init(key: jax.Array, uid: jax.Array, hyper: Hyper) -> Population:
        return Population(jax.vmap(agent.init)(member_keys(key, uid), hyper), (), hyper)

    def act(population: Population, obs: jax.Array, carry: PyTree, keys: jax.Array) -> tuple[jax.Array, PyTree, PyTree]:
        return jax.vmap(agent.act)(population.members.learned, population.hyper, obs, carry, keys)

    def act_deterministic(population: Population, obs: jax.Array, carry: PyTree) -> tuple[jax.Array, PyTree]:
        return jax.vmap(agent.act_deterministic)(population.members.learned, obs, carry)

    def update(population: Population, rollout: Rollout, keys: jax.Array) -> tuple[Population, Metrics]:
        members, metrics = jax.vmap(agent.update)(population.members, population.hyper, rollout, keys)
        return population._replace(members=members), metrics

    def value(population: Population, obs: jax.Array, carry: PyTree) -> jax.Array:
        assert agent.value is not None
        return jax.vmap(agent.value)(population.members.learned, obs, carry)

    return Learner(init, act, act_deterministic, update, agent, value=value if agent.value else None)
