"""A shard of members that train as one compiled program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.keys import derive, jax_key
from shoal.core.types import Cards, Hyper, Learner, Population, PyTree, Seed
from shoal.environments.device import DeviceEnvironment
from shoal.environments.registry import Environment
from shoal.population.devices import OF_POPULATION, Layout, covered
from shoal.population.rollouts.device import DeviceRollouts
from shoal.population.rollouts.episodes import Outcome, no_outcome, summarise
from shoal.population.rollouts.host import HostRollouts


class MemberShard:
    """N members of one learner in one environment.

    uid: of its members, [N]. fitness: `evaluation` (whole episodes without learning) or `training` (the episodes of the
    interval). episodes: E, per member and evaluation. greedy: act without exploration noise in evaluations.
    """

    def __init__(
        self,
        environment: Environment,
        learner: Learner,
        uid: np.ndarray,
        seed: int,
        *,
        fitness: str = "evaluation",
        episodes: int = 8,
        greedy: bool = True,
        step_limit: int = 100_000,
        objective: str | None = None,
        copy_memory: bool = False,
        pause: Callable = lambda result, done: None,
    ):
        self.uid = np.asarray(uid, np.uint32)
        self._learner, self._seed, self._episodes = learner, seed, episodes
        self._measure, self.pause, self._copy_memory = fitness, pause, copy_memory
        pairs = learner.drawn is not None and learner.drawn.in_pairs
        self._layout = layout = Layout(len(uid), learner.together, 2 if pairs else 1)
        self.rollouts: DeviceRollouts | HostRollouts
        if isinstance(environment, DeviceEnvironment):
            self.rollouts = DeviceRollouts(environment, learner, layout, greedy, step_limit)
        else:
            self.rollouts = HostRollouts(environment, learner, layout, greedy, step_limit, objective)
        self.resumes_exactly = self.rollouts.resumes_exactly
        self._init = layout.program(self._first, True, True, False, out=OF_POPULATION)
        self._inherit = layout.gather(tree.take, True, False)
        self._finite = layout.program(lambda members: tree.finite(members.learned), True)
        self._implant = layout.gather(_implant, True, False, False, donate=(0,))
        self._snapshot = jax.jit(tree.take)
        self.population: Population
        self._known_hyper: tuple[Hyper, dict[str, np.ndarray]] = (None, {})
        self._steps = np.zeros(len(uid), np.int64)
        self.evaluation_steps = 0
        self._outcome = no_outcome(np, len(uid))
        self._fitness, self._deviation = np.full((2, len(uid)), np.nan)
        self._counted = np.zeros(len(uid), np.int64)
        self._generation = 0
        self._resting = False

    def sibling(self, uid: np.ndarray) -> MemberShard:
        """A shard of the same size for other members, with the same programs."""
        other = copy.copy(self)
        other.uid, other.rollouts = np.asarray(uid, np.uint32), self.rollouts.sibling()
        return other

    # ------------------------------------------------------------------------------------------ the cycle

    def begin(self, hyper: dict[str, np.ndarray], train: bool = True) -> None:
        """New members with these hyperparameters, float32 [N] each; `train`: what training needs is compiled ahead."""
        place = self._layout.place
        arguments = place(self.uid), self._hyper(hyper), place(jax_key(self._key(0, "init")), members=False)
        if train and isinstance(self.rollouts, DeviceRollouts):
            self.rollouts.prepare(jax.eval_shape(self._first, *arguments), self.uid, self._episodes)
        self.population = self._init(*arguments)
        self.begin_episodes(0)

    def _first(self, uid: jax.Array, hyper: Hyper, key: jax.Array) -> Population:
        return self._learner.init(key, uid, hyper)

    def begin_episodes(self, generation: int) -> None:
        """Reset every training environment."""
        key = self._key(generation, "reset")
        if isinstance(self.rollouts, DeviceRollouts):
            self.rollouts.begin(self.uid, jax_key(key))
        else:
            self.rollouts.begin(self.uid, key)

    def train(self, generation: int, iterations: int, chunk: int) -> dict[str, np.ndarray]:
        """One interval: `iterations` rollouts and updates. Returns metrics [N], their mean over the interval."""
        agent, self._generation = self._learner.agent, generation
        key = jax_key(self._key(generation, "train"))
        self.population, metrics, self._outcome = self.rollouts.train(
            self.population, self.uid, key, iterations, chunk, self.pause
        )
        self._steps = self._steps + iterations * agent.rollout * agent.environments
        nothing = np.where(self._outcome.episodes > 0, np.float32(0), np.float32(np.nan))
        return metrics | {
            "episode/return": self._outcome.mean + nothing,
            "episode/length": self._outcome.length + nothing,
        }

    def evaluate(self, generation: int) -> None:
        """Measure the fitness of every member; the same episodes for all of them, new ones in each generation."""
        if self._measure == "training":
            self._fitness, self._deviation, self._counted = _of_training(self._outcome)
        else:
            key = jax_key(self._key(generation, "evaluate"))
            keys = jnp.broadcast_to(jax.random.split(key, self._episodes), (len(self.uid), self._episodes))
            returns, lengths = self.rollouts.evaluate(self.population, keys, self.pause)
            self.evaluation_steps += int(lengths.sum())
            self._fitness, self._deviation, self._counted = summarise(returns)
        sound = np.asarray(self._finite(self.population.members))
        self._fitness = np.where(sound & np.isfinite(self._fitness), self._fitness, np.nan)

    def cards(self) -> Cards:
        """The cards of the members."""
        n = len(self.uid)
        generation, shape = np.full(n, self._generation), np.zeros(n, np.int64)
        return Cards(
            self.uid.astype(np.int64),
            generation,
            self._steps,
            self._fitness.astype(np.float64),
            self._deviation.astype(np.float64),
            self._counted.astype(np.int64),
            dict(self.hyper),
            shape,
        )

    def card_of_mean(self) -> Cards | None:
        """The card of the mean; None, because these members are not drawn around one."""
        return None

    def snapshot(self, row: int) -> PyTree:
        """What a child copies of this member, on the host: `learned`, and the memory where that is copied."""
        return jax.tree.map(np.asarray, self._snapshot(self._inheritance(), row))

    def snapshot_shape(self) -> PyTree:
        """The shapes and types of a snapshot."""
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self._inheritance())

    def adopt(self, parents: np.ndarray, hyper: dict[str, np.ndarray], foreign: dict[int, PyTree]) -> None:
        """Children copy their parents, all from one snapshot; then the new hyperparameters are set.

        parents: int64 [N], rows of this shard. foreign: row of a child -> the `snapshot` of a parent in another shard.
        """
        copied = parents != np.arange(len(self.uid))
        if copied.any():
            inherited = self._inherit(self._inheritance(), self._layout.place(parents.astype(np.int32), False))
            self._inheritance(inherited)
        for row, state in foreign.items():
            place = self._layout.place
            self._inheritance(self._implant(self._inheritance(), place(np.int32(row), False), place(state, False)))
            copied[row] = True
        if copied.any():
            self.rollouts.overwrite(copied)
        known = self.hyper
        if any(not np.array_equal(x, known[name]) for name, x in hyper.items()):
            self.population = self.population._replace(hyper=self._hyper(hyper))

    def _inheritance(self, new: PyTree | None = None) -> PyTree:
        """What children copy, of all members; `new` replaces it."""
        members = self.population.members
        if new is not None:
            members = members._replace(learned=new[0], memory=new[1] if self._copy_memory else members.memory)
            self.population = self.population._replace(members=members)
        return members.learned, members.memory if self._copy_memory else ()

    def test(self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int) -> np.ndarray:
        """Returns [episodes] of one member on new episodes, which all rows of the shard share."""
        n = len(self.uid)
        broadcast = jax.tree.map(lambda x: np.broadcast_to(x, (n, *np.shape(x))), learned)
        members = self.population.members._replace(learned=self._layout.place(broadcast))
        same = self._hyper({name: np.full(n, value) for name, value in hyper.items()})
        population = self.population._replace(members=members, hyper=same)
        results: list[np.ndarray] = []
        for round_ in range(-(-episodes // (n * self._episodes))):
            keys = jax.random.split(jax_key(derive(key, round_)), (n, self._episodes))
            results.append(self.rollouts.evaluate(population, keys, self.pause)[0].reshape(-1))
        return np.concatenate(results)[:episodes].astype(np.float64)

    # ---------------------------------------------------------------------------------------------- state

    @property
    def name(self) -> str:
        """The name of its part of a checkpoint."""
        return f"shard-{self.uid[0] // len(self.uid):04d}"

    def state(self) -> dict[str, PyTree]:
        """The state for a checkpoint, from which the run continues exactly; by name of the shard."""
        counters = {"steps": self._steps, "evaluation_steps": np.int64(self.evaluation_steps), "fitness": self._fitness}
        return {self.name: {"population": self.population, "rollouts": self.rollouts.state(), "counters": counters}}

    def restore(self, states: dict[str, PyTree], generation: int) -> None:
        """Continue from a `state` that was saved at the end of `generation`."""
        state = states[self.name]
        self.population = self._layout.place(state["population"], OF_POPULATION)
        self._steps, self._fitness = state["counters"]["steps"], state["counters"]["fitness"]
        self.evaluation_steps = int(state["counters"]["evaluation_steps"])
        self._generation = generation
        if self.rollouts.resumes_exactly:
            self.rollouts.restore(state["rollouts"])
        else:
            self.begin_episodes(generation + 1)

    def rest(self) -> None:
        """Move the state from the device to the host."""
        if not self._resting:
            self.population = jax.device_get(self.population)
            self.rollouts.restore(jax.device_get(self.rollouts.state()))
            self._resting = True

    def wake(self) -> None:
        """Move the state back to the device."""
        if self._resting:
            self.population = self._layout.place(self.population, OF_POPULATION)
            self.rollouts.restore(self._layout.place(self.rollouts.state()))
            self._resting = False

    def close(self) -> None:
        self.rollouts.close()

    @property
    def compile_seconds(self) -> float:
        """Seconds of tracing and compiling so far."""
        return covered([p.compiling for p in (self._init, self._inherit, self._finite, *self.rollouts.programs)])

    @property
    def devices(self) -> int:
        """How many devices the members are spread over."""
        return self._layout.devices

    @property
    def hyper(self) -> dict[str, np.ndarray]:
        """The hyperparameters of the members, float32 [N] each, on the host."""
        if self._known_hyper[0] is not self.population.hyper:
            values = jax.device_get(self.population.hyper)
            self._known_hyper = self.population.hyper, values._asdict()
        return self._known_hyper[1]

    def _hyper(self, hyper: dict[str, np.ndarray]) -> Any:
        values = {name: np.asarray(x, np.float32) for name, x in hyper.items()}
        return self._layout.place(self._learner.agent.hyper._replace(**values))

    def _key(self, generation: int, purpose: str) -> Seed:
        return derive((self._seed,), generation, purpose)


def _of_training(outcome: Outcome) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fitness, deviation and number of the interval's training episodes [N]; NaN where none ended."""
    n = np.asarray(outcome.episodes, np.float64)
    fitness = np.where(n > 0, np.asarray(outcome.mean, np.float64), np.nan)
    variance = np.asarray(outcome.squares, np.float64) / np.maximum(n - 1, 1)
    return fitness, np.where(n > 1, np.sqrt(variance), np.nan), n.astype(np.int64)


def _implant(inheritance: PyTree, row: jax.Array, state: PyTree) -> PyTree:
    """What children copy, of all members, with another state at `row`."""
    return jax.tree.map(lambda x, new: x.at[row].set(new), inheritance, state)
