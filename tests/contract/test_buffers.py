"""Host environments that hand out one buffer and change it in place: what was seen stays as it was seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from support.tiny import same

from shoal.core.spec import Discrete, Spec
from shoal.core.types import TimeStep
from shoal.environments import registry
from shoal.environments.error_boundary import with_error_boundary
from shoal.environments.host import HostEnvironment
from shoal.environments.objective import in_infos

LENGTH, STEPS = 3, 8
KINDS = ("array", "dictionary", "tuple")


class OneBuffer(gymnasium.Env):
    """Shows the time, in the same arrays from the first step to the last; its info is such a one too."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind: str, terminates: bool):
        box = spaces.Box(-9, 9, (2,), np.float32)
        parts = {"a": box, "b": spaces.Box(0, 9, (1,), np.uint8)}
        self.observation_space = {"array": box, "dictionary": spaces.Dict(parts), "tuple": spaces.Tuple((box, box))}[
            kind
        ]
        self.terminates = terminates
        self.shown: Any = self.observation_space.sample()
        self.time, self.info = 0, {"deep": {"times": {"now": 0}}}

    def show(self, time: int) -> Any:
        arrays = self.shown.values() if isinstance(self.shown, dict) else self.shown
        for x in [self.shown] if isinstance(self.shown, np.ndarray) else arrays:
            x[:] = time
        self.time = self.info["deep"]["times"]["now"] = time
        return self.shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.show(0), self.info

    def step(self, action: Any) -> Any:
        obs, done = self.show(self.time + 1), self.time == LENGTH
        return obs, float(self.time), done and self.terminates, done and not self.terminates, self.info


class Copies:
    """A `VectorEnv` of one's own with the same manners."""

    def __init__(self, n: int, terminates: bool):
        self.terminates, self.time = terminates, np.zeros((n, 1), np.float32)
        self.final, self.reward = np.zeros((n, 1), np.float32), np.zeros(n, np.float32)
        self.ends = np.zeros((2, n), bool)

    def reset(self, seeds: list[int]) -> Any:
        self.time[:] = 0
        return self.time

    def step(self, action: Any) -> Any:
        self.time += 1
        self.final[:], self.reward[:] = self.time, self.time[:, 0]
        self.ends[0 if self.terminates else 1] = self.time[:, 0] == LENGTH
        self.time[self.time == LENGTH] = 0
        return TimeStep(self.time, self.reward, *self.ends, self.final), None

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("shoal-test/OneBuffer-v0", "test_buffers:OneBuffer")
    yield
    del gymnasium.registry["shoal-test/OneBuffer-v0"]


def lived(environment: HostEnvironment, objective: Any = None) -> tuple[Any, list[TimeStep], list[Any]]:
    """The first observation, the steps and the objective after each, all looked at when the last one is over."""
    vector = with_error_boundary(environment, "x").open(2)
    try:
        first, steps, told = vector.reset([0, 1]), [], []
        for _ in range(STEPS):
            step, info_of = vector.step(np.zeros(2, np.int32))
            steps.append(step)
            told.append(objective and in_infos(objective, info_of, np.ones(2, bool)))
        return first, steps, told
    finally:
        vector.close()


def holds(obs: Any, number: int) -> bool:
    return all((x == number).all() for x in jax.tree.leaves(obs))


def check(first: Any, steps: list[TimeStep], terminates: bool) -> None:
    assert holds(first, 0)
    for i, step in enumerate(steps):
        time = i % LENGTH + 1
        assert holds(step.final_obs, time), (time, step.final_obs)
        assert holds(step.obs, time % LENGTH)
        np.testing.assert_array_equal(step.reward, [time] * 2)
        np.testing.assert_array_equal(step.terminated, [terminates and time == LENGTH] * 2)
        np.testing.assert_array_equal(step.truncated, [not terminates and time == LENGTH] * 2)


@pytest.mark.parametrize("terminates", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_of_gymnasium(kind: str, terminates: bool) -> None:
    environment = registry.make("gym:shoal-test/OneBuffer-v0", {"kind": kind, "terminates": terminates})
    first, steps, told = lived(environment, "deep.times.now")
    check(first, steps, terminates)
    np.testing.assert_array_equal(told, [[i % LENGTH + 1] * 2 for i in range(STEPS)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[:2])
def test_in_processes_of_their_own(kind: str) -> None:
    options = {"kind": kind, "terminates": False, "vectorization": "async"}
    first, steps, told = lived(registry.make("gym:shoal-test/OneBuffer-v0", options), "deep.times.now")
    check(first, steps, False)
    np.testing.assert_array_equal(told, [[i % LENGTH + 1] * 2 for i in range(STEPS)])


@pytest.mark.parametrize("terminates", [True, False])
def test_of_a_host_environment_of_ones_own(terminates: bool) -> None:
    own = HostEnvironment(Spec((1,), "float32", Discrete(2)), lambda n: Copies(n, terminates))
    check(*lived(own)[:2], terminates)


@pytest.mark.parametrize(("env", "options"), [("gym:ALE/Pong-v5", {"frame_stack": 2}), ("envpool:HalfCheetah-v5", {})])
def test_libraries_that_step_many_copies(env: str, options: dict[str, Any]) -> None:
    """What they show does not change when they step on."""
    vector = registry.make(env, options | {"max_episode_steps": 3}).open(2)
    shape = registry.make(env, options).spec.action.shape
    shown: list[Any] = [vector.reset([0, 1])]
    kept = [jax.tree.map(np.array, shown[0])]
    for _ in range(5):
        step, _ = vector.step(np.ones((2, *shape), np.float32 if shape else np.int32))
        shown.append(step)
        kept.append(jax.tree.map(np.array, step))
    vector.close()
    assert all(map(same, shown, kept))
