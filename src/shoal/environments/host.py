"""Environments that run outside the device: gymnasium, many copies behind one flat step."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.core.schema import told
from shoal.core.types import ActionSpace, BadInput, Continuous, Discrete, MultiDiscrete, Spec, TimeStep


class Vector(Protocol):
    """Several copies of one environment that step together and reset themselves."""

    def reset(self, seeds: list[int]) -> np.ndarray:
        """Start every copy anew, each with its seed: obs [n, ...]."""

    def step(self, action: np.ndarray) -> tuple[TimeStep, np.ndarray | None]:
        """One step of every copy: the time step, every leaf [n, ...], and the objective [n] where one is named."""

    def close(self) -> None: ...


class HostEnvironment(NamedTuple):
    """How to open `n` copies of an environment; `objective`: a dotted key into the info of an episode's last step."""

    spec: Spec
    open: Callable[[int, str | None], Vector]


def gymnasium_environment(name: str, options: dict[str, Any]) -> HostEnvironment:
    """Any id that gymnasium knows; options go to `open_one`, but `vectorization`: sync (default) or async."""
    import gymnasium

    options = dict(options)
    vectorization = options.pop("vectorization", "sync")
    if vectorization not in ("sync", "async"):
        raise BadInput(f"env_options.vectorization = {vectorization!r}: choose sync or async")

    registered = registry().get(name)  # sent along, for worker processes know gymnasium's own ids only
    home = os.getpid()

    def make() -> Any:
        if os.getpid() != home:  # Ctrl-C reaches every process of a terminal; when workers end is for the run to say
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tame_mujoco(registered)
        return open_one(registered or name, **options)

    env, first = _try_out(make, f"env: gym:{name} with env_options {options}")
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Box):
        raise BadInput(f"env: gym:{name} has the observation space {space}, which cannot be made one array of numbers")
    if np.shape(first) != space.shape:
        raise BadInput(
            f"env: gym:{name} begins with an observation of shape {np.shape(first)}; its space says {space.shape}"
        )
    dtype = "uint8" if space.dtype == np.uint8 else "float32"
    spec = Spec(space.shape, dtype, _action_space(env.action_space, name))

    def open_copies(n: int, objective: str | None) -> Vector:
        return _Gymnasium(make, n, spec, objective, vectorization)

    return HostEnvironment(spec, open_copies)


def _try_out(make: Callable[[], Any], what: str) -> tuple[Any, Any]:
    """An environment, closed again, and its first observation. Raises BadInput where it cannot be had."""
    import gymnasium

    doing = "cannot be made"
    try:
        with warnings.catch_warnings():  # gymnasium warns of what follows as an error
            warnings.simplefilter("ignore")
            env = make()
            doing = "failed at reset"
            with contextlib.closing(env):
                first = env.reset(seed=0)[0] if isinstance(env.observation_space, gymnasium.spaces.Box) else None
    except gymnasium.error.DependencyNotInstalled as error:
        raise BadInput(f"{what} needs a package that is missing: {error}") from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} {doing}: {told(error)}") from error
    return env, first


def registry() -> dict[str, Any]:
    """What gymnasium knows by id, Atari's games among it where ale-py is installed."""
    import gymnasium

    with contextlib.suppress(ImportError):
        import ale_py  # noqa: F401  importing it registers them
    return gymnasium.registry


def open_one(env: Any, **options: Any) -> Any:
    """One environment, by id or specification, as agents see it: what is no array is flattened into one.

    Options go to `gymnasium.make`, and of Atari's games to `_atari`, unless `obs_type` asks for what the console gives.
    """
    import gymnasium

    name = env if isinstance(env, str) else env.id
    atari = name.rpartition(":")[2].startswith("ALE/") and "obs_type" not in options
    made = _atari(env, **options) if atari else gymnasium.make(env, **options)
    if not isinstance(made.observation_space, gymnasium.spaces.Box):
        made = gymnasium.wrappers.FlattenObservation(made)
    return made


def _atari(
    env: Any, frameskip: int = 4, frame_stack: int = 1, max_episode_steps: int | None = None, **options: Any
) -> Any:
    """The screen in grey, uint8 [frame_stack, 84, 84], at every `frameskip`-th frame (Machado et al. 2018).

    `max_episode_steps` are those of the agent.
    """
    import ale_py
    from gymnasium import make, wrappers

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # every console would introduce itself on the terminal
    made: Any = wrappers.AtariPreprocessing(make(env, frameskip=1, **options), frame_skip=frameskip)
    made = wrappers.FrameStackObservation(made, frame_stack)
    return made if max_episode_steps is None else wrappers.TimeLimit(made, max_episode_steps)


def _tame_mujoco(registered: Any) -> None:
    """Without this, MuJoCo tells every copy's warnings on the terminal, and writes MUJOCO_LOG.TXT where one stands."""
    if "mujoco" in str(getattr(registered, "entry_point", "")):
        with contextlib.suppress(ImportError):  # gymnasium says better what is missing
            import mujoco

            mujoco.set_mju_user_warning(logging.getLogger("shoal.mujoco").info)


class _Gymnasium:
    def __init__(self, make: Callable, n: int, spec: Spec, objective: str | None, vectorization: str):
        from gymnasium import vector

        same_step = vector.AutoresetMode.SAME_STEP
        if vectorization == "sync":
            self._envs: Any = vector.SyncVectorEnv([make] * n, autoreset_mode=same_step)
        else:  # not forked from this process: it has JAX's threads, and a child without them may hang
            start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
            # What ends a worker is raised here too; said by gymnasium, it would fill the terminal once per worker.
            warnings.filterwarnings("ignore", ".*ERROR: ", UserWarning, r"gymnasium\.vector\.async_vector_env")
            self._envs = vector.AsyncVectorEnv([make] * n, autoreset_mode=same_step, context=start)
        self._dtype, self._objective = spec.obs_dtype, objective.split(".") if objective else None
        self._action_dtype = self._envs.single_action_space.dtype

    def reset(self, seeds: list[int]) -> np.ndarray:
        obs, _ = self._envs.reset(seed=seeds)
        return obs.astype(self._dtype)

    @np.errstate(over="ignore")  # what is too large for float32 becomes infinite, and that is dealt with
    def step(self, action: np.ndarray) -> tuple[TimeStep, np.ndarray | None]:
        obs, reward, terminated, truncated, info = self._envs.step(action.astype(self._action_dtype))
        obs, reward = obs.astype(self._dtype), reward.astype(np.float32)
        final = obs
        done = terminated | truncated
        if done.any():
            final = obs.copy()
            for i in np.flatnonzero(done):
                final[i] = info["final_obs"][i]
        broken = ~(np.isfinite(reward) & np.isfinite(final).reshape(len(final), -1).all(1))
        if broken.any():
            reward[broken] = np.nan
            obs = self._restart(obs, broken & ~done)
        step = TimeStep(obs, reward, terminated, truncated | broken, final)
        return step, self._read_objective(info, done) if self._objective else None

    def _restart(self, obs: np.ndarray, lost: np.ndarray) -> np.ndarray:
        """New episodes in place of those that are `lost` [n]: an environment that has left the numbers may never end."""
        if not lost.any():
            return obs
        return self._envs.reset(options={"reset_mask": lost})[0].astype(self._dtype)

    def _read_objective(self, info: dict[str, Any], done: np.ndarray) -> np.ndarray:
        result = np.full(done.shape, np.nan)
        if not done.any():
            return result
        path = f"fitness.objective = {'.'.join(self._objective or ())}"
        values: Any = info.get("final_info", {})
        for part in self._objective or ():
            known = values if isinstance(values, dict) else {}
            if part not in known or not known[f"_{part}"][done].all():  # the mask tells which environments have it
                names = ", ".join(k for k in known if not k.startswith("_"))
                raise BadInput(f"{path}: the info of an episode's end has no {part!r}, only: {names}")
            values = known[part]
        if np.shape(values) != done.shape or values.dtype.kind not in "biuf":
            raise BadInput(f"{path}: is not one number in the info of an episode's end")
        result[done] = values[done]
        return result

    def close(self) -> None:
        self._envs.close()


def _action_space(space: Any, name: str) -> ActionSpace:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(map(int, space.nvec)), tuple(map(int, space.start)))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return MultiDiscrete((2,) * space.shape[0])
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return Continuous(tuple(map(float, space.low)), tuple(map(float, space.high)), str(space.dtype))
    raise BadInput(
        f"env: gym:{name} has the action space {space}; these work: discrete, multi-discrete, multi-binary, flat box"
    )
