"""Device environments: whole episodes without learning, in one compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.keys import at, stream
from shoal.core.types import AnyLearner, Population, PyTree, Rollout
from shoal.environments.device import DeviceEnvironment, lenient, step_once
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.games.environment import knowledge
from shoal.environments.games.exploitability import exploitability
from shoal.environments.levels import Span, at_levels
from shoal.environments.objective import Objective, in_info
from shoal.environments.spaces import to_bounds
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED, DeviceLayout, Program
from shoal.members.rollouts.episodes import PlayedEpisodes, WholeEpisodes


class DeviceEpisodes(WholeEpisodes):
    """Whole episodes of N members in device environments, without learning."""

    resumes_exactly = True

    def __init__(self, environment: Any, learner: AnyLearner, layout: DeviceLayout, evaluation: EvaluationConfig):
        super().__init__(environment, learner, layout, evaluation)
        self._exact = evaluation.source == "exploitability"
        measure = self._policies if self._exact else self._evaluate_members
        self._test = layout.program(measure, OF_POPULATION, MEMBERS, REPLICATED, REPLICATED)
        self.programs: tuple[Program, ...] = (self._test,)

    def evaluate(self, population: Population, keys: jax.Array, levels: str, pause: Callable) -> PlayedEpisodes:
        """See `WholeEpisodes.evaluate`."""
        values, lengths = self._test(*self._test_arguments(population, keys, levels))
        pause(values, 0)
        if self._exact:
            lost = exploitability(self._environment.game, np.asarray(values, np.float64))
            values = (np.repeat(-lost[:, None], keys.shape[1], 1),)
        return PlayedEpisodes(tuple(map(np.asarray, values)), np.asarray(lengths))

    def _test_arguments(self, population: Population, keys: jax.Array, levels: str) -> tuple[Any, ...]:
        return population, self._layout.place(keys), np.int32(self._evaluation.step_limit), self._span(levels)

    def _span(self, levels: str) -> Span | tuple[()]:
        """The levels of a purpose as an argument, so that one program serves all of them."""
        return Span(*map(np.uint32, self._evaluation.levels[levels])) if self._evaluation.levels else ()

    def _policies(self, population: Population, keys: jax.Array, *_: Any) -> tuple[jax.Array, jax.Array]:
        """The probabilities of all actions at all information sets of the game, [N, I, A], in episodes of no steps."""
        probabilities = self._learner.agent.probabilities
        assert probabilities is not None
        policies = jax.vmap(probabilities, (0, None))(population.members.learned, knowledge(self._environment.game))
        return policies, jnp.zeros(keys.shape, jnp.float32)

    def _evaluate_members(
        self, population: Population, keys: jax.Array, limit: jax.Array, span: PyTree
    ) -> PlayedEpisodes:
        played, _ = self._play(population, keys, limit, span, (), lambda shared, step, alive: shared)
        return played

    def _play(
        self, population: Population, keys: jax.Array, limit: jax.Array, span: PyTree, shared: PyTree, watch: Callable
    ) -> tuple[PlayedEpisodes, PyTree]:
        """Play whole episodes with keys [N, E]; return them and `shared`, updated with the steps.

        watch: (shared, one step of the members, alive [N, E]) -> shared
        """
        environment = at_levels(self._environment, span) if span else self._environment
        step_all = jax.vmap(jax.vmap(lambda *arguments: step_once(environment, *arguments)))
        obs, state = jax.vmap(jax.vmap(environment.reset))(stream(keys, "reset"))
        streams = {"step": stream(keys, "step")}
        if not self._evaluation.deterministic:
            streams["act"] = stream(keys[:, 0], "act")
        zeros = jnp.zeros(keys.shape, jnp.float32)

        def running(carried: tuple) -> jax.Array:
            *_, alive, t = carried
            return alive.any() & (t < limit)

        def step(carried: tuple) -> tuple:
            state, obs, carry, shared, values, length, alive, t = carried
            now = at(streams, t)
            if self._evaluation.deterministic:
                action, carry = self._learner.act_deterministic(population, obs, carry)
            else:
                action, carry, _ = self._learner.act(population, obs, carry, now["act"])
            inside = to_bounds(environment.spec.action, action)
            next_obs, state, reward, terminated, truncated = step_all(now["step"], state, inside)
            shared = watch(shared, Rollout(obs, action, reward, next_obs, terminated, truncated, ()), alive)
            values = self._values(environment, values, reward, state, alive)
            length = length + alive.astype(jnp.float32)
            return state, next_obs, carry, shared, values, length, alive & ~(terminated | truncated), t + 1

        carry = self._learner.agent.carry(keys.shape)
        values = (zeros,) * len(self._evaluation.measures)
        first = (state, obs, carry, shared, values, zeros, jnp.ones(keys.shape, bool), jnp.int32(0))
        _, _, _, shared, values, length, _, _ = jax.lax.while_loop(running, step, first)
        return PlayedEpisodes(values, length), shared

    def _values(
        self, environment: DeviceEnvironment, values: tuple, reward: jax.Array, state: PyTree, alive: jax.Array
    ) -> tuple[jax.Array, ...]:
        """Values of episodes by each measure, [N, E], after a step: their return so far, or what an objective is now."""
        info: Any = environment.info

        def after(objective: Objective, before: jax.Array) -> jax.Array:
            if objective is None:
                return before + jnp.where(alive, reward, jnp.float32(0))

            def objective_value(state: PyTree) -> jax.Array:
                with lenient():
                    return jnp.asarray(in_info(objective, info(state)), jnp.float32)

            now = jnp.where(jnp.isnan(reward), jnp.nan, jax.vmap(jax.vmap(objective_value))(state))
            return jnp.where(alive, now, before)

        return tuple(map(after, self._evaluation.measures, values))
