"""One agent by self-play that plays half of its games against its own past, as an arm of the study of games.

Used as `agent: benchmarks.studies.own_past:ppo`, from the folder that holds `benchmarks`. In the second half of the
environments a past policy plays player 0 or player 1: a snapshot, drawn anew for every update, uniformly among those taken.
Its moves count as moves, and are not learned from.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.agents.ppo import ppo as latest_ppo
from shoal.core.spec import PLAYER, Spec
from shoal.core.types import Agent, Member, Rollout

EVERY = 18  # updates from one snapshot to the next
SNAPSHOTS = 32  # that are kept, the newest


class Learned(NamedTuple):
    now: Any  # what PPO has learned
    past: Any  # the same of each snapshot, [SNAPSHOTS, ...]: parameters and statistics of observations
    opponent: jax.Array  # the snapshot that plays until the next update
    updates: jax.Array


def ppo(spec: Spec, **settings: Any) -> Agent:
    """PPO against itself and its past. Takes the settings of `ppo`."""
    agent = latest_ppo(spec, **settings)

    def policy(learned: Any) -> tuple[Any, Any]:
        return learned.params, learned.observations

    def init(key: jax.Array, hyper: Any) -> Member:
        member = agent.init(key, hyper)
        past = jax.tree.map(lambda x: jnp.broadcast_to(x, (SNAPSHOTS, *x.shape)), policy(member.learned))
        return member._replace(learned=Learned(member.learned, past, jnp.int32(0), jnp.int32(0)))

    def act(learned: Learned, hyper: Any, obs: Any, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        of_now, of_past = jax.random.split(key)
        action, carry, acted = agent.act(learned.now, hyper, obs, carry, of_now)
        params, statistics = jax.tree.map(lambda x: x[learned.opponent], learned.past)
        opponent = learned.now._replace(params=params, observations=statistics)
        other, _, _ = agent.act(opponent, hyper, obs, carry, of_past)

        environment = jnp.arange(agent.num_envs)
        against_past = environment >= agent.num_envs // 2
        of_another = against_past & (obs[PLAYER] == environment % 2)
        log_prob = jnp.where(of_another, jnp.nan, acted.log_prob)
        return jnp.where(of_another, other, action), carry, acted._replace(log_prob=log_prob)

    def update(member: Member, hyper: Any, rollout: Rollout, key: jax.Array) -> tuple[Member, Any]:
        of_update, of_draw = jax.random.split(key)
        learned = member.learned
        after, metrics = agent.update(member._replace(learned=learned.now), hyper, rollout, of_update)
        updates = learned.updates + 1
        taken = updates // EVERY
        slot, is_due = taken % SNAPSHOTS, updates % EVERY == 0
        past = jax.tree.map(
            lambda kept, x: kept.at[slot].set(jnp.where(is_due, x, kept[slot])), learned.past, policy(after.learned)
        )
        opponent = jax.random.randint(of_draw, (), 0, jnp.minimum(taken + 1, SNAPSHOTS))
        return after._replace(learned=Learned(after.learned, past, opponent, updates)), metrics

    return agent._replace(
        init=init,
        act=act,
        update=update,
        act_deterministic=lambda learned, obs, carry: agent.act_deterministic(learned.now, obs, carry),
        value=lambda learned, obs, carry: agent.value(learned.now, obs, carry),
        probabilities=lambda learned, obs: agent.probabilities(learned.now, obs),
    )
