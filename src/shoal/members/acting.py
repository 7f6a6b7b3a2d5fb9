"""Policies without members: acting with what a member has learned, as champions do, and playing episodes with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.core import tree
from shoal.core.arrays import Named
from shoal.core.env_parameters import split, unlike
from shoal.core.errors import BadInput
from shoal.core.spec import Spec
from shoal.core.types import Agent, Array, Hyper, Member, Population, PyTree
from shoal.environments.spaces import to_bounds
from shoal.members.devices import DeviceLayout
from shoal.trainers.remote import RemoteTrainer
from shoal.trainers.trainer import TrainerState
from shoal.trainers.trainers import Trainers


class Policy(NamedTuple):
    """An individual that only acts: the first part of its snapshot, and its hyperparameters."""

    learned: PyTree
    hyper: dict[str, float]


class PolicyFunctions(NamedTuple):
    """The functions of a champion, as those of `Agent`, with actions of the environment's space.

    act_stochastic: (learned, obs, carry, key) as `act_deterministic`; actions as they are explored with in training
    save: writes it as the library does that has trained it, and returns the files; None where Shoal writes it
    probabilities: as of `Agent`
    """

    act_deterministic: Callable[..., tuple[Any, PyTree]]
    act_stochastic: Callable[..., tuple[Any, PyTree]]
    carry: Callable[[tuple[int, ...]], PyTree]
    observation_keys: tuple[str, ...] = ()
    save: Callable[[Path], list[str]] | None = None
    probabilities: Callable[..., Array] | None = None


class PolicyFactory(NamedTuple):
    """Makes the functions of a policy from the weights of a member. All members of a kind share it.

    learned: shapes and dtypes of these weights; `Named` where only a trainer knows them
    policy: (learned, hyperparameters) -> PolicyFunctions
    load: what a member learned that the library of a trainer has saved as a file; None where members have no library.
        Raises BadInput. It may run what the file holds
    """

    learned: PyTree
    policy: Callable[[PyTree, dict[str, float]], PolicyFunctions]
    load: Callable[[Path], PyTree] | None = None


def by_agent(agent: Agent, spec: Spec) -> PolicyFactory:
    """Policy of an agent's members for this spec."""

    @jax.jit
    def act_deterministic(learned: PyTree, obs: PyTree, carry: PyTree) -> tuple[Any, PyTree]:
        action, carry = agent.act_deterministic(learned, obs, carry)
        return to_bounds(spec.action, action), carry

    @jax.jit
    def act_stochastic(hyper: Hyper, learned: PyTree, obs: PyTree, carry: PyTree, key: Array) -> tuple[Any, PyTree]:
        if isinstance(obs, dict):  # what critics alone see has no part in an action, and may be missing
            key_seen, seen = next(iter(obs.items()))
            batch = seen.shape[: seen.ndim - len(spec.obs_shape[key_seen])]
            obs = tree.zeros(spec.obs, *batch) | obs
        action, carry, _ = agent.act(learned, hyper, obs, carry, key)
        return to_bounds(spec.action, action), carry

    def policy(learned: PyTree, hyper: dict[str, float]) -> PolicyFunctions:
        own = agent.hyper._replace(**{name: x for name, x in hyper.items() if name in agent.hyper._fields})
        return PolicyFunctions(
            act_deterministic,
            partial(act_stochastic, own),
            agent.carry,
            agent.observation_keys,
            probabilities=agent.probabilities,
        )

    return PolicyFactory(jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper)).learned, policy)


def by_trainer(name: str, make: Callable[[], Trainers]) -> PolicyFactory:
    """Policy of external trainers, in a process that starts on demand. make: makes the trainers."""

    def policy(learned: PyTree, hyper: dict[str, float]) -> PolicyFunctions:
        @cache
        def trainer() -> tuple[Trainers, RemoteTrainer]:
            trainers = make()
            if differing := unlike(hyper, trainers, {}):
                trainers.close()
                raise BadInput(f"the champion is not one of {name}: hyper {differing}")
            (process,) = trainers.open(1)
            remote = RemoteTrainer(process, 0, hyper, 0)
            remote.state = TrainerState(learned, {})
            return trainers, remote

        def act(learned: PyTree, obs: Any, carry: PyTree) -> tuple[Any, PyTree]:
            trainers, remote = trainer()
            if not trainers.acts:
                raise BadInput(f"{name} has no `act`: it can be evaluated, but not asked for actions")
            return remote.act(obs), carry

        def act_stochastic(*_: Any) -> tuple[Any, PyTree]:
            raise BadInput(f"{name} is an external trainer, which acts with deterministic actions only")

        def save(file: Path) -> list[str]:
            trainers, remote = trainer()
            try:
                if not trainers.exports:
                    raise BadInput(f"{name} has no `export`, and what its arrays mean is known to it alone")
                if file.suffix.lower() in (".onnx", ".npz"):
                    raise BadInput(f"{file}: {name} writes files of its own kind, such as .zip of Stable-Baselines3")
                return remote.export(file)
            finally:
                trainers.close()

        return PolicyFunctions(act, act_stochastic, lambda shape: (), save=save)

    def load(file: Path) -> PyTree:
        trainers = make()
        try:
            if not trainers.loads:
                raise BadInput(f"{name} has no `load`, and what a file of its library means is known to it alone")
            (process,) = trainers.open(1)
            return dict(RemoteTrainer(process, 0, trainers.hyper._asdict(), 0).load(file).learned)
        finally:
            trainers.close()

    return PolicyFactory(Named(), policy, load)


def placed(agent: Agent, layout: DeviceLayout, hyper: dict[str, np.ndarray]) -> tuple[Hyper, dict[str, Array]]:
    """Hyperparameters [N] on the devices: those of the agent, and the environment parameters of the environments."""
    own, env_parameters = split({name: np.asarray(x, np.float32) for name, x in hyper.items()})
    return layout.place((agent.hyper._replace(**own), env_parameters))


def acting_members(agent: Agent, layout: DeviceLayout, policies: Sequence[Policy]) -> Population:
    """Members that only act, one for each policy."""
    every = jax.tree.map(lambda *each: np.stack(each), *(policy.learned for policy in policies))
    names = policies[0].hyper
    own, _ = placed(agent, layout, {name: np.array([policy.hyper[name] for policy in policies]) for name in names})
    return Population(Member(layout.place(every), (), ()), (), own)
