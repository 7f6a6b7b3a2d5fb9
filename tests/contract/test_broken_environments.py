"""Whatever an environment's code raises or returns: one line that names it, and nothing half-made is left."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from support.cases import others_slow
from support.messages import Said
from support.runs import flags, rows, shoal
from support.tiny import walk

from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed
from shoal.core.spec import Spec
from shoal.core.types import TimeStep
from shoal.environments.device import DeviceEnvironment
from shoal.environments.error_boundary import callbacks_attributed, with_error_boundary
from shoal.environments.host import HostEnvironment
from shoal.run.champion import load_champion
from shoal.run.train import resume

pytestmark = pytest.mark.usefixtures("trace_cache")

UNIT = spaces.Box(-1, 1, (2,), np.float32)
HERE = "test_broken_environments"


class Broken(gymnasium.Env):
    """Fails as `ill` says; `since`: at which call of that function in this process."""

    action_space = spaces.Discrete(2)
    ill, since, calls = "", 1, 0

    def __init__(self) -> None:
        self.observation_space = SPACES.get(self.ill, UNIT)
        self.fail("make")

    def fail(self, where: str) -> None:
        if self.ill == where:
            Broken.calls += 1
            if Broken.calls >= self.since:
                raise SystemExit(3) if where == "make" else ZeroDivisionError("of\nmy own")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.fail("reset")
        return (np.zeros(3, np.float32) if self.ill == "shape" else self.observation_space.sample()), {}

    def step(self, action: Any) -> Any:
        self.fail("step")
        return np.zeros(self.observation_space.shape or 2, np.float32), 0.0, self.np_random.random() < 0.2, False, {}


SPACES: dict[str, gymnasium.Space] = {
    "sequence": spaces.Sequence(UNIT),
    "graph": spaces.Graph(UNIT, UNIT),
    "nested": spaces.Dict({"a": UNIT, "b": spaces.Sequence(UNIT)}),
    "empty": spaces.Box(-1, 1, (0,), np.float32),
    "hollow": spaces.Box(-1, 1, (3, 0), np.float32),
}
OWN = "(test_broken_environments.py, line "
ON_THE_HOST = {
    "make": "with env_options {} cannot be made: SystemExit: 3 " + OWN,
    "reset": "with env_options {} failed at reset: ZeroDivisionError: of my own " + OWN,
    "step": "failed at step: ZeroDivisionError: of my own " + OWN,
    "shape": "begins with an observation of shape (3,); its space says (2,)",
    "sequence": "has the observation space Sequence(Box(-1.0, 1.0, (2,), float32), stack=False), which cannot be",
    "graph": "has the observation space Graph(Box(-1.0, 1.0, (2,), float32), Box(-1.0, 1.0, (2,), float32)), which",
    "nested": "has the observation space Dict(",
    "empty": "has an empty observation, of shape (0,): there is nothing to learn from",
    "hollow": "has an empty observation, of shape (3, 0): there is nothing to learn from",
}


class ObservationAlone(Broken):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class WithoutSeed(Broken):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class WithoutOptions(Broken):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class NothingAsInfo(Broken):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], None


class WithoutReset(Broken):
    """As gymnasium's own class, whose method has no body."""

    reset = gymnasium.Env.reset


class FourValues(Broken):
    def step(self, action: Any) -> Any:
        obs, reward, ended, _, info = super().step(action)
        return obs, reward, ended, info


class FourValuesAndNumbers(FourValues):
    """What has numbers that may be tuned is tried out for some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.gravity = 9.8


class Stepping(Broken):
    """Gives its values of a step as `changed` says."""

    changed: ClassVar[dict[int, Any]] = {}

    def step(self, action: Any) -> Any:
        return tuple(self.changed.get(at, value) for at, value in enumerate(super().step(action)))


def stepping(**changed: Any) -> dict[str, type[Stepping]]:
    """Environments by the name of what they give otherwise."""
    places = {"Obs": 0, "Reward": 1, "Ended": 2, "Info": 4}
    at = {name: next(place for part, place in places.items() if part in name) for name in changed}
    return {name: type(name, (Stepping,), {"changed": {at[name]: value}}) for name, value in changed.items()}


STEPS = stepping(
    ArrayAsReward=np.zeros(1),
    TwoRewards=np.zeros(2),
    NothingAsReward=None,
    LongObs=np.zeros(3, np.float32),
    ObsByKey={"a": np.zeros(2, np.float32)},
    NobodyEnded=None,
    NoInfo=None,
)
globals().update(STEPS)  # where the command looks for them


class WithoutSpace(Broken):
    """Has no attribute of this name."""

    def __init__(self) -> None:
        super().__init__()
        del self.observation_space


class WithoutActions(Broken):
    action_space = 2  # type: ignore[assignment]


@pytest.fixture
def gym(monkeypatch: pytest.MonkeyPatch) -> str:
    entry = gymnasium.envs.registration.EnvSpec("Broken-v0", entry_point=Broken, max_episode_steps=20)
    monkeypatch.setitem(gymnasium.registry, "Broken-v0", entry)
    monkeypatch.setattr(Broken, "calls", 0)
    return "gym:Broken-v0"


def refused(env: str, run: Path, **changes: Any) -> str:
    """What is said of an environment: in one line, and with nothing left behind."""
    outcome = shoal(*flags(run / "deep" / "r", "--quiet", env=env, **changes))
    assert outcome.code in (1, 2) and outcome.err.count("\n") == 1, outcome.err
    assert list(run.iterdir()) == []
    place, _, told = outcome.err.partition(f"{env} ")
    assert place in ("shoal: env: ", "shoal: env_options: "), outcome.err
    return told


@pytest.mark.parametrize("ill", ON_THE_HOST)
def test_on_the_host(gym: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ill: str) -> None:
    monkeypatch.setattr(Broken, "ill", ill)
    assert refused(gym, tmp_path).startswith(ON_THE_HOST[ill])


@pytest.mark.parametrize(
    "older",
    [
        *(ObservationAlone, WithoutSeed, WithoutOptions, NothingAsInfo, WithoutReset),
        *(FourValues, FourValuesAndNumbers, *STEPS.values(), WithoutSpace, WithoutActions),
    ],
    ids=lambda kind: kind.__name__,
)
def test_of_older_versions(tmp_path: Path, older: type[Broken], said: Said) -> None:
    """They are told what gymnasium 1 asks for, and where theirs is; so are those of no version."""
    outcome = shoal(*flags(tmp_path / "r", "--quiet", env=f"{HERE}:{older.__name__}"))
    assert outcome.code == 2 and list(tmp_path.iterdir()) == []
    said(re.sub(r"line \d+", "line N", outcome.err))


def test_a_class_that_is_not_registered(gym: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same is said of it; what is made, and then closed, to see what it is, may fail too."""
    for ill in ("reset", "shape", "graph"):
        monkeypatch.setattr(Broken, "ill", ill)
        assert refused(f"{HERE}:Broken", tmp_path).startswith(ON_THE_HOST[ill])
    monkeypatch.setattr(Broken, "ill", "make")
    assert refused(f"{HERE}:Broken", tmp_path).startswith(f"failed: SystemExit: 3 {OWN}")
    monkeypatch.setattr(Broken, "ill", "")
    monkeypatch.setattr(Broken, "close", lambda self: 1 / 0)
    assert refused(f"{HERE}:Broken", tmp_path).startswith(f"failed: ZeroDivisionError: division by zero {OWN}")


@pytest.mark.slow
def test_later_the_run_can_go_on(gym: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first checkpoint what there is stays, and the line says how to go on; however often it fails."""
    monkeypatch.setattr(Broken, "ill", "step")
    monkeypatch.setattr(Broken, "since", 8 * 40 + 4 * 2 * 30)  # steps: within the second generation
    outcome = shoal(*flags(tmp_path / "r", "--quiet", env=gym, generations=50))
    assert outcome.code == 1 and outcome.err.count("\n") == 1
    begin = f"shoal: env: {gym} failed at step: ZeroDivisionError: of my own {OWN}"
    assert outcome.err.startswith(begin)
    assert outcome.err.endswith(f"; once that is solved, continue with: shoal resume {tmp_path / 'r'}\n")
    again = shoal("resume", tmp_path / "r", "--quiet")
    assert (again.code, again.err) == (outcome.code, outcome.err)


def test_without_a_checkpoint_what_was_recorded_stays(
    gym: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the champion; to go on then is to begin anew."""
    run = tmp_path / "r"
    monkeypatch.setattr(Broken, "ill", "step")
    monkeypatch.setattr(Broken, "since", 2000)
    outcome = shoal(*flags(run, "--quiet", env=gym, generations=500, checkpoint={"every": 400}))
    assert outcome.code == 1 and outcome.err.endswith(f"; once that is solved, continue with: shoal resume {run}\n")
    assert Broken.calls == 2000
    assert len(rows(run / "metrics.jsonl")) > 1 and not (run / "checkpoints").exists()
    assert shoal("report", run).code == 0 and load_champion(run).uid in range(4)
    monkeypatch.setattr(Broken, "ill", "")
    again = shoal("resume", run, "--generations", 2)
    assert again.code == 0 and "before its first checkpoint: it starts from the beginning" in again.out
    assert [row["generation"] for row in rows(run / "metrics.jsonl")] == [0, 1]


def own(ill: str = "") -> Any:
    """An environment of one's own on the device; `ill` says what is wrong with it."""
    if ill == "make":
        raise ZeroDivisionError("of my own")
    sound = walk()

    def reset(key: jax.Array) -> Any:
        if ill == "reset":
            raise ZeroDivisionError("of my own")
        obs, state = sound.reset(key)
        return jnp.zeros(3) if ill == "reset shape" else obs.astype(jnp.int32) if ill == "reset type" else obs, state

    def step(key: jax.Array, state: Any, action: jax.Array) -> Any:
        if ill == "callback":
            number = jax.ShapeDtypeStruct((), jnp.float32)
            x = jax.pure_callback(Callback.of_step, number, state[0], vmap_method="sequential")
            state = (state[0] + x, state[1])
        if ill == "step" and state[0] > 0:
            return None
        if ill == "step nothing":
            return None
        obs, state, reward, terminated, truncated = sound.step(key, state, action)
        state = {"state": state[0].astype(jnp.bfloat16)} if ill == "state" else state
        return obs[:1] if ill == "step shape" else obs, state, obs if ill == "reward" else reward, terminated, truncated

    if ill == "empty":
        return DeviceEnvironment(Spec((0,), "float32", sound.spec.action), reset, step)
    if ill in ("vector make", "vector reset", "vector shape", "vector step"):
        return HostEnvironment(sound.spec, lambda n: OwnVector(ill, n))
    return DeviceEnvironment(sound.spec, reset, step)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_ends_that_are_numbers(dtype: str) -> None:
    """They are 0 or 1, as in brax and in simulators of one's own; `~` of a number would say something else."""
    sound = walk()

    def step(*arguments: Any) -> Any:
        *others, terminated, truncated = sound.step(*arguments)
        return *others, terminated.astype(dtype), truncated.astype(dtype)

    class Vector(OwnVector):
        def step(self, action: np.ndarray) -> Any:
            zeros = np.zeros((self.n, 2), np.float32)
            return TimeStep(zeros, zeros[:, 0], np.eye(self.n, dtype=dtype)[0], zeros[:, 0].astype(dtype), zeros), dict

    device = with_error_boundary(DeviceEnvironment(sound.spec, sound.reset, step), "own")
    key = jax.random.key(0)
    *_, terminated, truncated = jax.eval_shape(device.step, key, sound.reset(key)[1], jnp.int32(0))
    assert terminated.dtype == truncated.dtype == bool
    host = with_error_boundary(HostEnvironment(sound.spec, lambda n: Vector("", n)), "own").open(2)
    made, _ = host.step(np.zeros(2, np.int32))
    assert (made.terminated.tolist(), made.truncated.tolist()) == ([True, False], [False, False])
    assert made.terminated.dtype == made.truncated.dtype == bool


class Callback:
    """Python code that a compiled step calls; it fails from the call `since` on."""

    since, calls = 1, 0

    @classmethod
    def of_step(cls, x: jax.Array) -> np.ndarray:
        cls.calls += 1
        if cls.calls >= cls.since:
            raise ZeroDivisionError("of\nmy own")
        return np.zeros((), np.float32)


class OwnVector:
    """Copies of a host environment of one's own, without gymnasium."""

    def __init__(self, ill: str, n: int):
        self.ill, self.n = ill, n
        self.fail("vector make")

    def fail(self, where: str) -> None:
        if self.ill == where:
            raise ZeroDivisionError("of my own")

    def reset(self, seeds: list[int]) -> np.ndarray:
        self.fail("vector reset")
        return np.zeros((self.n, 5 if self.ill == "vector shape" else 2), np.float32)

    def step(self, action: np.ndarray) -> Any:
        self.fail("vector step")

    def close(self) -> None:
        pass


OF_ONES_OWN = {
    "make": "failed: ZeroDivisionError: of my own " + OWN,
    "reset": "failed at reset: ZeroDivisionError: of my own " + OWN,
    "reset shape": "gives the observation (3,) float32 at reset; its spec says (2,) float32",
    "reset type": "gives the observation (2,) int32 at reset; its spec says (2,) float32",
    "step": "failed at step: TracerBoolConversionError: Attempted boolean conversion of traced array",
    "step nothing": "failed at step: TypeError: cannot unpack non-iterable NoneType object (error_boundary.py, line ",
    "step shape": "gives the observation (1,) float32 at step; its spec says (2,) float32",
    "reward": "gives reward of shape (2,) at step; it must be a single number",
    "callback": "failed in a callback: ZeroDivisionError: of my own " + OWN,
    "state": "gives a state of other parts, shapes or types at step than at reset",
    "empty": "has an empty observation, of shape (0,): there is nothing to learn from",
    "vector make": "cannot be made: ZeroDivisionError: of my own " + OWN,
    "vector reset": "failed at reset: ZeroDivisionError: of my own " + OWN,
    "vector shape": "begins with an observation of shape (5,), not (2,)",
    "vector step": "failed at step: ZeroDivisionError: of my own " + OWN,
}


@pytest.mark.parametrize("ill", others_slow(OF_ONES_OWN, "make", "reset shape", "vector step"))
def test_of_ones_own(tmp_path: Path, ill: str) -> None:
    told = refused(f"{HERE}:own", tmp_path, env_options={"ill": ill})
    assert told.startswith(OF_ONES_OWN[ill]), told


def test_copies_that_cannot_rest_play_on(said: Said) -> None:
    """And where they can, but fail, the environment is named."""
    env = f"{HERE}:own"
    made = OwnVector("vector step", 2)
    vector = with_error_boundary(own("vector step")._replace(open=lambda n: made), env).open(2)
    vector.mark_unused(np.array([True, False]))
    made.mark_unused = lambda copies: made.fail("vector step")  # type: ignore[attr-defined]
    with pytest.raises(BadInput) as error:
        vector.mark_unused(np.array([True, False]))
    said(error.value)


@pytest.mark.slow
def test_a_callback_that_fails_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, without the log of JAX; the run can go on, and in Python what was raised is the cause."""
    env, run = f"{HERE}:own", tmp_path / "r"
    monkeypatch.setattr(Callback, "calls", 0)
    monkeypatch.setattr(Callback, "since", 10**9)
    options = {"env": env, "env_options": {"ill": "callback"}}
    assert shoal(*flags(run, "--quiet", **options, generations=1)).code == 0
    monkeypatch.setattr(Callback, "since", 0)
    outcome = shoal("resume", run, "--quiet", "--trust-code", "--generations", 2)
    assert outcome.code == 1 and outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith(f"shoal: env: {env} failed in a callback: ZeroDivisionError: of my own {OWN}")
    assert outcome.err.endswith(f"; once that is solved, continue with: shoal resume {run} --trust-code\n")
    with pytest.raises(Failed) as failed:
        resume(run, 2, trust_code=True)
    assert isinstance(failed.value.__cause__, BadInput)
    assert isinstance(failed.value.__cause__.__cause__, ZeroDivisionError)
    monkeypatch.setattr(Callback, "since", 10**9)
    assert shoal("resume", run, "--quiet", "--trust-code", "--generations", 2).code == 0


def test_other_errors_of_the_device_are_not_the_environments() -> None:
    """Too little memory, for one."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"), callbacks_attributed("env"):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
