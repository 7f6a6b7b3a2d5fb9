"""A shard of members that live on and copy one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.evolution import Cards, Decision, Seed
from shoal.core.keys import derive, jax_key
from shoal.core.types import Hyper, Learner, PyTree
from shoal.environments.measurement import Measurement
from shoal.environments.registry import Environment
from shoal.members.jax_shard import JaxShard
from shoal.members.rollouts.device import DeviceRollouts
from shoal.members.rollouts.episodes import Outcome, no_outcome, of_levels, summarise
from shoal.members.rollouts.host import HostRollouts


class MemberShard(JaxShard):
    """N members of one learner in one environment, which train as one compiled program.

    uid: of its members, [N]. copy_memory: children copy replay memory too. pause: see `JaxShard`.
    """

    on_device, on_host = DeviceRollouts, HostRollouts
    rollouts: DeviceRollouts | HostRollouts

    def __init__(
        self,
        environment: Environment,
        learner: Learner,
        uid: np.ndarray,
        seed: int,
        measurement: Measurement,
        pause: Callable = lambda result, done: None,
        copy_memory: bool = False,
    ):
        super().__init__(environment, learner, uid, seed, measurement, pause)
        layout = self._layout
        self._copy_memory = copy_memory
        self._inherit = layout.gather(tree.take, True, False)
        self._implant = layout.gather(_implant, True, False, False, donate=(0,))
        self._snapshot = jax.jit(tree.take)
        self._renew = layout.program(partial(_renewed, learner), True, True, True, False, True, True)
        self._programs += (self._inherit, self._renew)
        self._outcome = no_outcome(np, len(uid))

    def begin(self, hyper: dict[str, np.ndarray], train: bool = True) -> None:
        """New members with these hyperparameters, float32 [N] each; `train`: what training needs is compiled ahead."""
        arguments = self._beginning(hyper)
        if train:
            self.rollouts.prepare(jax.eval_shape(self._first, *arguments), self.uid, self._measurement.episodes)
        self.population = self._init(*arguments)
        self._begin_episodes(0)

    def teach(self, learned: Sequence[PyTree]) -> None:
        """Members that have just begun have learned this, each of them."""
        together = jax.tree.map(lambda *each: np.stack(each), *learned)
        members = self.population.members._replace(learned=self._layout.place(together))
        self.population = self.population._replace(members=members)

    def _begin_episodes(self, generation: int) -> None:
        """Reset every training environment."""
        self.rollouts.begin(self.uid, self.population.knobs, self._key(generation, "reset"))

    def train(self, generation: int, iterations: int, chunk: int) -> dict[str, np.ndarray]:
        """One interval: `iterations` rollouts and updates. Returns metrics [N], their mean over the interval."""
        agent, self._generation = self._agent, generation
        key = jax_key(self._key(generation, "train"))
        self.population, metrics, returned, self._outcome = self.rollouts.train(
            self.population, self.uid, key, iterations, chunk, self.pause
        )
        self._steps = self._steps + iterations * agent.rollout * agent.environments
        nothing = np.where(returned.episodes > 0, np.float32(0), np.float32(np.nan))
        return metrics | {"episode/return": returned.mean + nothing, "episode/length": returned.length + nothing}

    def evaluate(self, generation: int) -> dict[str, np.ndarray]:
        """Measure the fitness of every member; the same episodes for all of them, new ones in each generation.

        Returns metrics [N]: where there are levels, what they return on those of each purpose.
        """
        sound = np.asarray(self._finite(self.population.members))
        metrics: dict[str, np.ndarray] = {}
        if self._measurement.source == "training":
            measured = _of_training(self._outcome)
        elif self._measurement.levels:
            on = {name: self._measured(generation, f"evaluate {name}", name) for name in ("train", "validation")}
            metrics = of_levels(*(np.where(sound, mean, np.nan) for mean, *_ in on.values()))
            measured = on[self._measurement.measured_on]
        else:
            measured = self._measured(generation, "evaluate", "")
        self._fitness, self._deviation, self._counted = measured
        self._fitness = np.where(sound & np.isfinite(self._fitness), self._fitness, np.nan)
        return metrics

    def _measured(self, generation: int, purpose: str, levels: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, deviation and number of the returns of every member [N] at these levels, in the same episodes."""
        key, episodes = jax_key(self._key(generation, purpose)), self._measurement.episodes
        keys = jnp.broadcast_to(jax.random.split(key, episodes), (len(self.uid), episodes))
        returns, lengths = self.rollouts.evaluate(self.population, keys, levels, self.pause)
        self.evaluation_steps += int(lengths.sum())
        return summarise(returns)

    def individuals(self, cards: Cards, metrics: dict[str, np.ndarray]) -> tuple[Cards, dict[str, np.ndarray]]:
        """The members themselves."""
        return cards, metrics

    def snapshot(self, row: int) -> PyTree:
        """What a child copies of this member: `learned`, and the memory where that is copied. Nobody waits for it here."""
        if self._is_on_host:
            return jax.tree.map(np.array, tree.take(self._heritage, row))
        return self._snapshot(*self._layout.beside(self._heritage, row))

    def snapshot_shape(self) -> PyTree:
        """The shapes and types of a snapshot."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self._heritage)

    def apply(self, decision: Decision, arrived: dict[int, PyTree]) -> None:
        """Do what is decided for these members: see `Shard.apply`."""
        parents = decision.parents
        copied, place = parents != np.arange(len(self.uid)), self._layout.place
        if copied.any():
            self._heritage = self._inherit(self._heritage, place(parents.astype(np.int32), False))
        for row, state in arrived.items():
            self._heritage = self._implant(self._heritage, place(np.int32(row), False), place(state, False))
            copied[row] = True
        if copied.any():
            self.rollouts.overwrite(copied)
        self.set_hyper(decision.hyper)
        if decision.renewed:
            self._begin_anew(decision.renewed)

    def _begin_anew(self, shares: Mapping[int, tuple[float, float]]) -> None:
        """Mix members with fresh ones; `shares`: as in `Decision.renewed`."""
        kept, fresh = np.ones(len(self.uid), np.float32), np.zeros(len(self.uid), np.float32)
        for row, share in shares.items():
            kept[row], fresh[row] = share
        members, place = self.population.members, self._layout.place
        key = place(jax_key(self._key(self._generation, "renew")), members=False)
        uid, hyper = place(self.uid), self.population.hyper
        learned = self._renew(members.learned, uid, hyper, key, place(kept), place(fresh))
        self.population = self.population._replace(members=members._replace(learned=learned))
        self.rollouts.overwrite(np.isin(np.arange(len(self.uid)), list(shares)))

    def recombine(self, uid: np.ndarray, weights: np.ndarray, hyper: dict[str, np.ndarray]) -> dict[str, float]:
        """Members that live on have no mean. Raises BadInput."""
        raise BadField("method", "its evolver weighs members for a mean, which those of its learner do not have")

    @property
    def _heritage(self) -> tuple[PyTree, PyTree]:
        """What children copy, of all members: `learned`, and the memory where that is copied."""
        members = self.population.members
        return members.learned, members.memory if self._copy_memory else ()

    @_heritage.setter
    def _heritage(self, new: tuple[PyTree, PyTree]) -> None:
        members = self.population.members
        members = members._replace(learned=new[0], memory=new[1] if self._copy_memory else members.memory)
        self.population = self.population._replace(members=members)

    def test(
        self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int, levels: str = "test"
    ) -> np.ndarray:
        """Returns [episodes] of one member on new episodes, which all rows of the shard share."""
        n, at_a_time = len(self.uid), self._measurement.episodes
        broadcast = jax.tree.map(lambda x: np.broadcast_to(x, (n, *np.shape(x))), learned)
        members = self.population.members._replace(learned=self._layout.place(broadcast))
        same, _ = self._placed({name: np.full(n, value) for name, value in hyper.items()})
        population = self.population._replace(members=members, hyper=same)
        results: list[np.ndarray] = []
        for round_ in range(-(-episodes // (n * at_a_time))):
            keys = jax.random.split(jax_key(derive(key, round_)), (n, at_a_time))
            results.append(self.rollouts.evaluate(population, keys, levels, self.pause)[0].reshape(-1))
        return np.concatenate(results)[:episodes].astype(np.float64)

    def state(self) -> dict[str, PyTree]:
        """The state for a checkpoint, from which the run continues exactly; by name of the shard."""
        return self._state()

    def restore(self, states: dict[str, PyTree], generation: int) -> None:
        """Continue from a `state` that was saved at the end of `generation`."""
        self._restore(states[self.name], generation)
        if self.resumes_exactly:
            self.rollouts.restore(self._layout.place(states[self.name]["rollouts"]))
        else:
            self.population = self.population._replace(members=self._agent.cut(self.population.members))
            self._begin_episodes(generation + 1)


def _of_training(outcome: Outcome) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fitness, deviation and number of the interval's training episodes [N]; NaN where none ended."""
    n = np.asarray(outcome.episodes, np.float64)
    fitness = np.where(n > 0, np.asarray(outcome.mean, np.float64), np.nan)
    variance = np.asarray(outcome.squares, np.float64) / np.maximum(n - 1, 1)
    return fitness, np.where(n > 1, np.sqrt(variance), np.nan), n.astype(np.int64)


def _implant(inheritance: PyTree, row: jax.Array, state: PyTree) -> PyTree:
    """What children copy, of all members, with another state at `row`."""
    return jax.tree.map(lambda x, new: x.at[row].set(new), inheritance, state)


def _renewed(
    learner: Learner, learned: PyTree, uid: jax.Array, hyper: Hyper, key: jax.Array, kept: jax.Array, fresh: jax.Array
) -> PyTree:
    """What members [N] have learned, with so much of it kept and so much of fresh weights, float32 [N] each."""

    def mixed(old: jax.Array, new: jax.Array) -> jax.Array:
        a, b = (x.reshape(-1, *[1] * (old.ndim - 1)).astype(old.dtype) for x in (kept, fresh))
        return jnp.where(a > 0, a * old, 0) + b * new  # nothing is left of weights that are not finite

    begun = learner.init(key, uid, hyper).members.learned
    whole = tree.where(kept > 0, learned, begun)
    weights = {
        name: jax.tree.map(mixed, getattr(learned, name), getattr(begun, name)) for name in learner.agent.weights
    }
    return tree.where((kept == 1) & (fresh == 0), learned, whole._replace(**weights))
