"""The common part of compiled kinds of member: an agent and an environment that Shoal knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.population import Seed
from shoal.core.types import AnyLearner, Population, PyTree
from shoal.environments.device import DeviceEnvironment
from shoal.environments.registry import Environment
from shoal.members.acting import Policy, PolicyFactory, acting_members, by_agent
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED, DeviceLayout
from shoal.members.protocol import EPISODES, Outcome, Setup, Shard, Tester
from shoal.members.rollouts.device_episodes import DeviceEpisodes
from shoal.members.rollouts.host_episodes import HostEpisodes
from shoal.members.shards import CompiledShard, InTurn
from shoal.members.trace_cache import Kept, same_structure
from shoal.rl.independent import independent


class Compiled(ABC):
    """A learner of members and their environment; see `Kind`.

    shard_type: of its shards. copies_replay: children copy the replay buffer too
    """

    shard_type: ClassVar[type[CompiledShard]]
    episodes, side_by_side, sampled = EPISODES, 1, False

    def __init__(self, environment: Environment, learner: AnyLearner, copies_replay: bool = False):
        self.environment, self.copies_replay = environment, copies_replay
        self.learner: Any = learner
        self.agent, self.together = learner.agent, learner.together
        self.tunable, self.env_parameters, self.spec = learner.agent, environment.env_parameters, environment.spec
        self.resumes_exactly = self.on_device = isinstance(environment, DeviceEnvironment)
        self._blank: Kept = []

    @property
    def compiled(self) -> Self:
        return self

    @cached_property
    def policy_factory(self) -> PolicyFactory:
        return by_agent(self.agent, self.spec)

    def policy_factory_for(self, hyper: Mapping[str, float]) -> PolicyFactory:
        return self.policy_factory

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
            self.learner.init,
            (REPLICATED, MEMBERS, MEMBERS),
            OF_POPULATION,
            jax.eval_shape(jax.random.key, 0),
            uid,
            hyper,
        )

    def memory(self, members: int) -> tuple[int, int]:
        population = self.population(members)
        replay = population.members.replay_buffer, getattr(population.shared, "replay_buffer", ())
        return tree.size_in_bytes(population), tree.size_in_bytes(replay)

    def environment_bytes(self) -> int:
        """Bytes of the state of one environment on the device; 0 on the host."""
        environment = self.environment
        if not isinstance(environment, DeviceEnvironment):
            return 0
        return tree.size_in_bytes(jax.eval_shape(environment.reset, jax.random.key(0)))

    def layout(self, members: int) -> DeviceLayout:
        """The layout of so many members on the devices: apart, some side by side, or together on one."""
        return DeviceLayout(members, self.together, self.side_by_side)

    def devices(self, uids: Sequence[np.ndarray]) -> int:
        return self.layout(len(uids[0])).devices

    def copies(self, members: int, devices: int, episodes: int) -> int:
        """The number of copies of an environment outside the devices that step at a time."""
        return members * self.agent.num_envs

    def width(self, members: int, end: bool) -> int:
        """The number of these members that one program trains. end: whether members may end before the run does."""
        return members

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        shards = [self.one_shard(uid, setup) for uid in uids]
        return shards[0] if len(shards) == 1 else InTurn(shards, setup)

    def one_shard(self, uid: np.ndarray, setup: Setup) -> Any:
        """The shard of the members uid [N], with the programs of a blank one, which never gets members."""
        structure, make = (setup.structure, len(uid)), self.shard_type
        return same_structure(structure, lambda: make(self, uid, setup), self._blank).sibling(uid, setup)

    def tester(self, setup: Setup) -> Tester:
        return CompiledTester(self, setup)

    def close(self) -> None:  # noqa: B027
        """Do nothing: there is nothing to give back."""


class CompiledTester:
    """One policy in the environment of a kind; see `Tester`."""

    def __init__(self, kind: Compiled, setup: Setup):
        self._agent, self._layout, self._setup = kind.agent, DeviceLayout(1), setup
        make: Any = DeviceEpisodes if kind.on_device else HostEpisodes
        self._rollouts = make(kind.environment, independent(kind.agent), self._layout, setup.evaluation)

    def test(self, policies: Sequence[Policy], key: Seed, episodes: int, levels: str) -> Outcome:
        acting, shape = partial(acting_members, self._agent, self._layout), (1, self._setup.evaluation.episodes)
        return self._rollouts.play(acting, policies, key, episodes, shape, levels, self._setup.pause)

    def close(self) -> None:
        self._rollouts.close()
