"""What shards have in common whose members are one population on the devices of this process."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import numpy as np

from shoal.core import tree
from shoal.core.evolution import Cards, Seed
from shoal.core.keys import derive, jax_key
from shoal.core.knobs import joined, split
from shoal.core.types import Array, Hyper, Learner, Population, PyTree, SearchLearner
from shoal.environments.device import DeviceEnvironment
from shoal.environments.measurement import Measurement
from shoal.environments.registry import Environment
from shoal.members.devices import OF_POPULATION, Program, covered, layout_of
from shoal.members.rollouts.device_episodes import DeviceEpisodes
from shoal.members.rollouts.host import HostEpisodes
from shoal.members.shard import part_of


class JaxShard(ABC):
    """N members `uid` of one learner: where they lie, their hyperparameters, and what was last measured of them.

    on_device, on_host: how the members meet environments of either kind
    pause: called with a result and the parts of an interval that are done.
    """

    on_device: ClassVar[type[DeviceEpisodes]]
    on_host: ClassVar[type[HostEpisodes]]
    rollouts: DeviceEpisodes | HostEpisodes
    population: Population
    evaluation_steps: int

    def __init__(
        self,
        environment: Environment,
        learner: Learner | SearchLearner,
        uid: np.ndarray,
        seed: int,
        measurement: Measurement,
        pause: Callable = lambda result, done: None,
    ):
        n, layout = len(uid), layout_of(learner, len(uid))
        if isinstance(environment, DeviceEnvironment):
            self.rollouts = self.on_device(environment, learner, layout, measurement)
        else:
            self.rollouts = self.on_host(environment, learner, layout, measurement)
        self.uid, self.pause = np.asarray(uid, np.uint32), pause
        self.resumes_exactly = self.rollouts.resumes_exactly
        self._agent, self._seed, self._layout, self._measurement = learner.agent, seed, layout, measurement
        self._first = lambda uid, hyper, key: learner.init(key, uid, hyper[0])._replace(knobs=hyper[1])
        self._init = layout.program(self._first, True, True, False, out=OF_POPULATION)
        self._finite = layout.program(lambda members: tree.finite(members.learned), True)
        self._programs: tuple[Program, ...] = (self._init, self._finite)
        self._known_hyper: tuple[Hyper, dict[str, np.ndarray]] = (None, {})
        self._generation, self._is_on_host = 0, False
        self._steps, self._counted = np.zeros((2, n), np.int64)
        self._fitness, self._deviation = np.full((2, n), np.nan)
        self.evaluation_steps = 0

    def sibling(self, uid: np.ndarray) -> Self:
        """A shard of the same size for other members, with the same programs."""
        other = copy.copy(self)
        other.uid, other.rollouts = np.asarray(uid, np.uint32), self.rollouts.sibling()
        return other

    def cards(self) -> Cards:
        """The cards of the members."""
        return Cards(
            self.uid.astype(np.int64),
            np.full(len(self.uid), self._generation),
            self._steps,
            self._fitness.astype(np.float64),
            self._deviation.astype(np.float64),
            self._counted.astype(np.int64),
            dict(self.hyper),
        )

    @property
    def packed_size(self) -> int:
        """Bytes of a snapshot that is packed."""
        return tree.size_in_bytes(self.snapshot_shape())

    def pack(self, snapshot: PyTree) -> np.ndarray:
        """A snapshot as bytes, uint8 [packed_size]."""
        return tree.to_bytes(snapshot)

    def unpack(self, data: np.ndarray) -> PyTree:
        """The snapshot that `pack` made these bytes of."""
        return tree.from_bytes(data, self.snapshot_shape())

    @abstractmethod
    def snapshot_shape(self) -> PyTree:
        """The shapes and types of a snapshot."""

    def agree(self, other: JaxShard) -> None:
        """Take over what the members of another shard share."""
        self.population = self.population._replace(shared=other.population.shared)

    def set_hyper(self, hyper: dict[str, np.ndarray]) -> None:
        """Train on with these hyperparameters, float32 [N] each."""
        known = self.hyper
        if any(not np.array_equal(x, known[name]) for name, x in hyper.items()):
            own, knobs = self._placed(hyper)
            self.population = self.population._replace(hyper=own, knobs=knobs)

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
        """Close the environments."""
        self.rollouts.close()

    @property
    def name(self) -> str:
        """The name of its part of a checkpoint."""
        return part_of(self.uid)

    @property
    def compile_seconds(self) -> float:
        """Seconds of tracing and compiling so far."""
        return covered([p.compiling for p in (*self._programs, *self.rollouts.programs)])

    @property
    def devices(self) -> int:
        """How many devices the members are spread over."""
        return self._layout.devices

    @property
    def hyper(self) -> dict[str, np.ndarray]:
        """The hyperparameters of the members, float32 [N] each, on the host."""
        if self._known_hyper[0] is not self.population.hyper:
            own, knobs = jax.device_get((self.population.hyper, self.population.knobs))
            self._known_hyper = self.population.hyper, joined(own._asdict(), knobs)
        return self._known_hyper[1]

    def _placed(self, hyper: dict[str, np.ndarray]) -> tuple[Hyper, dict[str, Array]]:
        """Hyperparameters [N] on the devices: those of the agent, and the knobs of the environments."""
        own, knobs = split({name: np.asarray(x, np.float32) for name, x in hyper.items()})
        return self._layout.place((self._agent.hyper._replace(**own), knobs))

    def _beginning(self, hyper: dict[str, np.ndarray]) -> tuple[Any, ...]:
        """The arguments of `_init`."""
        place = self._layout.place
        return place(self.uid), self._placed(hyper), place(jax_key(self._key(0, "init")), members=False)

    def _key(self, generation: int, purpose: str) -> Seed:
        return derive((self._seed,), generation, purpose)

    def _state(self, **counters: Any) -> dict[str, PyTree]:
        """The state for a checkpoint, by name; `counters` are those that not all shards have."""
        counters |= {
            "steps": self._steps,
            "evaluation_steps": np.int64(self.evaluation_steps),
            "fitness": self._fitness,
        }
        return {self.name: {"population": self.population, "rollouts": self.rollouts.state(), "counters": counters}}

    def _restore(self, state: PyTree, generation: int) -> None:
        """Everything of a `_state` but the rollouts."""
        self.population, self._is_on_host = self._layout.place(state["population"], OF_POPULATION), False
        self._steps, self._fitness = state["counters"]["steps"], state["counters"]["fitness"]
        self.evaluation_steps = int(state["counters"]["evaluation_steps"])
        self._generation = generation
