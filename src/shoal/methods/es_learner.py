"""The learner of evolution strategies: how members are sampled, and how the mean moves; `es` has the equations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from shoal.core import tree
from shoal.core.types import Agent, Hyper, Member, Population, PyTree, Rollout, SearchLearner
from shoal.rl.batching import spread
from shoal.rl.independent import independent
from shoal.rl.observations import update_all_statistics

BLOCKS = 8  # parts of the population that are summed up separately, so that sums do not depend on the devices


class EsShared(NamedTuple):
    """The state that all members share."""

    policy: PyTree  # the mean, as the agent's `learned`: `params`, and statistics of observations where it has them
    optimizer: PyTree
    seen: PyTree  # these statistics with this generation's observations, for the next generation


class EsLearner:
    """The functions of a SearchLearner; members differ from the mean in `learned.params` of the agent alone."""

    def __init__(self, agent: Agent, optimizer: str, chunk: int):
        """agent: with the hyperparameters of evolution strategies. optimizer, chunk: as the method has them."""
        self.agent, self.optimizer, self.chunk = agent, optimizer, chunk
        learned = jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper)).learned
        self.normalises = bool(jax.tree.leaves(getattr(learned, "observations", ())))

    def learner(self) -> SearchLearner:
        alone = independent(self.agent)
        given = (
            self.init,
            alone.act,
            alone.act_deterministic,
            self.agent,
            self.sample,
            self.tell,
            self.mean,
            self.with_mean,
        )
        learner = SearchLearner(*given, chunk=self.chunk, cap=self.cap, pairs=True)
        return learner._replace(watches=True, watch=self.watch) if self.normalises else learner

    def init(self, key: jax.Array, uid: jax.Array, hyper: Hyper) -> Population:
        return self.with_mean(Population(Member((), (), ()), (), hyper), self.agent.init(key, hyper).learned)

    def mean(self, population: Population) -> PyTree:
        return population.shared.policy

    def with_mean(self, population: Population, learned: PyTree) -> Population:
        seen = learned.observations if self.normalises else ()
        optimizer = self.direction(first(population.hyper)).init(learned.params)
        return population._replace(shared=EsShared(learned, optimizer, seen))

    def direction(self, hyper: Hyper) -> optax.GradientTransformation:
        """The optimiser without its learning rate."""
        if self.optimizer == "adam":
            return optax.scale_by_adam(b1=hyper.momentum)
        return optax.trace(decay=hyper.momentum)

    def sample(self, population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array) -> PyTree:
        """Sample members: 2k and 2k + 1 are the two sides of perturbation k."""
        policy, members = population.shared.policy, population.hyper.sigma.shape[0]
        flat, unravel = ravel_pytree(policy.params)
        scale = jnp.where(rows < members, population.hyper.sigma[jnp.minimum(rows, members - 1)], 0.0)
        step = scale[::2, None] * jax.vmap(noise, (None, 0, None))(key, uid[::2] // 2, flat.size)
        sides = jnp.stack([flat[None] + step, flat[None] - step], 1).reshape(len(rows), flat.size)
        every = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(rows), *x.shape)), policy)
        return every._replace(params=jax.vmap(unravel)(sides))

    def tell(
        self, population: Population, uid: jax.Array, weights: jax.Array, key: jax.Array
    ) -> tuple[Population, dict[str, jax.Array]]:
        """Take a step along the estimated gradient; `uid` and `weights` [M] in order of uid, from an even one on."""
        (policy, state, seen), hyper = population.shared, first(population.hyper)
        flat, unravel = ravel_pytree(policy.params)
        total = self.weighted_sum(key, uid[::2] // 2, weights[::2] - weights[1::2], flat)
        ascent = total / (uid.shape[0] * hyper.sigma) - hyper.weight_decay * flat
        step, state = self.direction(hyper).update(unravel(-ascent), state)
        params = jax.tree.map(lambda p, d: p - hyper.learning_rate * d, policy.params, step)
        length = hyper.learning_rate * optax.tree.norm(step)
        metrics = {"gradient/norm": jnp.linalg.norm(ascent), "step/norm": length}
        policy = policy._replace(params=params)
        if self.normalises:
            policy = policy._replace(observations=seen)
        return population._replace(shared=EsShared(policy, state, seen)), metrics

    def weighted_sum(self, key: jax.Array, pairs: jax.Array, weights: jax.Array, flat: jax.Array) -> jax.Array:
        """The sum of the perturbations of pairs [P], like `flat`, each with its weight [P]; always added in one order."""
        blocks = BLOCKS if len(pairs) >= BLOCKS else 1
        count = -(-len(pairs) // (blocks * self.chunk))
        width = -(-len(pairs) // (blocks * count))
        padded = (jnp.pad(x, (0, blocks * count * width - len(x))) for x in (pairs, weights))
        parts = spread(tuple(x.reshape(blocks, count, width) for x in padded))

        def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            directions = jax.vmap(noise, (None, 0, None))(key, part[0], flat.size)
            return total + part[1] @ directions, None

        sums = jax.vmap(lambda block: jax.lax.scan(add, jnp.zeros_like(flat), block)[0])(parts)
        return jax.lax.scan(lambda total, x: (total + x, None), jnp.zeros_like(flat), sums)[0]

    def watch(self, shared: EsShared, rows: jax.Array, step: Rollout, alive: jax.Array) -> EsShared:
        """Update the statistics of observations by the mean's episodes, which are the same in every process."""
        row = jnp.argmax(rows == 0)[None]  # this row only: the others differ between processes
        obs = tree.take(step.obs, row)
        seen = alive[row] & (rows[row] == 0)[:, None] & tree.finite(obs, 2)
        return shared._replace(seen=update_all_statistics(shared.seen, obs, seen))

    def cap(self, hyper: Hyper) -> int:
        return int(hyper.episode_cap[0])


def first(hyper: Hyper) -> Any:
    """The hyperparameters of the generation, from the equal ones of its members [N]."""
    return jax.tree.map(lambda x: x[0], hyper)


def noise(key: jax.Array, pair: jax.Array, size: int) -> jax.Array:
    """The perturbation of a pair of members."""
    return jax.random.normal(jax.random.fold_in(key, pair), (size,))
