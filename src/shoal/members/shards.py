"""Shards of compiled members, which train side by side as one program; and several such shards, one after another."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np

from shoal.core import tree
from shoal.core.env_parameters import joined
from shoal.core.keys import derive, jax_key
from shoal.core.population import Decision, DistributionUpdate, PopulationStats, Seed
from shoal.core.types import START, Hyper, Metrics, Population, PyTree, RunProgress
from shoal.members.acting import Policy, placed
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED, Program, covered
from shoal.members.protocol import Members, Outcome, Pause, Setup
from shoal.members.rollouts.device_episodes import DeviceEpisodes
from shoal.members.rollouts.host_episodes import HostEpisodes


class CompiledShard(Members):
    """N members of one kind that train as one program: where they lie, and their hyperparameters.

    device_rollouts, host_rollouts: the class of its rollouts, by where the environment is
    pause: called with a result and the parts of an interval that are done
    """

    device_rollouts: ClassVar[type[DeviceEpisodes]]
    host_rollouts: ClassVar[type[HostEpisodes]]
    rollouts: DeviceEpisodes | HostEpisodes
    population: Population
    pause: Pause
    _seed: int
    _made: float  # on the clock of `time.perf_counter`

    def __init__(self, kind: Any, uid: np.ndarray, setup: Setup):
        super().__init__(np.asarray(uid, np.uint32))
        learner, layout = kind.learner, kind.layout(len(uid))
        make: Any = self.device_rollouts if kind.on_device else self.host_rollouts
        self.rollouts = make(kind.environment, learner, layout, setup.evaluation)
        self._agent, self._layout, self._evaluation = kind.agent, layout, setup.evaluation
        self._first = lambda uid, hyper, key: learner.init(key, uid, hyper[0])._replace(env_parameters=hyper[1])
        self._init = layout.program(self._first, MEMBERS, MEMBERS, REPLICATED, out=OF_POPULATION)
        self._finite = layout.program(lambda members: tree.finite(members.learned), MEMBERS)
        self._programs: tuple[Program, ...] = (self._init, self._finite)
        self._known_hyper: tuple[Hyper, dict[str, np.ndarray]] = (None, {})
        self._is_on_host, self.evaluation_steps = False, 0

    def sibling(self, uid: np.ndarray, setup: Setup) -> Self:
        """Return a shard of the same size for other members, with the same programs."""
        other = copy.copy(self)
        other.uid, other.rollouts = np.asarray(uid, np.uint32), self.rollouts.sibling()
        other.pause, other._seed, other._made = setup.pause, setup.seed, time.perf_counter()
        return other

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

    def count_evaluation(self, steps: int) -> None:
        self.evaluation_steps += steps

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
        return place(self.uid), placed(self._agent, self._layout, hyper), place(key, REPLICATED)

    def _key(self, generation: int, purpose: str) -> Seed:
        return derive((self._seed,), generation, purpose)

    def _state(self, learned: PyTree, population: Population, **counters: Any) -> list[PyTree]:
        """The state for a checkpoint. learned: by members, which `population` lacks then; counters: those that not
        all shards have."""
        counters |= {"steps": self._steps, "evaluation_steps": np.int64(self.evaluation_steps)}
        rest = {
            "population": population._replace(hyper=(), env_parameters={}),
            "rollouts": self.rollouts.state(),
            "counters": counters,
        }
        return [{"uid": self.uid, "learned": learned, "hyper": self.hyper, "fitness": self._fitness, "rest": rest}]

    def _restore(self, state: PyTree, population: Population, generation: int) -> None:
        """Restore all of a `_state` but the rollouts; `population` holds what its members have learned."""
        counters = state["rest"]["counters"]
        own, env_parameters = placed(self._agent, self._layout, state["hyper"])
        population = self._layout.place(population, OF_POPULATION._replace(hyper=(), env_parameters={}))
        self.population, self._is_on_host = population._replace(hyper=own, env_parameters=env_parameters), False
        self._steps, self._fitness, self._generation = counters["steps"], state["fitness"], generation
        self.evaluation_steps = int(counters["evaluation_steps"])


class InTurn:
    """A `Shard` made of several: a population larger than the memory of the device, or of several programs.

    While one uses the accelerator, the others wait on the host.
    """

    def __init__(self, shards: Sequence[Any], setup: Setup, rates: Sequence[int] = ()):
        """shards: a `CompiledShard` each, or several in turn. rates: the iterations that each makes to one of the run's."""
        self._shards, self._rates, self.pause = shards, rates or [1] * len(shards), setup.pause
        self.uid = np.concatenate([shard.uid for shard in shards])
        ends = np.cumsum([len(shard.uid) for shard in shards]).tolist()
        self._rows = [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]
        self._home = np.repeat(np.arange(len(shards)), [len(shard.uid) for shard in shards])

    def begin(self, hyper: dict[str, np.ndarray], learned: Sequence[PyTree] | None = None) -> None:
        def begun(shard: Any, rows: slice) -> None:
            mine = {name: x[rows] for name, x in hyper.items()}
            shard.begin(mine, None if learned is None else learned[rows])

        self._each(begun)

    def train(self, generation: int, iterations: int, chunk: int, progress: RunProgress = START) -> Metrics:
        rates = iter(self._rates)

        def trained(shard: Any, rows: slice) -> Metrics:
            before, share = rows.start / len(self.uid), (rows.stop - rows.start) / len(self.uid)
            rate = next(rates)
            mine = iterations * rate

            def pause(result: PyTree, done: float) -> None:
                self.pause(result, done and iterations * (before + share * done / mine))

            shard.pause = pause
            own = progress._replace(per_iteration=np.float32(progress.per_iteration / rate))
            metrics = shard.train(generation, mine, chunk * rate, own)
            shard.pause = self.pause  # nothing of it leads back here, so that members which end are freed at once
            return metrics

        return _joined(self._each(trained))

    def evaluate(self, generation: int) -> Metrics:
        return _joined(self._each(lambda shard, rows: shard.evaluate(generation)))

    def stats(self) -> PopulationStats:
        parts = [shard.stats() for shard in self._shards]
        rest: dict[str, Any] = _joined([part.arrays for part in parts])
        return PopulationStats(**rest, hyper=_joined([part.hyper for part in parts]))

    def take_fitness(self, stats: PopulationStats) -> None:
        for shard, rows in zip(self._shards, self._rows, strict=True):
            shard.take_fitness(stats.take(np.arange(len(self.uid))[rows]))

    def individuals(self, stats: PopulationStats, metrics: Metrics) -> tuple[PopulationStats, Metrics]:
        return self._shards[0].individuals(stats, metrics)

    def snapshot(self, row: int) -> PyTree:
        home = self._home[row]
        return self._shards[home].snapshot(row - self._rows[home].start)

    def learned(self) -> Callable[[int], PyTree]:
        of_each, starts, home = [shard.learned() for shard in self._shards], self._rows, self._home
        return lambda row: of_each[home[row]](row - starts[home[row]].start)

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, PyTree]) -> dict[str, float]:
        if isinstance(decision, DistributionUpdate):
            return self._update_distribution(decision)
        parents = decision.parents
        rows, home = np.arange(len(parents)), self._home
        moved = {int(row): self.snapshot(int(parents[row])) for row in rows[home != home[parents]]}
        moved |= arrived  # all snapshots are taken before any member changes

        def applied(shard: Any, place: slice) -> None:
            mine = rows[place]
            local = np.where([row in moved for row in mine], mine, parents[mine]) - mine[0]
            shard.apply(decision.part(mine, local), {row - mine[0]: moved[row] for row in mine if row in moved})

        self._each(applied)
        return {}

    def _update_distribution(self, decision: DistributionUpdate) -> dict[str, float]:
        """The first shard makes the step of the mean, and the others take it over."""
        first, rows = self._shards[0], np.arange(len(self.uid))

        def applied(shard: Any, place: slice) -> dict[str, float]:
            own = decision.part(rows[place], rows[place])
            if shard is first:
                return shard.apply(own, {})
            shard.take_shared(first)
            shard.set_hyper(own.hyper)
            return {}

        return self._each(applied)[0]

    def test(self, policies: Sequence[Policy], key: Seed, episodes: int, levels: str) -> Outcome:
        first = self._shards[0]
        first.to_device()
        played = first.test(policies, key, episodes, levels)
        self._make_room(first)
        return played

    def state(self) -> list[PyTree]:
        return [state for shard in self._shards for state in shard.state()]

    def restore(self, states: Sequence[PyTree], generation: int) -> None:
        for shard, state in zip(self._shards, states, strict=True):
            shard.restore([state], generation)
            self._make_room(shard)

    def to_host(self) -> None:
        """Keep the state on the host until `to_device`."""
        for shard in self._shards:
            shard.to_host()

    def to_device(self) -> None:
        """Do nothing: each shard is moved when it is its turn."""

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    @property
    def evaluation_steps(self) -> int:
        return sum(shard.evaluation_steps for shard in self._shards)

    def count_evaluation(self, steps: int) -> None:
        self._shards[0].count_evaluation(steps)

    @property
    def compile_seconds(self) -> float:
        return self._shards[0].compile_seconds

    def _each(self, work: Callable[[Any, slice], Any]) -> list[Any]:
        """Results of `work` for every shard, which is on the device for it; the slice is of its rows."""
        results = []
        for shard, rows in zip(self._shards, self._rows, strict=True):
            shard.to_device()
            results.append(work(shard, rows))
            self._make_room(shard)
        return results

    def _make_room(self, shard: Any) -> None:
        if jax.default_backend() != "cpu":  # where the device's memory is the host's
            shard.to_host()


def _joined(parts: Sequence[Metrics]) -> Metrics:
    """Columns of several shards, one below the other; NaN for the members of a structure that has no such metric."""

    def column(part: Metrics, name: str) -> np.ndarray:
        return part[name] if name in part else np.full_like(next(iter(part.values())), np.nan, np.float32)

    names = dict.fromkeys(name for part in parts for name in part)
    return {name: np.concatenate([column(part, name) for part in parts]) for name in names}
