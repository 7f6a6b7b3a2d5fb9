"""Environments of envpool, which steps many copies in C++: Procgen, MuJoCo's bodies, DM Control and others."""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.cores import usable_cores
from shoal.core.errors import BadField, unknown
from shoal.core.spec import Box, Spec, actor_and_critic_keys, each
from shoal.core.types import PyTree
from shoal.core.user_code import attributed
from shoal.environments.host import AutoResetVectorEnv, HostEnvironment, VectorStep, info_at
from shoal.environments.spaces import action_space, dtype_of

# Those of gymnasium's environments that envpool has too, and that are the same: tests/contract/test_envpool.py holds them
# against each other. A bare name takes envpool's. Ant is none of them: its contacts differ by more than rounding does.
_BODIES = (
    *("HalfCheetah", "Hopper", "Humanoid", "InvertedDoublePendulum", "InvertedPendulum"),
    *("Reacher", "Swimmer", "Walker2d"),
)
EQUAL = frozenset(f"{body}-v5" for body in _BODIES)
_OURS = frozenset(  # options of envpool that follow from what a run asks for
    (
        *("base_path", "batch_size", "env_name", "env_seed", "gym_reset_return_info", "max_num_players", "num_envs"),
        *("reward_threshold", "seed", "task", "task_name", "thread_affinity_offset"),
    )
)
_LEVELS = "is what `levels` says: levels: {train: [start_level, start_level + num_levels]}"
_MEASURED = "would also apply in evaluations; gym:ALE/NAME-v5 has episodic_life and reward_clipping"
_REFUSED = {  # options of a module, and why
    "envpool.procgen": {
        "max_episode_steps": "would not end an episode, but call a death a time limit; Procgen's games have their own",
        "num_levels": _LEVELS,
        "start_level": _LEVELS,
        "use_sequential_levels": "goes on to levels outside of those that were asked for",
    },
    "envpool.atari": {"episodic_life": _MEASURED, "reward_clip": _MEASURED},
}
_UNBOUNDED = 1e30  # envpool writes the largest number of a type where there is no bound


def names() -> list[str]:
    """envpool's tasks; for each game of Procgen the name of the game too, as envpool and as Procgen spell it."""
    return [*_specs(), *(name for game in _games() for name in (game, game.lower()))]


def envpool_environment(name: str, options: dict[str, Any]) -> HostEnvironment:
    """An environment of envpool, by task, or by game of Procgen.

    options: those of the task; `num_threads`; of a game of Procgen `distribution_mode` too, hard by default
    """
    options = dict(options)
    env = f"envpool:{name}"
    task = name if name in _specs() else _in_mode(env, name.capitalize(), options.pop("distribution_mode", "hard"))
    module = _specs()[task][0]
    for option, why in _REFUSED.get(module, {}).items():
        if option in options:
            raise BadField(f"env_options.{option}", why)
    levels: Callable[[int, int], HostEnvironment] | None = None
    if module == "envpool.procgen":
        if _without_qt():
            advice = "pip install PyQt5-Qt5, or install libqt5gui5 of Debian and its like"
            raise BadField("env", f"{env} needs Qt 5 ({_without_qt()})", advice)
        procgen = importlib.import_module(module)
        if "ProcgenEnvSpec" not in vars(procgen):  # somebody else has imported it, before Qt was loaded
            importlib.reload(procgen)

        def levels(first: int, end: int) -> HostEnvironment:
            return _environment(env, task, options | {"start_level": first, "num_levels": min(end - first, 2**31 - 1)})

    return _environment(env, task, options)._replace(at_levels=levels)


def _environment(env: str, task: str, options: dict[str, Any]) -> HostEnvironment:
    import envpool
    from gymnasium import spaces

    with attributed("env", f"{env} with env_options {options} cannot be made"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gymnasium warns of bounds that lose a digit
        _check(env, options, envpool.make_spec(task).config._asdict())
        described = envpool.make_spec(task, **options)
        space, actions = described.observation_space, described.action_space
        parts = dict(space.items()) if isinstance(space, spaces.Dict) else space
        shape = each(lambda part: part.shape if isinstance(part, spaces.Box) else (spaces.flatdim(part),), parts)
        dtype = each(dtype_of, parts)
    if described.config.max_num_players > 1:
        raise BadField("env", f"{env} is for several players at once, and a member is one")
    spec = Spec(shape, dtype, action_space(actions, env), **actor_and_critic_keys(shape))
    if isinstance(spec.action, Box) and max(map(abs, spec.action.low + spec.action.high)) > _UNBOUNDED:
        raise BadField("env", f"{env} has actions without bounds", "envpool offers other forms of them as env_options")

    def make(seeds: list[int]) -> Any:
        chosen = {"num_threads": min(len(seeds), len(usable_cores()))} | options
        return envpool.make_gymnasium(task, num_envs=len(seeds), seed=seeds, **chosen)

    def arrays(obs: Any, n: int) -> PyTree:
        def array(part: Any, x: Any, dtype: str) -> np.ndarray:
            return (x if isinstance(part, spaces.Box) else _flat(part, x, n)).astype(dtype, copy=False)

        return each(array, parts, obs, dtype)

    limit = described.config.max_episode_steps
    known = limit < 2**31 - 1 and _specs()[task][0] != "envpool.procgen"  # its games have limits of their own
    opened = functools.partial(_Envpool, make, arrays, spec.masked)
    return HostEnvironment(spec, opened, episode_limit=limit if known else None)


def twin(env: str) -> str:
    """The full id under which gymnasium has the same environment, with what envpool's lacks; empty where it has none."""
    suite, _, name = env.partition(":")
    return f"gym:{name}" if suite == "envpool" and name in EQUAL else ""


def _check(env: str, options: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Raise BadInput for an option that a task does not have, or for one of another kind than its default."""
    for option, value in options.items():
        if option in _OURS or option not in defaults:
            error = unknown("env_options", option, defaults.keys() - _OURS)
            others = f" ({twin(env)} has others)" if twin(env) else ""
            raise BadField("env_options", error.problem, f"{error.advice}{others}", name=option)
        kind = type(defaults[option])
        if type(value) is not kind and not (kind is float and type(value) is int):
            problem = f"must be of the kind of its default, {defaults[option]!r}"
            raise BadField(f"env_options.{option}", problem, value=f"{value!r}")


class _Envpool(AutoResetVectorEnv):
    """Copies of envpool. They take seeds only when they are made, so a reset makes new ones, within milliseconds."""

    def __init__(self, make: Callable, arrays: Callable, masked: bool, n: int):
        self._make, self._arrays, self.masked = make, arrays, masked
        self._all = self._awake = np.arange(n, dtype=np.int32)
        self._pool: Any = None

    def reset(self, seeds: list[int]) -> PyTree:
        self.close()
        with warnings.catch_warnings():  # of gymnasium, as above; some come with the first observation
            warnings.simplefilter("ignore")
            self._pool, self._awake = self._make(seeds), self._all
            obs, _ = self._pool.reset(self._all)
        return self._arrays(obs, len(self._all))

    def step_raw(self, action: np.ndarray) -> VectorStep:
        obs, reward, terminated, truncated, info = self._pool.step(action[self._awake], self._awake)
        info.pop("players", None)
        parts = self._arrays(obs, len(self._awake)), reward, terminated, truncated, info
        if len(self._awake) < len(self._all):
            parts = tuple(map(self._of_all, parts))
        return VectorStep(*parts[:4], lambda i: info_at(parts[4], i))

    def _of_all(self, x: Any) -> Any:
        """Arrays [n, ...] of those that have stepped, [k, ...]; zeros for those that rest."""
        if isinstance(x, Mapping):
            return {name: self._of_all(part) for name, part in x.items()}
        whole = np.zeros((len(self._all), *x.shape[1:]), x.dtype)
        whole[self._awake] = x
        return whole

    def mark_unused(self, copies: np.ndarray) -> None:
        self._awake = self._all[~copies]

    def reset_copies(self, copies: np.ndarray) -> PyTree:
        return self._arrays(self._pool.reset(copies.astype(np.int32))[0], len(copies))

    def close(self) -> None:
        self._pool = None  # nothing else refers to it: its threads end here


def _flat(space: Any, obs: Any, n: int) -> np.ndarray:
    """Observations of n copies as one array [n, ...], in the order of `gymnasium.spaces.flatten`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return np.concatenate([_flat(part, obs[name], n) for name, part in space.items()], 1)
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[obs.reshape(n) - space.start]
    return obs.reshape(n, -1)


def _specs() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return the tasks that envpool has registered: task -> (module, class, options)."""
    _without_qt()  # before the first import of envpool, which tries Procgen, and does not try again
    with attributed("env", "envpool cannot be imported"):
        from envpool.registration import registry
    return registry.specs


def _games() -> dict[str, dict[str, str]]:
    """Procgen's games, and envpool's task for each mode of each, such as easy: BigfishEasy-v0."""
    found: dict[str, dict[str, str]] = {}
    for task, (module, _, options) in _specs().items():
        if module == "envpool.procgen":
            game = options["env_name"].capitalize()
            mode = task.removeprefix(game).removesuffix("-v0").lower()
            found.setdefault(game, {})[mode] = task
    return found


def _in_mode(env: str, game: str, mode: Any) -> str:
    """The task of a game. Raises BadInput where the game has no such mode."""
    modes = _games()[game]
    if mode not in modes:
        raise BadField("env_options.distribution_mode", f"{env} has {', '.join(modes)}", value=f"{mode!r}")
    return modes[mode]


def folders_of(package: str) -> list[Path]:
    """Find the folder of an installed package without importing it; none where it is not installed."""
    found = importlib.util.find_spec(package)
    return [Path(place) for place in (found and found.submodule_search_locations) or ()]


@functools.cache
def _without_qt() -> str:
    """Load what Procgen draws with: the system's Qt 5, or that of the package PyQt5-Qt5. Why it cannot, or nothing."""
    folders = [folder / "Qt5" / "lib" for folder in folders_of("PyQt5")]
    for library in ("libQt5Core.so.5", "libQt5Gui.so.5"):
        for place in (library, *(str(folder / library) for folder in folders)):
            try:
                ctypes.CDLL(place, ctypes.RTLD_GLOBAL)
                break
            except OSError as error:
                reason = str(error)
        else:
            return reason
    return ""
