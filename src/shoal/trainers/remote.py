"""A member as its host sees it: the state is kept here, and travels only where the process does not have it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.trainers import wire
from shoal.trainers.process import TrainerProcess
from shoal.trainers.trainer import Report, TrainerState

_numbers = itertools.count()  # so that no two states of this host have one name


class Trained(NamedTuple):
    """The result of an interval.

    state:  that of the member after it
    finite: whether all that was learned is finite
    diverged: the error that ended the interval, where weights were no longer finite; else ""
    """

    state: TrainerState
    report: Report
    finite: bool
    diverged: str


class RemoteTrainer:
    """A member in a trainer's process. A call that fails has changed nothing here, so it can be made again.

    process: where it is trained; may be exchanged between two calls
    hyper:   its hyperparameters; those of the next call
    state:   what it has learned; None: as it is made
    evaluation_steps: environment steps of the last evaluation, 0 where the trainer does not tell them
    """

    def __init__(self, process: TrainerProcess, uid: int, hyper: Mapping[str, float], seed: int):
        """uid: its name in the process. hyper, seed: what it is made with."""
        self.process, self.hyper = process, dict(hyper)
        self._uid, self._seed = uid, seed
        self._state: TrainerState | None = None
        self._token: str | None = None
        self.evaluation_steps = 0

    @property
    def state(self) -> TrainerState | None:
        return self._state

    @state.setter
    def state(self, state: TrainerState | None) -> None:
        self._state, self._token = state, None if state is None else _token()

    def train(self, seed: int, steps: int) -> Trained:
        """One interval of at least `steps` environment steps. Raises as `TrainerProcess.call` does."""
        token = _token()
        answer, arrays = self._call("train", seed=seed, steps=steps, next=token)
        state = TrainerState(*wire.split(arrays))
        self._state, self._token = state, token
        report = Report(answer["steps"], answer["returns"], answer["metrics"])
        return Trained(state, report, answer["finite"], answer["diverged"])

    def evaluate(self, seeds: Sequence[int]) -> np.ndarray:
        """Returns of one episode per seed, float64 [len(seeds)]; NaN where weights are not finite."""
        answer, _ = self._call("evaluate", seeds=list(seeds))
        self.evaluation_steps = answer["steps"]
        return np.array(answer["returns"], np.float64)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The deterministic actions [B, ...] for observations [B, ...]."""
        return self._call("act", {"obs": obs})[1]["action"]

    def export(self, path: Path) -> list[str]:
        """Have the trainer write its model. Returns the files written."""
        return self._call("export", path=str(path.absolute()))[0]["files"]

    def load(self, path: Path) -> TrainerState:
        """Go on from a model that its library has saved: its state. Raises as `TrainerProcess.call` does."""
        token = _token()
        _, arrays = self._call("load", path=str(path.absolute()), next=token)
        self._state, self._token = TrainerState(*wire.split(arrays)), token
        return self._state

    def _call(self, name: str, arrays: Mapping[str, np.ndarray] | None = None, /, **content: Any) -> wire.Frame:
        call = {"uid": self._uid, "token": self._token, "hyper": self.hyper, "built_seed": self._seed, **content}
        answer, given = self.process.call(name, call, arrays or {})
        if "missing" in answer:
            assert self._state is not None, "a member without a state is made anew"
            with_state = {**(arrays or {}), **wire.join(*self._state)}
            answer, given = self.process.call(name, call | {"with_state": True}, with_state)
        return answer, given


def _token() -> str:
    return f"{next(_numbers)}"
