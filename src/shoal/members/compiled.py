"""The common part of compiled kinds of member: an agent and an environment that Shoal knows."""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.env_parameters import joined, split
from shoal.core.keys import derive, jax_key
from shoal.core.population import PopulationStats, Seed
from shoal.core.types import Agent, Array, Hyper, Learner, Member, Population, PyTree, SearchLearner
from shoal.environments.device import DeviceEnvironment
from shoal.environments.registry import Environment
from shoal.members.acting import Acting, by_agent
from shoal.members.devices import OF_POPULATION, Layout, Program, covered
from shoal.members.in_turn import InTurn
from shoal.members.protocol import EPISODES, Pause, Setup, Shard, Tester, part_name
from shoal.members.rollouts.device_episodes import DeviceEpisodes
from shoal.members.rollouts.host_episodes import HostEpisodes
from shoal.members.trace_cache import Kept, same_structure
from shoal.rl.independent import independent


class Compiled(ABC):
    """A learner of members and their environment; see `Kind`. copies_memory: children copy replay buffer too."""

    episodes, side_by_side, sampled = EPISODES, 1, False

    def __init__(self, environment: Environment, learner: Learner | SearchLearner, copies_memory: bool = False):
        self.environment, self.copies_memory = environment, copies_memory
        self.agent: Agent = learner.agent
        self.together = learner.together
        self.tunable, self.env_parameters, self.spec = learner.agent, environment.env_parameters, environment.spec
        self.resumes_exactly = self.on_device = isinstance(environment, DeviceEnvironment)
        self._init = learner.init
        self._blank: Kept = []

    @property
    def compiled(self) -> Self:
        return self

    @cached_property
    def acting(self) -> Acting:
        return by_agent(self.agent, self.spec.action)

    @cached_property
    def snapshot(self) -> PyTree:
        return jax.eval_shape(self.snapshot_of, self.population(2))  # where members come in pairs, one pair

    @abstractmethod
    def snapshot_of(self, population: Population) -> PyTree:
        """The snapshot of one individual of a population."""

    def population(self, members: int) -> Population:
        """The shapes and dtypes of a population."""
        hyper = jax.tree.map(lambda x: jax.ShapeDtypeStruct((members,), jnp.float32), self.agent.hyper)
        uid = jax.ShapeDtypeStruct((members,), jnp.uint32)
        return self.layout(members).shapes(
            self._init, (False, True, True), OF_POPULATION, jax.eval_shape(jax.random.key, 0), uid, hyper
        )

    def memory(self, members: int) -> tuple[int, int]:
        population = self.population(members)
        replay = population.members.memory, getattr(population.shared, "memory", ())
        return tree.size_in_bytes(population), tree.size_in_bytes(replay)

    def world(self) -> int:
        """See `CompiledKind.world`."""
        environment = self.environment
        if not isinstance(environment, DeviceEnvironment):
            return 0
        return tree.size_in_bytes(jax.eval_shape(environment.reset, jax.random.key(0)))

    def layout(self, members: int) -> Layout:
        """How so many members lie on the devices: apart, some side by side, or together on one."""
        return Layout(members, self.together, self.side_by_side)

    def devices(self, uids: Sequence[np.ndarray]) -> int:
        return self.layout(len(uids[0])).devices

    def copies(self, members: int, devices: int, episodes: int) -> int:
        """See `CompiledKind.copies`."""
        return members * self.agent.environments

    def width(self, members: int, end: bool) -> int:
        """See `CompiledKind.width`."""
        return members

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        first = self.first_shard(uids[0], setup)
        return InTurn(first, uids, setup) if len(uids) > 1 else first

    def first_shard(self, uid: np.ndarray, setup: Setup) -> Any:
        """The shard of the members uid [N]."""
        structure = setup.structure, len(uid)
        return same_structure(structure, lambda: self.blank_shard(uid, setup), self._blank).sibling(uid, setup)

    @abstractmethod
    def blank_shard(self, uid: np.ndarray, setup: Setup) -> Any:
        """A shard that never gets members, with the programs for N of them."""

    def tester(self, setup: Setup) -> Tester:
        return CompiledTester(self, setup)

    def close(self) -> None:  # noqa: B027
        """It holds nothing."""


class CompiledShard(ABC):
    """N members `uid` of one kind: where they lie, their hyperparameters, and what was last measured of them.

    on_device, on_host: how the members meet environments of either kind
    pause: called with a result and the parts of an interval that are done.
    """

    on_device: ClassVar[type[DeviceEpisodes]]
    on_host: ClassVar[type[HostEpisodes]]
    rollouts: DeviceEpisodes | HostEpisodes
    population: Population
    uid: np.ndarray
    pause: Pause
    evaluation_steps: int
    _seed: int
    _made: float  # on the clock of `time.perf_counter`

    def __init__(self, kind: Compiled, learner: Learner | SearchLearner, uid: np.ndarray, setup: Setup):
        n, layout = len(uid), kind.layout(len(uid))
        meet: Any = self.on_device if kind.on_device else self.on_host
        self.rollouts = meet(kind.environment, learner, layout, setup.evaluation)
        self.uid = np.asarray(uid, np.uint32)
        self._agent, self._layout, self._evaluation = kind.agent, layout, setup.evaluation
        self._first = lambda uid, hyper, key: learner.init(key, uid, hyper[0])._replace(env_parameters=hyper[1])
        self._init = layout.program(self._first, True, True, False, out=OF_POPULATION)
        self._finite = layout.program(lambda members: tree.finite(members.learned), True)
        self._programs: tuple[Program, ...] = (self._init, self._finite)
        self._known_hyper: tuple[Hyper, dict[str, np.ndarray]] = (None, {})
        self._generation, self._is_on_host = 0, False
        self._steps, self._counted = np.zeros((2, n), np.int64)
        self._fitness, self._std = np.full((2, n), np.nan)
        self.evaluation_steps = 0

    def sibling(self, uid: np.ndarray, setup: Setup) -> Self:
        """A shard of the same size for other members, with the same programs."""
        other = copy.copy(self)
        other.uid, other.rollouts = np.asarray(uid, np.uint32), self.rollouts.sibling()
        other.pause, other._seed, other._made = setup.pause, setup.seed, time.perf_counter()
        return other

    def stats(self) -> PopulationStats:
        return PopulationStats(
            self.uid.astype(np.int64),
            np.full(len(self.uid), self._generation),
            self._steps,
            self._fitness.astype(np.float64),
            self._std.astype(np.float64),
            self._counted.astype(np.int64),
            dict(self.hyper),
        )

    def take_shared(self, other: CompiledShard) -> None:
        """Take over what the members of another shard share."""
        self.population = self.population._replace(shared=other.population.shared)

    def set_hyper(self, hyper: dict[str, np.ndarray]) -> None:
        """Train on with these hyperparameters, float32 [N] each."""
        known = self.hyper
        if any(not np.array_equal(x, known[name]) for name, x in hyper.items()):
            own, env_parameters = placed(self._agent, self._layout, hyper)
            self.population = self.population._replace(hyper=own, env_parameters=env_parameters)

    def to_host(self) -> None:
        """Keep the state on the host until `to_device`."""
        if not self._is_on_host:
            self.population = jax.device_get(self.population)
            self.rollouts.restore(jax.device_get(self.rollouts.state()))
            self._is_on_host = True

    def to_device(self) -> None:
        """Move the state to the device."""
        if self._is_on_host:
            self.population = self._layout.place(self.population, OF_POPULATION)
            self.rollouts.restore(self._layout.place(self.rollouts.state()))
            self._is_on_host = False

    def close(self) -> None:
        self.rollouts.close()

    @property
    def name(self) -> str:
        """The name of its part of a checkpoint."""
        return part_name(self.uid)

    @property
    def compile_seconds(self) -> float:
        now, spans = time.perf_counter(), [p.compiling for p in (*self._programs, *self.rollouts.programs)]
        return covered([(start, min(end, now)) for start, end in spans if start >= self._made])  # else for another run

    @property
    def hyper(self) -> dict[str, np.ndarray]:
        """The hyperparameters of the members, float32 [N] each, on the host."""
        if self._known_hyper[0] is not self.population.hyper:
            own, env_parameters = jax.device_get((self.population.hyper, self.population.env_parameters))
            self._known_hyper = self.population.hyper, joined(own._asdict(), env_parameters)
        return self._known_hyper[1]

    def _beginning(self, hyper: dict[str, np.ndarray]) -> tuple[Any, ...]:
        """The arguments of `_init`."""
        place, key = self._layout.place, jax_key(self._key(0, "init"))
        return place(self.uid), placed(self._agent, self._layout, hyper), place(key, members=False)

    def _key(self, generation: int, purpose: str) -> Seed:
        return derive((self._seed,), generation, purpose)

    def _state(self, learned: PyTree, population: Population, **counters: Any) -> dict[str, PyTree]:
        """The state for a checkpoint, by name. learned: by members, which `population` lacks then; counters: those that not
        all shards have."""
        counters |= {"steps": self._steps, "evaluation_steps": np.int64(self.evaluation_steps)}
        rest = {
            "population": population._replace(hyper=(), env_parameters={}),
            "rollouts": self.rollouts.state(),
            "counters": counters,
        }
        every = {"uid": self.uid, "learned": learned, "hyper": self.hyper, "fitness": self._fitness, "rest": rest}
        return {self.name: every}

    def _restore(self, state: PyTree, population: Population, generation: int) -> None:
        """Everything of a `_state` but the rollouts; `population` is its own, with what members have learned."""
        counters = state["rest"]["counters"]
        own, env_parameters = placed(self._agent, self._layout, state["hyper"])
        population = self._layout.place(population, OF_POPULATION._replace(hyper=(), env_parameters={}))
        self.population, self._is_on_host = population._replace(hyper=own, env_parameters=env_parameters), False
        self._steps, self._fitness, self._generation = counters["steps"], state["fitness"], generation
        self.evaluation_steps = int(counters["evaluation_steps"])


class CompiledTester:
    """One policy in the environment of a kind; see `Tester`."""

    def __init__(self, kind: Compiled, setup: Setup):
        self._agent, self._layout, self._setup = kind.agent, Layout(1), setup
        meet: Any = DeviceEpisodes if kind.on_device else HostEpisodes
        self._rollouts = meet(kind.environment, independent(kind.agent), self._layout, setup.evaluation)

    def test(
        self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int, levels: str = "test"
    ) -> np.ndarray:
        population = acting_alike(self._agent, self._layout, learned, hyper, 1)
        size, pause = self._setup.evaluation.episodes, self._setup.pause
        return play(self._rollouts, population, key, episodes, (1, size), levels, pause)[0]

    def close(self) -> None:
        self._rollouts.close()


def placed(agent: Agent, layout: Layout, hyper: dict[str, np.ndarray]) -> tuple[Hyper, dict[str, Array]]:
    """Hyperparameters [N] on the devices: those of the agent, and the environment parameters of the environments."""
    own, env_parameters = split({name: np.asarray(x, np.float32) for name, x in hyper.items()})
    return layout.place((agent.hyper._replace(**own), env_parameters))


def acting_alike(agent: Agent, layout: Layout, learned: PyTree, hyper: dict[str, float], members: int) -> Population:
    """So many members, all of which have learned this, and can act."""
    every = jax.tree.map(lambda x: np.broadcast_to(x, (members, *np.shape(x))), learned)
    own, _ = placed(agent, layout, {name: np.full(members, value) for name, value in hyper.items()})
    return Population(Member(layout.place(every), (), ()), (), own)


def play(
    rollouts: DeviceEpisodes | HostEpisodes,
    population: Population,
    key: Seed,
    episodes: int,
    shape: tuple[int, int],
    levels: str,
    pause: Pause,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths [episodes] of members that are alike on new episodes, `shape` of them at a time."""
    results = []
    for round_ in range(-(-episodes // (shape[0] * shape[1]))):
        keys = jax.random.split(jax_key(derive(key, round_)), shape)
        results.append([x.reshape(-1) for x in rollouts.evaluate(population, keys, levels, pause)])
    returns, lengths = (np.concatenate(x)[:episodes] for x in zip(*results, strict=True))
    return returns.astype(np.float64), lengths
