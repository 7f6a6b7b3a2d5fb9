"""A trainer that is to be checked, members of it, and the episodes that they play by `act`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shoal.core.space import Range
from shoal.methods.ranges import nearest
from shoal.trainers.process import Recipe, TrainerProcess, limited
from shoal.trainers.recipe import environment
from shoal.trainers.remote import RemoteTrainer, Trained
from shoal.trainers.trainer import TrainerState
from shoal.trainers.trainers import described

LONGEST = 5_000  # steps of an episode that is played
TIMEOUT = 300.0  # seconds without an answer after which a process counts as hung


@dataclass
class Trainee:
    """A trainer that is to be checked.

    python: the interpreter that has the trainer's packages
    steps:  environment steps of an interval; enough for some updates, and for each hyperparameter to matter
    values: another value for some of the hyperparameters; for the others it is half of the default, or twice as much, as
        near as integers or choices of their range allow
    only:   the hyperparameters to try; all of them by default
    seeded: each episode of an evaluation has its own seed; otherwise all have the first, as where environments can be
        seeded only together
    exact:  equal training gives equal bits; otherwise a relative difference of 1e-4 counts as equal
    """

    recipe: Recipe
    python: str = sys.executable
    steps: int = 256
    values: Mapping[str, float] = field(default_factory=dict)
    exact: bool = True
    seeded: bool = True
    only: Collection[str] | None = None

    def __post_init__(self) -> None:
        self._uids = itertools.count()

    @contextmanager
    def new_process(self) -> Iterator[TrainerProcess]:
        """A process of its own, ended afterwards."""
        process = self._start()
        try:
            yield process
        finally:
            process.end()

    @cached_property
    def process(self) -> TrainerProcess:
        """The process of all members that need none of their own."""
        return self._start()

    def close(self) -> None:
        """End the process."""
        self.process.end()

    @property
    def hyper(self) -> dict[str, float]:
        """Default of each hyperparameter."""
        return self.process.description["hyper"]

    @property
    def _space(self) -> dict[str, Range]:
        """Ranges that are tuned by default."""
        return described(self.process.description)[1]

    @property
    def probed(self) -> list[str]:
        """The hyperparameters to try."""
        return [name for name in self.hyper if self.only is None or name in self.only]

    @cached_property
    def others(self) -> dict[str, float]:
        """Another value of each hyperparameter to try, and the defaults of the rest."""
        chosen = {name: self._other(name, self.hyper[name]) for name in self.probed if name not in self.values}
        return {name: {**self.hyper, **self.values, **chosen}[name] for name in self.hyper}

    def member(
        self,
        state: TrainerState | None = None,
        hyper: Mapping[str, float] | None = None,
        seed: int = 1,
        process: TrainerProcess | None = None,
    ) -> RemoteTrainer:
        """Make a member with this seed and these hyperparameters, by default the defaults, and set its state."""
        made = RemoteTrainer(process or self.process, next(self._uids), hyper or self.hyper, seed)
        made.state = state
        return made

    def train(self, member: RemoteTrainer, seed: int) -> TrainerState:
        """The state of a member after an interval."""
        return member.train(seed, self.steps).state

    @cached_property
    def life(self) -> list[Trained]:
        """Results of three intervals of a member with default hyperparameters, for the seeds 1, 2 and 3."""
        member = self.member()
        return [member.train(seed, self.steps) for seed in (1, 2, 3)]

    @property
    def expected(self) -> list[TrainerState]:
        """States of this member after each interval."""
        return [interval.state for interval in self.life]

    def differences(self, a: TrainerState, b: TrainerState) -> list[str]:
        """The names of all arrays that differ."""
        ours, theirs = ({**x.learned, **{f"replay_buffer {k}": v for k, v in x.replay_buffer.items()}} for x in (a, b))
        same = {name for name in ours.keys() & theirs if self._equal(ours[name], theirs[name])}
        return sorted((ours.keys() | theirs) - same)

    def expect_equal(self, a: TrainerState, b: TrainerState, wrong: str) -> None:
        """Raise AssertionError unless two states are equal."""
        names = self.differences(a, b)
        assert not names, f"{wrong} ({len(names)} arrays of the state differ, such as {names[0]})"

    def _equal(self, a: np.ndarray, b: np.ndarray) -> bool:
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if self.exact or a.dtype.kind != "f":
            return a.tobytes() == b.tobytes()
        return np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)

    def _other(self, name: str, value: float) -> float:
        low, high = self.process.description["limits"].get(name, (-np.inf, np.inf))
        others, r = [value / 2, value * 2, high, 1.0], self._space.get(name)
        if r is not None and (r.integer or r.choices):  # between these there may be nothing
            others = [*(r.choices or nearest(r, np.array(others)).tolist())]
        allowed = [x for x in others if x != value and low <= x <= high and np.isfinite(x)]
        assert allowed, f"give another value of {name} in `values`"
        return allowed[0]

    def _start(self) -> TrainerProcess:
        return TrainerProcess(self.python, self.recipe, None, limited(1), TIMEOUT)


def made(recipe: Recipe) -> Any:
    """The environment of a recipe, as trainers make it with gymnasium; None where that is not possible here."""
    try:
        return environment(recipe.env, recipe.env_options)
    except Exception:  # of other people's code, which may need what only the trainer's interpreter has
        return None


def episode(env: Any, member: RemoteTrainer, dtype: str, seed: int) -> float | None:
    """The return of the episode of a seed; None where it does not end."""
    obs, total = env.reset(seed=seed)[0], 0.0
    for _ in range(LONGEST):
        (action,) = member.act(np.asarray(obs, dtype)[None])
        obs, reward, terminated, truncated, _ = env.step(np.asarray(action, env.action_space.dtype))
        total += float(reward)
        if terminated or truncated:
            return total
    return None
