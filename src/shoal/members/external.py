"""Members that external trainers train, in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from shoal.core.arrays import Arrays, Named
from shoal.core.errors import BadField
from shoal.core.keys import derive, words
from shoal.core.population import Decision, DistributionUpdate, Seed, of_row
from shoal.core.types import START, Metrics, PyTree, RunProgress
from shoal.members.acting import Policy, PolicyFactory, by_trainer
from shoal.members.protocol import EPISODES, Members, Outcome, Setup, Shard, Tester
from shoal.members.rollouts.episodes import noise, summarise
from shoal.trainers.jobs import side_by_side
from shoal.trainers.process import TrainerProcess
from shoal.trainers.remote import RemoteTrainer, Trained
from shoal.trainers.trainer import TrainerState
from shoal.trainers.trainers import Trainers

TESTER = -1  # in place of a uid: the trainer that tests champions


class External:
    """Members that external trainers train, with environments of their own, in processes of their own; see `Kind`.

    copies_replay: children copy the replay buffer too
    """

    resumes_exactly, episodes, compiled = True, EPISODES, None
    sampled, together, side_by_side = False, False, 1

    def __init__(self, name: str, make: Callable[[], Trainers], copies_replay: bool = False):
        """name: that the user knows the trainers by. make: starts them, and raises BadInput where there are none."""
        self.trainers = make()
        self.tunable, self.spec = self.trainers, self.trainers.spec
        self.env_parameters: Mapping[str, float] = {}
        self.policy_factory, self.copies_replay = by_trainer(name, make), copies_replay
        self.snapshot = Named(), Named()

    def policy_factory_for(self, hyper: Mapping[str, float]) -> PolicyFactory:
        return self.policy_factory

    def interval(self, steps: int, generations: int, population: int) -> tuple[int, int]:
        """One part: a single call of each trainer; see `Kind.interval`."""
        return 1, steps

    def devices(self, uids: Sequence[np.ndarray]) -> int:
        return self.trainers.count(sum(map(len, uids)))

    def memory(self, members: int) -> tuple[int, int]:
        """Return 0 and 0: the memory of members is in the processes of their trainers."""
        return 0, 0

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        return ExternalShard(self, uids, setup)

    def tester(self, setup: Setup) -> Tester:
        alone = ExternalShard(self, [np.zeros(1, np.int64)], setup)
        alone.begin({name: np.array([x]) for name, x in self.trainers.hyper._asdict().items()})
        return alone

    def close(self) -> None:
        """End the process that trainers were asked in."""
        self.trainers.close()


class ExternalShard(Members):
    """N members, in one or several groups that checkpoints keep apart. Their states are kept here after every interval, so
    that a process which dies costs its interval, and nothing depends on how many processes there are.

    uids: of each group, [n] each. Of an evaluation, trainers know source and episodes.
    """

    compile_seconds = 0.0

    def __init__(self, kind: External, uids: Sequence[np.ndarray], setup: Setup):
        super().__init__(np.concatenate(uids))
        self._trainers, self._copies_replay = kind.trainers, kind.copies_replay
        self._groups, self._setup, self._evaluation = uids, setup, setup.evaluation
        self._said: set[int] = set()  # rows of which it is told why they diverged
        self._processes: list[TrainerProcess] = []
        self._members: list[RemoteTrainer] = []
        self._evaluated, self._finite = np.zeros(len(self.uid), np.int64), np.ones(len(self.uid), bool)
        self._returns: list[list[float]] = [[] for _ in self.uid]  # of the last interval's episodes

    @property
    def evaluation_steps(self) -> int:
        """Environment steps of all evaluations of the members, as far as trainers tell them."""
        return int(self._evaluated.sum())

    def count_evaluation(self, steps: int) -> None:
        self._evaluated[0] += steps

    @property
    def hyper(self) -> Arrays:
        values = [member.hyper for member in self._members]
        return {name: np.array([x[name] for x in values], np.float32) for name in self._trainers.hyper._fields}

    def begin(self, hyper: dict[str, np.ndarray], learned: Sequence[PyTree] | None = None) -> None:
        """See `Shard.begin`; members are made when they are first used."""
        self._processes = self._trainers.open(len(self.uid), self._setup.logs())
        self._all = partial(side_by_side, self._processes, self._setup.pause, self._setup.note)
        names = self._trainers.hyper._fields
        for row, uid in enumerate(self.uid.tolist()):
            values = {name: float(hyper[name][row]) for name in names}
            seed = words(derive((self._setup.seed,), 0, "init", uid), 1)[0]
            process = self._processes[row % len(self._processes)]
            self._members.append(RemoteTrainer(process, uid, values, seed))
        if learned is not None:
            for member, arrays in zip(self._members, learned, strict=True):
                member.state = TrainerState(arrays, {})

    def train(self, generation: int, iterations: int, chunk: int, progress: RunProgress = START) -> Metrics:
        """One interval. Returns metrics [N]: those that trainers report, NaN where one does not; schedules are theirs."""
        self._generation = generation

        def interval(row: int) -> Trained:
            key = derive((self._setup.seed,), generation, "train", int(self.uid[row]))
            return self._members[row].train(words(key, 1)[0], self._setup.steps)

        table = []
        for row, done in enumerate(self._all(interval, len(self.uid))):
            if done.diverged and row not in self._said:
                self._said.add(row)
                self._setup.note(f"member {self.uid[row]} has diverged: {done.diverged}")
            self._steps[row] += done.report.steps
            self._finite[row], self._returns[row] = done.finite, list(done.report.returns)
            mean = float(np.mean(self._returns[row])) if self._returns[row] else np.nan
            table.append(dict(done.report.metrics) | {"episode/return": mean})
        names = sorted(set().union(*table))
        return {name: np.array([row.get(name, np.nan) for row in table], np.float32) for name in names}

    def evaluate(self, generation: int) -> Metrics:
        """Measure the fitness of every member; the same episodes for all of them, new ones in each generation.

        Returns metrics [N]: the noise of fitness.
        """
        metrics: Metrics = {}
        if self._evaluation.source == "training":
            returns = [np.array(x, np.float64) for x in self._returns]
        else:
            seeds = words(derive((self._setup.seed,), generation, "evaluate"), self._evaluation.episodes)
            returns = self._all(lambda row: self._members[row].evaluate(seeds), len(self.uid))
            self._evaluated += [member.evaluation_steps for member in self._members]
            metrics = noise(np.stack(returns))
        for row, x in enumerate(returns):
            mean, std, count = summarise(x[None]) if len(x) else ([np.nan], [np.nan], [0])
            sound = self._finite[row] and np.isfinite(mean[0])
            self._fitness[row], self._std[row] = mean[0] if sound else np.nan, std[0]
            self._counted[row] = count[0]
        return metrics

    def snapshot(self, row: int) -> PyTree:
        """See `Shard.snapshot`: arrays by name, learned ones and those of a replay buffer that is copied too."""
        state = self._members[row].state
        assert state is not None, "members copy one another after they have trained"
        return dict(state.learned), dict(state.replay_buffer) if self._copies_replay else {}

    def learned(self) -> Callable[[int], PyTree]:
        states = [member.state for member in self._members]

        def of(row: int) -> PyTree:
            state = states[row]
            assert state is not None, "members have trained"
            return dict(state.learned)

        return of

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, PyTree]) -> dict[str, float]:
        """See `Shard.apply`. What a trainer's state means is unknown here."""
        if isinstance(decision, DistributionUpdate):
            raise BadField("method", "its evolver weighs members for a mean, which those of trainers do not have")
        copied = {row: self.snapshot(int(p)) for row, p in enumerate(decision.parents) if p != row} | dict(arrived)
        for row, (learned, replay_buffer) in copied.items():
            member = self._members[row]
            assert member.state is not None
            member.state = TrainerState(learned, replay_buffer if self._copies_replay else member.state.replay_buffer)
        for row, member in enumerate(self._members):
            member.hyper = of_row(decision.hyper, row)
        return {}

    def test(self, policies: Sequence[Policy], key: Seed, episodes: int, levels: str) -> Outcome:
        """See `Tester.test`. The processes share the episodes of each policy."""
        played, steps = zip(*(self._played(policy, words(key, episodes)) for policy in policies), strict=True)
        return Outcome(np.stack(played), sum(steps))

    def _played(self, policy: Policy, seeds: list[int]) -> tuple[np.ndarray, int]:
        """Returns [episodes] of one policy, and its steps."""
        testers = [RemoteTrainer(process, TESTER, policy.hyper, 0) for process in self._processes[: len(seeds)]]
        for tester in testers:
            tester.state = TrainerState(policy.learned, {})
        parts = np.array_split(np.array(seeds), len(testers))
        returns = self._all(lambda i: testers[i].evaluate(parts[i].tolist()), len(testers))
        return np.concatenate(returns), sum(tester.evaluation_steps for tester in testers)

    def state(self) -> list[PyTree]:
        """The state for a checkpoint, of each group; of members that have not trained, what is to be read there."""
        groups: list[PyTree] = []
        for rows in self._rows:
            blank = (Named(), Named())  # learned and replay buffer, whose arrays are those that a checkpoint has
            states = {f"{self.uid[row]:08d}": self._members[row].state or blank for row in rows}
            group = {
                "each": {uid: learned for uid, (learned, _) in states.items()},
                "hyper": {name: x[rows] for name, x in self.hyper.items()},
                "uid": self.uid[rows],
                "fitness": self._fitness[rows],
                "rest": {
                    "replay_buffer": {uid: replay_buffer for uid, (_, replay_buffer) in states.items()},
                    "steps": self._steps[rows],
                    "evaluation_steps": self._evaluated[rows],
                    "finite": self._finite[rows],
                },
            }
            groups.append(group)
        return groups

    def restore(self, states: Sequence[PyTree], generation: int) -> None:
        self._generation = generation
        for saved, rows in zip(states, self._rows, strict=True):
            rest = saved["rest"]
            self._fitness[rows], self._steps[rows] = saved["fitness"], rest["steps"]
            self._evaluated[rows], self._finite[rows] = rest["evaluation_steps"], rest["finite"]
            for i, row in enumerate(rows):
                member, uid = self._members[row], f"{self.uid[row]:08d}"
                member.state = TrainerState(saved["each"][uid], rest["replay_buffer"][uid])
                member.hyper = of_row(saved["hyper"], i)

    @property
    def _rows(self) -> list[np.ndarray]:
        """Rows of the members in each group."""
        ends = np.cumsum([len(uids) for uids in self._groups])
        return np.split(np.arange(len(self.uid)), ends[:-1])

    def close(self) -> None:
        """End the processes."""
        self._trainers.close()
        for process in self._processes:
            process.end()
