"""The host rollouts: gymnasium environments of the whole population behind one flat vector, learning on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.keys import at, derive, member_keys, stream, words
from shoal.core.types import Learner, Member, Population, PyTree, Rollout, Seed
from shoal.environments.host import HostEnvironment, Vector
from shoal.environments.spaces import to_bounds
from shoal.population.devices import OF_POPULATION, Layout, Program
from shoal.population.rollouts.episodes import (
    Outcome,
    add_metrics,
    advance,
    begin,
    broken,
    disown,
    forget,
    mean_metrics,
    merge,
    no_metrics,
    no_outcome,
)
from shoal.population.rollouts.search import actors_at, chunks_of


class HostRollouts:
    """N members in B host environments each, stepped together; one policy call for all of them per step."""

    resumes_exactly = False

    def __init__(
        self,
        environment: HostEnvironment,
        learner: Learner,
        layout: Layout,
        greedy: bool,
        step_limit: int,
        objective: str | None = None,
    ):
        self._environment, self._learner, self._layout, self._step_limit = environment, learner, layout, step_limit
        self._objective = objective
        kept = (True, False)  # (learned, shared): with and without the member axis
        self._act = layout.program(self._act_members, (*kept, True), True, True, True, False, False)
        # Weights are not donated: off-policy agents act with the old ones while new ones are computed.
        self._update = layout.program(
            self._update_members, kept, True, True, True, True, False, out=(kept, True, True), donate=(1,)
        )
        test = self._greedy_members if greedy else self._sample_members
        self._test = layout.program(test, OF_POPULATION, True, True, True, False)
        self._perform = layout.program(test, OF_POPULATION, True, True, True, False)  # of drawn members
        self._actors = layout.gather(self._actors_of, OF_POPULATION, False, False, False)
        self._watch = layout.gather(self._watch_step, False, False, True, True, out=False)
        self._turns = [layout.place(np.int32(t), members=False) for t in range(learner.agent.rollout)]
        self._training: Vector | None = None
        self._testing: tuple[Vector, int] | None = None
        self._obs: np.ndarray = np.zeros(0)
        self._carry: PyTree = ()
        self._progress = begin(np, 0, 0)
        self.programs = (self._act, self._update, self._test, self._perform, self._actors, self._watch)

    def sibling(self) -> HostRollouts:
        """The rollouts of other members, with the same programs and with their own simulators."""
        other = copy.copy(self)
        other._training = other._testing = None
        return other

    # ------------------------------------------------------------------------------------------- training

    def begin(self, uid: np.ndarray, key: Seed) -> None:
        """Reset every environment, each with its own seed."""
        shape = (len(uid), self._learner.agent.environments)
        self._training = self._training or self._environment.open(shape[0] * shape[1], self._objective)
        seeds = [seed for u in uid for seed in words(derive(key, int(u)), shape[1])]
        self._obs = self._training.reset(seeds).reshape(*shape, *self._environment.spec.obs_shape)
        self._carry = jax.tree.map(np.asarray, self._learner.agent.carry(shape))
        self._progress = begin(np, *shape)

    @np.errstate(over="ignore", invalid="ignore")  # returns too large for float32 become infinite
    def train(
        self, population: Population, uid: np.ndarray, key: jax.Array, iterations: int, chunk: int, pause: Callable
    ) -> tuple[Population, dict[str, np.ndarray], Outcome]:
        """`iterations` times a rollout and an update; see `DeviceRollouts.train`. `pause` is called after each update.

        An off-policy agent acts with the weights before the last update, so that environments step while the device
        learns.
        """
        place, hyper, off_policy = self._layout.place, population.hyper, self._learner.agent.off_policy
        who = place(uid)
        outcome, metrics = no_outcome(np, len(uid)), None
        sums: dict[str, Any] = {}
        (learned, memory, own), shared = population.members, population.shared
        acting = (learned, shared, hyper)
        for i in range(iterations):
            now = jax.random.fold_in(key, i)
            act_key, update_key = (place(stream(now, purpose), members=False) for purpose in ("act", "update"))
            rollout, finished = self._collect(acting, who, act_key)
            outcome = merge(np, outcome, *finished)
            if off_policy:
                pause(metrics, i)  # the last round of updates, which ran beside this rollout
                acting = (learned, shared, hyper)
            (learned, shared), (memory, own), metrics = self._update(
                (learned, shared), (memory, own), hyper, place(rollout), who, update_key
            )
            if not off_policy:
                pause(metrics, i + 1)
                acting = (learned, shared, hyper)
            sums = add_metrics(jnp, sums or no_metrics(jnp, metrics, len(uid)), metrics)
        pause(metrics, iterations)
        return Population(Member(learned, memory, own), shared, hyper), mean_metrics(sums), outcome

    def _collect(self, acting: tuple, uid: jax.Array, key: jax.Array) -> tuple[Rollout, list[np.ndarray]]:
        assert self._training is not None
        agent, place = self._learner.agent, self._layout.place
        shape = self._obs.shape[:2]
        steps, ends = [], []
        for t in range(agent.rollout):
            chosen = self._act(acting, place(self._obs), place(self._carry), uid, key, self._turns[t])
            action, carry, extras = jax.tree.map(np.asarray, chosen)
            step, objective = self._step(self._training, action)
            terminated, truncated = step.terminated.reshape(shape), step.truncated.reshape(shape)
            done = terminated | truncated
            reward = step.reward.reshape(shape)
            self._progress, total, length, counted = advance(np, self._progress, reward, done)
            ends.append((total if objective is None else objective.reshape(shape), length, counted))
            next_obs = step.final_obs.reshape(self._obs.shape)
            steps.append(Rollout(self._obs, action, reward, next_obs, terminated, truncated, extras))
            self._obs = step.obs.reshape(self._obs.shape)
            self._carry = self._restart(carry, done)
        rollout = jax.tree.map(lambda *x: np.stack(x, 1), *steps)
        return rollout, [np.stack(x) for x in zip(*ends, strict=True)]

    def _step(self, vector: Vector, action: np.ndarray) -> tuple[Any, np.ndarray | None]:
        flat = action.reshape(-1, *action.shape[2:])
        return vector.step(to_bounds(self._environment.spec.action, flat))

    def _restart(self, carry: PyTree, done: np.ndarray) -> PyTree:
        """The recurrent state of policies, fresh where an episode is `done`."""
        if not jax.tree.leaves(carry):
            return carry
        return jax.tree.map(np.asarray, tree.where(jnp.asarray(done), self._learner.agent.carry(done.shape), carry))

    def _act_members(
        self, acting: tuple, obs: jax.Array, carry: PyTree, uid: jax.Array, key: jax.Array, turn: jax.Array
    ) -> Any:
        learned, shared, hyper = acting
        population = Population(Member(learned, (), ()), shared, hyper)
        keys = member_keys(jax.random.fold_in(key, turn), uid)
        return self._learner.act(population, obs, carry, keys)

    def _update_members(
        self, kept: tuple, spent: tuple, hyper: PyTree, rollout: Rollout, uid: jax.Array, key: jax.Array
    ) -> Any:
        population = Population(Member(kept[0], *spent), kept[1], hyper)
        (members, shared, _), metrics = self._learner.update(population, rollout, member_keys(key, uid))
        metrics |= {"steps/broken": broken(rollout)}
        return (members.learned, shared), (members.memory, members.own), metrics

    def overwrite(self, copied: np.ndarray) -> None:
        """See `DeviceRollouts.overwrite`."""
        self._progress = self._progress._replace(counts=disown(self._progress, copied))
        self._carry = forget(self._carry, self._learner.agent.carry(self._obs.shape[:2]), copied)

    # ----------------------------------------------------------------------------------------- evaluation

    def evaluate(self, population: Population, keys: jax.Array, pause: Callable) -> tuple[np.ndarray, np.ndarray]:
        """See `DeviceRollouts.evaluate`."""
        return self._play(self._test, population, keys, self._step_limit, lambda *_: None, pause)

    def measure(
        self, population: Population, uid: np.ndarray, key: jax.Array, keys: jax.Array, cap: int, pause: Callable
    ) -> tuple[PyTree, np.ndarray, np.ndarray]:
        """See `DeviceRollouts.measure`."""
        drawn, place, members, devices = self._learner.drawn, self._layout.place, len(uid), self._layout.devices
        assert drawn is not None
        chunks, width = chunks_of(members, drawn.chunk * devices, 2 * devices)
        shared, results = population.shared, []
        for rows in np.arange(chunks * width, dtype=np.int32).reshape(chunks, width):
            mine = np.minimum(rows, members - 1)
            actors = self._actors(population, place(rows, False), place(uid[mine], False), place(key, False))
            where = place(rows - np.int32(members), False)

            def watch(step: Rollout, alive: np.ndarray, where: Any = where) -> None:
                nonlocal shared
                if drawn.watch is not None:
                    shared = self._watch(shared, where, place(step), place(alive))

            every = jnp.broadcast_to(keys, (width, *keys.shape))
            results.append(self._play(self._perform, actors, every, min(cap, self._step_limit), watch, pause))
        returns, lengths = (np.concatenate(x)[: members + 1] for x in zip(*results, strict=True))
        return shared, returns, lengths

    def _actors_of(self, population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array) -> Population:
        drawn = self._learner.drawn
        assert drawn is not None
        return actors_at(drawn, population, rows, uid, key)

    def _watch_step(self, shared: PyTree, rows: jax.Array, step: Rollout, alive: jax.Array) -> PyTree:
        drawn = self._learner.drawn
        assert drawn is not None and drawn.watch is not None
        return drawn.watch(shared, rows, step, alive)

    @np.errstate(over="ignore", invalid="ignore")
    def _play(
        self, act: Program, population: Population, keys: jax.Array, limit: int, watch: Callable, pause: Callable
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [N, E] of whole episodes with keys [N, E]; `watch` gets every step, and which are alive."""
        place, shape = self._layout.place, keys.shape
        if self._testing is None or self._testing[1] != keys.size:
            self._close_testing()
            self._testing = (self._environment.open(keys.size, self._objective), keys.size)
        vector = self._testing[0]
        seeds, act_keys = _seeds_and_act_keys(keys)
        obs = vector.reset(np.asarray(seeds).tolist()).reshape(*shape, *self._environment.spec.obs_shape)
        carry = jax.tree.map(np.asarray, self._learner.agent.carry(shape))
        progress, alive = begin(np, *shape), np.ones(shape, bool)
        returns, lengths = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        population, act_keys = place(population, OF_POPULATION), place(act_keys)
        for t in range(limit):
            turn = place(np.int32(t), members=False)
            action, carry = jax.tree.map(np.asarray, act(population, place(obs), place(carry), act_keys, turn))
            step, objective = self._step(vector, action)
            reward, terminated, truncated = (x.reshape(shape) for x in (step.reward, step.terminated, step.truncated))
            done = terminated | truncated
            watch(Rollout(obs, action, reward, step.final_obs.reshape(obs.shape), terminated, truncated, ()), alive)
            progress, total, length, _ = advance(np, progress, reward, done)
            value = total if objective is None else np.where(done, objective.reshape(shape), total)
            returns, lengths = np.where(alive, value, returns), np.where(alive, length, lengths)
            alive &= ~done
            obs = step.obs.reshape(obs.shape)
            pause(None, 0)
            if not alive.any():
                break
        return returns, lengths

    def _greedy_members(
        self, population: Population, obs: jax.Array, carry: PyTree, keys: jax.Array, turn: jax.Array
    ) -> Any:
        return self._learner.greedy(population, obs, carry)

    def _sample_members(
        self, population: Population, obs: jax.Array, carry: PyTree, keys: jax.Array, turn: jax.Array
    ) -> Any:
        return self._learner.act(population, obs, carry, at(keys, turn))[:2]

    # ---------------------------------------------------------------------------------------------- state

    def state(self) -> PyTree:
        """Nothing: simulators on the host cannot be saved, so a resumed run begins new episodes."""
        return ()

    def restore(self, state: PyTree) -> None:
        """See `state`; `begin` starts the episodes."""

    def close(self) -> None:
        """Close the simulators."""
        if self._training is not None:
            self._training.close()
        self._close_testing()

    def _close_testing(self) -> None:
        if self._testing is not None:
            self._testing[0].close()
            self._testing = None


@jax.jit
def _seeds_and_act_keys(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For episodes with keys [N, E]: a seed for each reset [N * E], and a key for the actions of each member [N]."""
    bits = jax.vmap(jax.random.bits)(stream(keys, "reset").reshape(-1))
    return (bits >> 1).astype(jnp.int32), stream(keys[:, 0], "act")
