"""The protocol of external trainers, whose members a population can have.

A trainer is a class of its own module. It need not import anything from here: plain tuples and dicts do as well. Shoal
makes `Class(env, env_options, **config)` in a process that has the trainer's packages, one object for each member there,
and calls it from one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class TrainerState(NamedTuple):
    """The complete state of a member, in the parts that a child copies or does not.

    Arrays of bool, integers or floats of at most 64 bits. Random generators are no part of it, as `begin` seeds them; nor
    are hyperparameters, as they are set after the state.
    """

    learned: Mapping[str, np.ndarray]  # copied: weights, optimiser, normalisers, counters of steps and updates
    replay_buffer: Mapping[str, np.ndarray]  # with its position; copied where the experiment says so


class Report(NamedTuple):
    """Result of `train`."""

    steps: int  # environment steps that were made, in all environments together
    returns: Sequence[float]  # of the training episodes that ended in this interval: undiscounted, with the raw rewards
    metrics: Mapping[str, float]  # to be recorded


class Trainer(Protocol):
    """One member. Objects of the class live side by side in a process, and share nothing that training or evaluation
    depends on.

    The constructor is cheap and takes `(env, env_options, **config)`: the environment's name, its keyword arguments, and
    the `config` of the experiment. It raises ValueError for what it cannot use; an attribute `field` of that error names
    the field of the experiment that is wrong, which is `config` by default.

    hyper:  every hyperparameter that can change on a live member, with its default. All values are floats, whole
        numbers too. Known before `make`, as are the following.
    space:  the ranges that are tuned by default, for some or all of `hyper`: {low, high, scale, integer}, {choices}
        or [low, high, scale]
    limits: optional; the lowest and highest possible value of a hyperparameter, where there are such limits
    spec:   optional; {"obs_shape": [...], "obs_dtype": "float32", "action": ...}, where the action is {"kind": "discrete",
        "n": 2, "start": 0} or {"kind": "continuous", "low": [...], "high": [...]}; None where spaces are of another kind
    fixed:  optional; what else `config` sets, with the defaults: what cannot change on a live member, for `shoal agents`
    evaluation_steps: optional; environment steps of the last `evaluate`, to be recorded
    """

    hyper: Mapping[str, float]
    space: Mapping[str, Mapping[str, Any]]

    def make(self, hyper: Mapping[str, float], seed: int) -> None:
        """Build the model. Raises ValueError as the constructor does. Called once, before all that follows."""

    def begin(self, seed: int) -> None:
        """Seed every random generator that training uses, and drop episodes that are under way: new ones begin.

        Called before each `train`. What `train` does then depends on the state, the hyperparameters and this seed alone.
        """

    def train(self, steps: int) -> Report:
        """Train for at least `steps` environment steps; more where updates need whole rollouts."""

    def evaluate(self, seeds: Sequence[int]) -> Sequence[float]:
        """Returns of one episode per seed: rewards as the environment gives them, deterministic actions, frozen weights and
        normalisers. An episode depends on its own seed alone: of gymnasium's environments it is the one that
        `reset(seed=seed)` begins. It changes nothing that `get_state` shows."""

    def get_state(self) -> TrainerState:
        """The state as it is now; later training does not change these arrays."""

    def set_state(self, state: TrainerState) -> None:
        """Go on from a state, of this member or of another one that was made with the same config: what is trained,
        evaluated or asked to act next is that state.

        An empty `replay_buffer` is not set: a champion is tested, and a run that starts from another begins, with what was
        learned alone.
        """

    def set_hyperparameters(self, hyper: Mapping[str, float]) -> None:
        """Train with these values from now on, all of `hyper`, exactly as if the model had been made with them.

        Called before `begin` and after every `set_state`, as the state of an optimiser brings its own learning rate along.
        """

    def close(self) -> None:
        """Give back what is held: environments, threads, processes."""

    # def export(self, path): optional; write the model as its own library saves it, and return the files written
    # def load(self, path): optional; the opposite of `export`: go on from a model that its own library has saved. Raises
    #     ValueError for one that does not fit
    # def act(self, obs): optional; observations [B, ...] as the environment gives them, of the shape in `spec`, and not
    #     normalised -> the deterministic actions [B, ...], those that `evaluate` plays
