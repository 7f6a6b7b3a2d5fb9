"""Environments of gymnasium, on the host."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import logging
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from shoal.core.errors import BadField
from shoal.core.spec import MASK, Spec, each
from shoal.core.types import PyTree
from shoal.environments.atari import one_game
from shoal.environments.host import AutoResetVectorEnv, HostEnvironment, VectorEnv, VectorStep, own, put
from shoal.environments.probe import check_spaces, check_unpacked, legal_choices, probe, set_numbers
from shoal.environments.spaces import action_space, dtype_of, is_arrays

# By extra, the packages that some of gymnasium's environments need; two of the extras are named like these environments.
NEEDED = {"atari": ["ale_py"], "box2d": ["Box2D"], "mujoco": ["mujoco", "imageio"]}

INFO = "info"  # the key of a copy's info among those of all


def gymnasium_environment(name: str, options: dict[str, Any]) -> HostEnvironment:
    """An environment of gymnasium, by id. Options are those of `open_one`, and `vectorization`: sync (default) or async."""
    options = dict(options)
    vectorization = options.pop("vectorization", "sync")
    if vectorization not in ("sync", "async"):
        raise BadField("env_options.vectorization", "choose sync or async", value=f"{vectorization!r}")

    registered = registry().get(name)  # passed to worker processes, where only gymnasium's own ids are registered
    home = os.getpid()

    def make() -> Any:
        if os.getpid() != home:  # Ctrl-C reaches every process of a terminal; the run ends its workers itself
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tame_mujoco(registered)
        return open_one(registered or name, **options)

    return _opened(make, f"gym:{name}", options, vectorization)


def own_gymnasium_environment(factory: Callable, name: str, options: dict[str, Any]) -> HostEnvironment:
    """Make an environment by a class or function of the user's, which need not be registered; its copies step one
    after another."""

    def drawn() -> Any:
        wanted = {"render_mode": "rgb_array"} if "render_mode" in inspect.signature(factory).parameters else {}
        return _in_arrays(factory(**options | wanted))

    return _opened(lambda: _in_arrays(factory(**options)), name, options, "sync")._replace(drawn=drawn)


def missing_extras() -> list[str]:
    """Name the extras with which gymnasium could make more of its own environments."""
    return [extra for extra, needed in NEEDED.items() if not all(map(importlib.util.find_spec, needed))]


def family(name: str) -> str:
    """Return gymnasium's name for the suite of an environment; for its own suites, an extra to install."""
    return str(registry()[name].entry_point).removeprefix("gymnasium.envs.").partition(".")[0]


def _opened(make: Callable[[], Any], name: str, options: dict[str, Any], vectorization: str) -> HostEnvironment:
    """Copies of what `make` gives. Raises BadInput, which names it, where that is nothing that can be learned."""
    what = f"{name} with env_options {options}"
    env, first, info, attributes = probe(make, what)
    if legal_choices(env.action_space, info) is not None and not _shows_mask(env):
        make = partial(_masked, make)
        env, first, info, attributes = probe(make, what)
    space = env.observation_space
    if not is_arrays(space):
        raise BadField("env", f"{name} has the observation space {space}, which cannot be made arrays of numbers")
    shape, given = each(lambda box: box.shape, space), each(np.shape, first)
    if given != shape:
        raise BadField("env", f"{name} begins with an observation of shape {given}", f"its space says {shape}")
    spec = Spec(shape, each(dtype_of, space), action_space(env.action_space, name))

    def copies_of(make: Callable[[], Any]) -> Callable[[int], VectorEnv]:
        kind = type(env.unwrapped)
        return lambda n: _Gymnasium(make, n, spec, vectorization, attributes, kind)

    def at_levels(first: int, end: int) -> HostEnvironment:
        opened = copies_of(lambda: _at_levels(make(), first, end))
        return HostEnvironment(spec, opened, normalising=wrapped, episode_limit=limit)

    env_parameters = {name: float(getattr(env.unwrapped, attribute)) for name, attribute in attributes.items()}
    wrapped, limit = _normalising(env), getattr(env.spec, "max_episode_steps", None)
    return HostEnvironment(
        spec, copies_of(make), at_levels, env_parameters=env_parameters, normalising=wrapped, episode_limit=limit
    )


def _shows_mask(env: Any) -> bool:
    """True where the observations of an environment have a mask of legal actions."""
    return MASK in getattr(env.observation_space, "spaces", ())


def _masked(make: Callable[[], Any]) -> Any:
    return with_mask(make())


def with_mask(env: Any) -> Any:
    """Return the environment with the mask of legal actions that its info has in its observations, unless these have one: of
    one choice, or of several, one behind another."""
    import gymnasium

    if _shows_mask(env):
        return env
    own = dict(env.observation_space.spaces) if isinstance(env.observation_space, gymnasium.spaces.Dict) else None
    choices = gymnasium.spaces.flatdim(env.action_space)

    class WithMask(gymnasium.Wrapper):
        def reset(self, **options: Any) -> tuple[Any, Any]:
            obs, info = self.env.reset(**options)
            return self._masked(obs, info), info

        def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
            obs, reward, terminated, truncated, info = self.env.step(action)
            return self._masked(obs, info), reward, terminated, truncated, info

        def _masked(self, obs: Any, info: Mapping[str, Any]) -> dict[str, Any]:
            legal = legal_choices(self.env.action_space, info)  # None: all, as after the last step, where nobody acts
            mask = np.ones(choices, np.uint8) if legal is None else np.hstack(legal).astype(np.uint8)
            return (obs if own else {"observation": obs}) | {MASK: mask}

    made, mask = WithMask(env), gymnasium.spaces.Box(0, 1, (choices,), np.uint8)
    made.observation_space = gymnasium.spaces.Dict((own or {"observation": env.observation_space}) | {MASK: mask})
    return made


def _normalising(env: Any) -> tuple[str, ...]:
    """Name what an environment normalises by running statistics, and the wrapper that does."""
    from gymnasium import Wrapper, wrappers

    kinds = {
        wrappers.NormalizeReward: "rewards, and with them fitness, by",
        wrappers.NormalizeObservation: "observations by",
    }
    found = list[str]()
    while isinstance(env, Wrapper):
        found += [f"{what} {type(env).__name__}" for kind, what in kinds.items() if isinstance(env, kind)]
        env = env.env
    return tuple(found)


def _at_levels(env: Any, first: int, end: int) -> Any:
    """Copies in which every episode has the seed of its own level, drawn by the seed of the copy."""
    import gymnasium

    class AtLevels(gymnasium.Wrapper):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
            if seed is not None:
                self._draws = np.random.default_rng(seed)
            return self.env.reset(seed=int(self._draws.integers(first, end)), options=options)

    return AtLevels(env)


def registry() -> dict[str, Any]:
    """The environments of gymnasium by id, with Atari's games where ale-py is installed."""
    import gymnasium

    with contextlib.suppress(ImportError):
        import ale_py  # noqa: F401  importing it registers them
    return gymnasium.registry


def open_one(env: Any, **options: Any) -> Any:
    """One environment, by id or specification, `_in_arrays`. Options go to `gymnasium.make`, or to Atari's `one_game`."""
    import gymnasium

    name = env if isinstance(env, str) else env.id
    atari = name.rpartition(":")[2].startswith("ALE/")
    return _in_arrays(one_game(env, **options) if atari else gymnasium.make(env, **options))


def _in_arrays(made: Any) -> Any:
    """Return the environment with observations that are one array, flattened if need be, or a dictionary of arrays."""
    import gymnasium

    check_spaces(made)
    space = made.observation_space
    if is_arrays(space):
        return made
    of_parts = isinstance(space, gymnasium.spaces.Dict)
    return _flattened(made, space) if of_parts else gymnasium.wrappers.FlattenObservation(made)


def _flattened(env: Any, space: Any) -> Any:
    """Return the environment with observations that are a dictionary of arrays: all other parts are flattened."""
    from gymnasium import spaces, wrappers

    flat: dict[str, Any] = {
        key: part if isinstance(part, spaces.Box) else spaces.flatten_space(part) for key, part in space.items()
    }

    def look(obs: Mapping[str, Any]) -> dict[str, Any]:
        return {key: obs[key] if flat[key] is part else spaces.flatten(part, obs[key]) for key, part in space.items()}

    return wrappers.TransformObservation(env, look, spaces.Dict(flat))


def _tame_mujoco(registered: Any) -> None:
    """Send MuJoCo's warnings to a logger; otherwise it prints those of every copy, and writes MUJOCO_LOG.TXT."""
    if "mujoco" in str(getattr(registered, "entry_point", "")):
        with contextlib.suppress(ImportError):  # gymnasium then says what is missing
            import mujoco

            mujoco.set_mju_user_warning(logging.getLogger("shoal.mujoco").info)


class _Gymnasium(AutoResetVectorEnv):
    def __init__(self, make: Callable, n: int, spec: Spec, vectorization: str, attributes: dict[str, str], kind: type):
        from gymnasium import vector

        make, same_step = _as_a_copy(make), vector.AutoresetMode.SAME_STEP
        if vectorization == "sync":
            self._envs: Any = vector.SyncVectorEnv([make] * n, copy=False, autoreset_mode=same_step)
        else:  # not forked: this process has JAX's threads, and a forked child may hang without them
            start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
            # The error of a worker is raised here too; gymnasium would also print it, once per worker.
            warnings.filterwarnings("ignore", ".*ERROR: ", UserWarning, r"gymnasium\.vector\.async_vector_env")
            self._envs = vector.AsyncVectorEnv([make] * n, copy=False, autoreset_mode=same_step, context=start)
        self._dtypes, self._attributes, self._kind = spec.obs_dtype, attributes, kind
        self.masked = spec.masked
        self._action_dtype = self._envs.single_action_space.dtype

    def reset(self, seeds: list[int]) -> PyTree:
        return self._typed(self._envs.reset(seed=seeds)[0])

    def step_raw(self, action: np.ndarray) -> VectorStep:
        try:
            obs, reward, terminated, truncated, info = self._envs.step(action.astype(self._action_dtype))
        except ValueError as error:  # whoever unpacks them, gymnasium or a wrapper
            check_unpacked(self._kind, error)
            raise
        final = obs = self._typed(obs)
        done = terminated | truncated
        if done.any():
            ended, last = np.flatnonzero(done), info["final_obs"][done]
            final = each(lambda x, *of: put(x, ended, of), obs, *last)
        infos = lambda i: (info["final_info"] if done[i] else info)[INFO][i][0]  # noqa: E731
        return VectorStep(final, reward, terminated, truncated, infos, begun=obs)

    def reset_copies(self, copies: np.ndarray) -> PyTree:
        """Restart copies whose numbers are not finite, and which might never end."""
        mask = np.zeros(self._envs.num_envs, bool)
        mask[copies] = True
        return each(lambda x: x[copies], self._typed(self._envs.reset(options={"reset_mask": mask})[0]))

    def _typed(self, obs: PyTree) -> PyTree:
        """Copies of what gymnasium has, which it changes in place."""
        return each(lambda x, dtype: x.astype(dtype), obs, self._dtypes)

    def mark_unused(self, copies: np.ndarray) -> None:
        self._envs.set_attr("resting", copies.tolist())

    def set_env_parameters(self, env_parameters: dict[str, np.ndarray]) -> None:
        names, values = [self._attributes[name] for name in env_parameters], np.stack([*env_parameters.values()], 1)
        self._envs.set_attr("numbers", [dict(zip(names, row, strict=True)) for row in values.tolist()])

    def close(self) -> None:
        self._envs.close()


def _as_a_copy(make: Callable) -> Callable:
    """Return `make`, whose environments do not step once `resting` is set, until they are reset.

    Observations that it returns are never changed: gymnasium looks at the end of an episode after the reset that follows it.
    Infos stay whole, in a tuple: gymnasium would make one array of the numbers of all copies, of the type of the first one,
    so that 0.7 beside 0 is 0, and parts that differ in shape are an error.
    """

    def made() -> Any:
        import gymnasium

        class Copy(gymnasium.Wrapper):
            resting = False

            @property
            def numbers(self) -> Mapping[str, Any]:
                """Attributes of the environment itself: a wrapper may have some of the same names, such as `gamma`."""
                return vars(self.unwrapped)

            @numbers.setter
            def numbers(self, values: Mapping[str, float]) -> None:
                set_numbers(self.unwrapped, values)

            def reset(self, **options: Any) -> tuple[Any, Any]:
                self.resting = False
                self._obs, info = own(self.env.reset(**options))
                return self._obs, {INFO: (info,)}

            def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
                if self.resting:
                    return self._obs, 0.0, False, False, {INFO: ({},)}
                self._obs, *rest, info = own(self.env.step(action))
                return self._obs, *rest, {INFO: (info,)}

        return Copy(make())

    return made
