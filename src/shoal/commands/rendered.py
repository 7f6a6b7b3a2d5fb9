"""Environments that are played to be looked at."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol, Self

import jax
import numpy as np

from shoal.commands.renderers import PAGES, SIDE, Renderer, drawable, picture_of, renderer_of, with_pictures
from shoal.core.errors import BadInput
from shoal.core.evolution import Seed
from shoal.core.keys import jax_key, words
from shoal.core.user_code import blamed
from shoal.environments import registry
from shoal.environments.atari import ONLY_IN_TRAINING
from shoal.environments.device import DeviceEnvironment
from shoal.environments.guard import guarded
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import Span, at_levels


class Rendered(Protocol):
    """One environment that can be looked at. rate: frames per second. page: see `Renderer`. made_of: its arguments."""

    rate: float
    page: Callable[[list[Any]], str] | None = None
    made_of: tuple[Any, ...] = ()

    def sibling(self) -> Self:
        """Another one like it."""
        return type(self)(*self.made_of)

    def reset(self, key: Seed) -> Any: ...
    def step(self, action: np.ndarray) -> tuple[Any, float, bool]: ...
    def render(self) -> Any: ...
    def close(self) -> None: ...


def open_rendered(env: str, options: dict[str, Any], levels: Span | None, as_page: bool = False) -> Rendered:
    """An environment, at these levels, with something to look at: pictures, or a page of a browser.

    Raises BadInput when there is nothing.
    """
    suite, _, name = env.partition(":")
    if as_page and suite not in PAGES:
        raise BadInput(f"{env} cannot be shown on a page: those are for bodies of brax; write a film, .mp4 or .gif")
    if suite in registry.SUITES and registry.SUITES[suite].in_gymnasium(name):
        unseen = {"vectorization", "num_threads", *ONLY_IN_TRAINING}
        shown = {k: v for k, v in options.items() if k not in unseen}
        return _Host(with_pictures(name, **shown), f"gym:{name}", levels)
    environment: Any = guarded(registry.make(registry.resolve(env), options), env)
    if levels is not None:
        environment = at_levels(environment, levels)
    if isinstance(environment, HostEnvironment):
        return _Seen(environment, env) if environment.drawn is None else _Host(environment.drawn, env, levels)
    return _Device(environment, PAGES[suite](name, options) if as_page else renderer_of(env, options, environment.spec))


class _Host(Rendered):
    """An environment of gymnasium that draws itself."""

    def __init__(self, make: Callable[[], Any], name: str, levels: Span | None):
        self.made_of = _, self._name, self._levels = make, name, levels
        self._env = drawable(make, name)
        self._dtype = self._env.action_space.dtype
        self.rate = self._env.metadata.get("render_fps") or 30

    def reset(self, key: Seed) -> Any:
        seed = words(key, 1)[0]
        if self._levels is not None:
            seed = self._levels.first + seed % (self._levels.end - self._levels.first)
        with blamed("env", f"{self._name} failed at reset"):
            return self._env.reset(seed=seed)[0]

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        with blamed("env", f"{self._name} failed at step"):
            obs, reward, terminated, truncated, _ = self._env.step(action.astype(self._dtype))
            return obs, float(reward), terminated or truncated

    def render(self) -> np.ndarray:
        return picture_of(self._env)

    def close(self) -> None:
        self._env.close()


class _Seen(Rendered):
    """A host environment that is drawn as the member sees it: in colours."""

    rate = 15.0

    def __init__(self, environment: HostEnvironment, env: str):
        seen = environment.spec.obs
        shape = () if isinstance(seen, dict) or seen.dtype != "uint8" else seen.shape
        if len(shape) != 3 or 3 not in (shape[0], shape[2]):
            others = (
                "host environments can when they come from gymnasium (gym:...), or when what members see is a picture"
            )
            raise BadInput(f"{env} cannot be filmed: {others}")
        self.made_of = environment, env
        self._vector, self._channels_last = environment.open(1, None), shape[2] == 3

    def reset(self, key: Seed) -> Any:
        self._obs = self._vector.reset(words(key, 1))[0]
        return self._obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        step, _ = self._vector.step(np.asarray(action)[None])
        self._obs = step.final_obs[0]
        return self._obs, float(step.reward[0]), bool(step.terminated[0] | step.truncated[0])

    def render(self) -> np.ndarray:
        picture = self._obs if self._channels_last else self._obs.transpose(1, 2, 0)
        size = max(1, SIDE // max(picture.shape[:2]))
        return picture.repeat(size, 0).repeat(size, 1)

    def close(self) -> None:
        self._vector.close()


class _Device(Rendered):
    """A device environment, and the renderer of its states."""

    def __init__(self, environment: DeviceEnvironment, renderer: Renderer):
        self._reset, self._step = jax.jit(environment.reset), jax.jit(environment.step)
        self._renderer, self.rate, self.page = renderer, renderer.rate, renderer.page

    def sibling(self) -> Self:
        other = copy.copy(self)  # with the same programs and renderer, which the first one closes
        other._renderer = self._renderer._replace(close=lambda: None)
        return other

    def reset(self, key: Seed) -> Any:
        first, self._key = jax.random.split(jax_key(key))
        self._state, self._obs = self._reset(first)
        return self._obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        self._key, key = jax.random.split(self._key)
        self._state, self._obs, reward, terminated, truncated = self._step(key, self._state, action)
        return self._obs, float(reward), bool(terminated | truncated)

    def render(self) -> np.ndarray:
        return self._renderer.render(self._state, jax.device_get(self._obs))

    def close(self) -> None:
        self._renderer.close()
