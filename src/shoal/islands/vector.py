"""The vectorised island: all of its members are one compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal import tree
from shoal.collect.device import DeviceArena
from shoal.collect.episodes import Outcome, no_outcome, summarise
from shoal.collect.host import HostArena
from shoal.devices import Layout, covered
from shoal.environments.device import DeviceEnvironment
from shoal.environments.registry import Environment
from shoal.keys import derive, jax_key, member_keys
from shoal.types import Cards, Decision, Hyper, Learner, Population, PyTree, Seed


class VectorIsland:
    """N members of one learner in one environment.

    uid: who its members are, [N]. fitness: `evaluation` (whole episodes of frozen members) or `training` (the episodes
    of the interval). episodes: E, per member and evaluation. greedy: act without exploration noise in evaluations.
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
        self._measure, self._pause, self._copy_memory = fitness, pause, copy_memory
        self._layout = layout = Layout(len(uid))
        self.arena: DeviceArena | HostArena
        if isinstance(environment, DeviceEnvironment):
            self.arena = DeviceArena(environment, learner, layout, greedy, step_limit)
        else:
            self.arena = HostArena(environment, learner, layout, greedy, step_limit, objective)
        self._init = layout.program(self._first, True, True, False)
        self._inherit = layout.gather(tree.take, True, False)
        self._finite = layout.program(lambda members: tree.finite(members.learned), True)
        self._snapshot = jax.jit(tree.take)
        self.population: Population
        self._steps = np.zeros(len(uid), np.int64)
        self.evaluation_steps = 0
        self._outcome = no_outcome(np, len(uid))
        self._fitness, self._deviation = np.full((2, len(uid)), np.nan)
        self._counted = np.zeros(len(uid), np.int64)
        self._generation = 0

    # ------------------------------------------------------------------------------------------ the cycle

    def begin(self, hyper: dict[str, np.ndarray], train: bool = True) -> None:
        """New members with these hyperparameters, float32 [N] each; `train`: what training needs is compiled ahead."""
        place = self._layout.place
        arguments = place(self.uid), self._hyper(hyper), place(jax_key(self._key(0, "init")), members=False)
        if train and isinstance(self.arena, DeviceArena):
            self.arena.prepare(jax.eval_shape(self._first, *arguments), self.uid, self._episodes)
        self.population = self._init(*arguments)
        self.begin_episodes(0)

    def _first(self, uid: jax.Array, hyper: Hyper, key: jax.Array) -> Population:
        return self._learner.init(member_keys(key, uid), hyper)

    def begin_episodes(self, generation: int) -> None:
        """Start every training environment anew."""
        key = self._key(generation, "reset")
        if isinstance(self.arena, DeviceArena):
            self.arena.begin(self.uid, jax_key(key))
        else:
            self.arena.begin(self.uid, key)

    def train(self, generation: int, iterations: int, chunk: int) -> dict[str, np.ndarray]:
        """One interval: `iterations` rollouts and updates. Returns metrics [N], their mean over the interval."""
        agent, self._generation = self._learner.agent, generation
        key = jax_key(self._key(generation, "train"))
        self.population, metrics, self._outcome = self.arena.train(
            self.population, self.uid, key, iterations, chunk, self._pause
        )
        self._steps = self._steps + iterations * agent.rollout * agent.environments
        nothing = np.where(self._outcome.episodes > 0, np.float32(0), np.float32(np.nan))
        return metrics | {
            "episode/return": self._outcome.mean + nothing,
            "episode/length": self._outcome.length + nothing,
        }

    def evaluate(self, generation: int) -> None:
        """Measure the fitness of every member; the same episodes for all of them, fresh ones in each generation."""
        if self._measure == "training":
            self._fitness, self._deviation, self._counted = _of_training(self._outcome)
        else:
            key = jax_key(self._key(generation, "evaluate"))
            keys = jnp.broadcast_to(jax.random.split(key, self._episodes), (len(self.uid), self._episodes))
            returns, lengths = self.arena.evaluate(self.population, keys, self._pause)
            self.evaluation_steps += int(lengths.sum())
            self._fitness, self._deviation, self._counted = summarise(returns)
        sound = np.asarray(self._finite(self.population.members))
        self._fitness = np.where(sound & np.isfinite(self._fitness), self._fitness, np.nan)

    def cards(self) -> Cards:
        """What selection may see of the members."""
        n = len(self.uid)
        hyper = {name: np.asarray(x) for name, x in self.population.hyper._asdict().items()}
        generation, shape = np.full(n, self._generation), np.zeros(n, np.int64)
        return Cards(
            self.uid.astype(np.int64),
            generation,
            self._steps,
            self._fitness.astype(np.float64),
            self._deviation.astype(np.float64),
            self._counted.astype(np.int64),
            hyper,
            shape,
        )

    def snapshot(self, row: int) -> PyTree:
        """What another member would copy of this one, on the host."""
        return jax.tree.map(np.asarray, self._snapshot(self.population.members.learned, row))

    def adopt(self, decision: Decision) -> None:
        """Children take over what their parents learned, all from one snapshot; then come the new hyperparameters."""
        parents = np.asarray(decision.parents)
        copied = parents != np.arange(len(self.uid))
        if copied.any():
            members = self.population.members
            what = (members.learned, members.memory if self._copy_memory else ())
            learned, memory = self._inherit(what, self._layout.place(parents.astype(np.int32), False))
            members = members._replace(learned=learned, memory=memory if self._copy_memory else members.memory)
            self.population = self.population._replace(members=members)
            self.arena.overwrite(copied)
        self.population = self.population._replace(hyper=self._hyper(decision.hyper))

    def test(self, learned: PyTree, key: Seed, episodes: int) -> np.ndarray:
        """Returns [>= episodes] of one member on fresh episodes; every place of the island plays some of them."""
        n = len(self.uid)
        broadcast = jax.tree.map(lambda x: np.broadcast_to(x, (n, *np.shape(x))), learned)
        members = self.population.members._replace(learned=self._layout.place(broadcast))
        results: list[np.ndarray] = []
        for round_ in range(-(-episodes // (n * self._episodes))):
            keys = jax.random.split(jax_key(derive(key, round_)), (n, self._episodes))
            results.append(
                self.arena.evaluate(self.population._replace(members=members), keys, self._pause)[0].reshape(-1)
            )
        return np.concatenate(results)[:episodes].astype(np.float64)

    # ---------------------------------------------------------------------------------------------- state

    def state(self) -> PyTree:
        """Everything that a checkpoint must hold to go on exactly."""
        counters = {"steps": self._steps, "evaluation_steps": np.int64(self.evaluation_steps), "fitness": self._fitness}
        return {"population": self.population, "arena": self.arena.state(), "counters": counters}

    def restore(self, state: PyTree, generation: int) -> None:
        """Go on from a `state` that was saved at the end of `generation`."""
        self.population = self._layout.place(state["population"])
        self._steps, self._fitness = state["counters"]["steps"], state["counters"]["fitness"]
        self.evaluation_steps = int(state["counters"]["evaluation_steps"])
        self._generation = generation
        if self.arena.resumes_exactly:
            self.arena.restore(state["arena"])
        else:
            self.begin_episodes(generation + 1)

    def close(self) -> None:
        self.arena.close()

    @property
    def compile_seconds(self) -> float:
        """Seconds in which something was traced and compiled so far."""
        return covered([p.compiling for p in (self._init, self._inherit, self._finite, *self.arena.programs)])

    @property
    def devices(self) -> int:
        """How many devices the members are spread over."""
        return self._layout.devices

    def _hyper(self, hyper: dict[str, np.ndarray]) -> Any:
        values = {name: np.asarray(x, np.float32) for name, x in hyper.items()}
        return self._layout.place(self._learner.agent.hyper._replace(**values))

    def _key(self, generation: int, purpose: str) -> Seed:
        return derive((self._seed,), generation, purpose)


def _of_training(outcome: Outcome) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fitness, deviation and count of the interval's own episodes; NaN where none was finished."""
    n = np.asarray(outcome.episodes, np.float64)
    fitness = np.where(n > 0, np.asarray(outcome.mean, np.float64), np.nan)
    variance = np.asarray(outcome.squares, np.float64) / np.maximum(n - 1, 1)
    return fitness, np.where(n > 1, np.sqrt(variance), np.nan), n.astype(np.int64)
