"""Environments that can be looked at, and what draws them."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from ctypes.util import find_library
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from shoal.core.errors import BadInput
from shoal.core.evolution import Seed
from shoal.core.keys import jax_key, words
from shoal.core.spec import told
from shoal.core.types import PyTree
from shoal.core.user_code import one_line
from shoal.environments import host, registry
from shoal.environments.atari import ONLY_IN_TRAINING
from shoal.environments.blame import blamed
from shoal.environments.device import DeviceEnvironment
from shoal.environments.envpool import EQUAL
from shoal.environments.guard import guarded
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import Span, at_levels
from shoal.environments.playground import robot

EXTRA = "pip install 'shoal[video]'"
SIDE, GROUND = 400, 24  # pixels of the longer side of a picture made of cells, and how dark an empty one is
COLORS = ("#F0E442", "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#FFFFFF", "#999999", "#7F3C8D")

# How gymnasium's renderers want the state of the gymnax environments of the same names.
TWINS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "CartPole-v1": lambda s: (s.x, s.x_dot, s.theta, s.theta_dot),
    "Pendulum-v1": lambda s: (s.theta, s.theta_dot),
    "Acrobot-v1": lambda s: (s.joint_angle1, s.joint_angle2, s.velocity_1, s.velocity_2),
    "MountainCar-v0": lambda s: (s.position, s.velocity),
    "MountainCarContinuous-v0": lambda s: (s.position, s.velocity),
}


class Stage(Protocol):
    """One environment that can be looked at; `rate`: frames per second. `page`: see `Painter`."""

    rate: float
    page: Callable[[list[Any]], str] | None

    def sibling(self) -> Self:
        """Another one like it."""

    def reset(self, key: Seed) -> Any: ...
    def step(self, action: np.ndarray) -> tuple[Any, float, bool]: ...
    def draw(self) -> Any: ...
    def close(self) -> None: ...


class Painter(NamedTuple):
    """Pictures uint8 [H, W, 3] of the state and observation of a device environment.

    page: what a browser shows of a list of such pictures, which are then no pictures but states
    """

    paint: Callable[[PyTree, PyTree], Any]
    rate: float
    close: Callable[[], None] = lambda: None
    page: Callable[[list[Any]], str] | None = None


def need_no_screen() -> None:
    """Let pygame and MuJoCo draw without a screen where there is none; both read this when first imported."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        if find_library("EGL"):  # without the library MuJoCo could not even be imported
            os.environ.setdefault("MUJOCO_GL", "egl")


def stage_of(env: str, options: dict[str, Any], levels: Span | None, as_page: bool = False) -> Stage:
    """An environment, at these levels, with something to look at: pictures, or a page of a browser.

    Raises BadInput when there is nothing.
    """
    suite, _, name = env.partition(":")
    if as_page and suite != "brax":
        raise BadInput(f"{env} cannot be shown on a page: those are for bodies of brax; write a film, .mp4 or .gif")
    if suite == "gym" or (suite == "envpool" and name in EQUAL):  # and so gymnasium can draw it
        return _Host(name, options, levels)
    environment: Any = guarded(registry.make(registry.resolve(env), options), env)
    if levels is not None:
        environment = at_levels(environment, levels)
    if isinstance(environment, HostEnvironment):
        return _Seen(environment, env)
    if suite == "brax":
        return _Device(environment, (_brax_page if as_page else _brax)(name, options))
    if suite == "playground":
        return _Device(environment, _playground(name, options))
    if suite == "gymnax" and name in TWINS:
        return _Device(environment, _twin(name))
    seen = environment.spec.obs
    if not isinstance(seen, dict) and len(seen.shape) in (2, 3):
        return _Device(environment, Painter(lambda state, obs: cells(obs), 10))
    problem = "nothing is known of how to draw it, and its observations are no grid"
    raise BadInput(f"{env} cannot be filmed: {problem}, but {told(seen)}")


class _Host:
    """An environment of gymnasium that draws itself."""

    page: Callable[[list[Any]], str] | None = None

    def __init__(self, name: str, options: dict[str, Any], levels: Span | None):
        self._made_of = name, options, levels
        self._name, self._levels = f"gym:{name}", levels
        unseen = {"vectorization", "num_threads", *ONLY_IN_TRAINING}
        self._env: Any = _make(name, **{k: v for k, v in options.items() if k not in unseen})
        self._dtype = self._env.action_space.dtype
        self.rate = self._env.metadata.get("render_fps") or 30

    def sibling(self) -> Self:
        return type(self)(*self._made_of)

    def reset(self, key: Seed) -> Any:
        seed = words(key, 1)[0]
        if self._levels is not None:
            seed = self._levels.first + seed % (self._levels.end - self._levels.first)
        with blamed(self._name, "failed at reset"):
            return self._env.reset(seed=seed)[0]

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        with blamed(self._name, "failed at step"):
            obs, reward, terminated, truncated, _ = self._env.step(action.astype(self._dtype))
            return obs, float(reward), terminated or truncated

    def draw(self) -> np.ndarray:
        return _render(self._env)

    def close(self) -> None:
        self._env.close()


class _Seen:
    """A host environment that is drawn as the member sees it: in colours."""

    rate = 15.0
    page: Callable[[list[Any]], str] | None = None

    def __init__(self, environment: HostEnvironment, env: str):
        seen = environment.spec.obs
        shape = () if isinstance(seen, dict) or seen.dtype != "uint8" else seen.shape
        if len(shape) != 3 or 3 not in (shape[0], shape[2]):
            advice = (
                "host environments can when they come from gymnasium (gym:...), or when what members see is a picture"
            )
            raise BadInput(f"{env} cannot be filmed: {advice}")
        self._made_of = environment, env
        self._vector, self._channels_last = environment.open(1, None), shape[2] == 3

    def sibling(self) -> Self:
        return type(self)(*self._made_of)

    def reset(self, key: Seed) -> Any:
        self._obs = self._vector.reset(words(key, 1))[0]
        return self._obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        step, _ = self._vector.step(np.asarray(action)[None])
        self._obs = step.final_obs[0]
        return self._obs, float(step.reward[0]), bool(step.terminated[0] | step.truncated[0])

    def draw(self) -> np.ndarray:
        picture = self._obs if self._channels_last else self._obs.transpose(1, 2, 0)
        size = max(1, SIDE // max(picture.shape[:2]))
        return picture.repeat(size, 0).repeat(size, 1)

    def close(self) -> None:
        self._vector.close()


class _Device:
    """A device environment, and the painter of its states."""

    def __init__(self, environment: DeviceEnvironment, painter: Painter):
        self._reset, self._step = jax.jit(environment.reset), jax.jit(environment.step)
        self._painter, self.rate, self.close, self.page = painter, painter.rate, painter.close, painter.page

    def sibling(self) -> Self:
        other = copy.copy(self)  # with the same programs and painter, which the first one closes
        other.close = lambda: None
        return other

    def reset(self, key: Seed) -> Any:
        first, self._key = jax.random.split(jax_key(key))
        self._state, self._obs = self._reset(first)
        return self._obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        self._key, key = jax.random.split(self._key)
        self._state, self._obs, reward, terminated, truncated = self._step(key, self._state, action)
        return self._obs, float(reward), bool(terminated | truncated)

    def draw(self) -> np.ndarray:
        return self._painter.paint(self._state, jax.device_get(self._obs))


# -------------------------------------------------------------------------------------------- painters


def _twin(name: str) -> Painter:
    """Gymnasium's picture of the environment of the same name."""
    env = _make(name)
    env.reset(seed=0)

    def paint(state: PyTree, obs: np.ndarray) -> np.ndarray:
        env.unwrapped.state = np.array(TWINS[name](state), np.float64)
        return _render(env)

    return Painter(paint, env.metadata["render_fps"], env.close)


def _of_brax(name: str, options: dict[str, Any]) -> Any:
    from brax import envs

    return envs.get_environment(
        name, **{"backend": "spring"} | {k: v for k, v in options.items() if k != "episode_length"}
    )


def _brax_page(name: str, options: dict[str, Any]) -> Painter:
    """A page on which a browser draws the body from any side; it gets the program for that from the network."""
    from brax.io import html

    env = _of_brax(name, options)
    system = env.sys.tree_replace({"opt.timestep": env.dt})  # that of a step, which may be several of the physics

    def paint(state: PyTree, obs: np.ndarray) -> Any:
        return jax.device_get(state[0].pipeline_state)

    return Painter(paint, 1 / float(env.dt), page=lambda states: html.render(system, states, "100vh", colab=False))


def _brax(name: str, options: dict[str, Any]) -> Painter:
    """MuJoCo's picture of a body of brax."""
    env = _of_brax(name, options)

    def pose(state: PyTree) -> dict[str, Any]:
        return {"qpos": state[0].pipeline_state.q, "qvel": state[0].pipeline_state.qd}

    return _mujoco(env.sys.mj_model, float(env.dt), pose)


def _playground(name: str, options: dict[str, Any]) -> Painter:
    """MuJoCo's picture of a robot of Playground, and of what stands around it."""
    env = robot(name, options)

    def pose(state: PyTree) -> dict[str, Any]:
        return {part: getattr(state[0].data, part) for part in ("qpos", "qvel", "mocap_pos", "mocap_quat")}

    return _mujoco(env.mj_model, float(env.dt), pose)


def _mujoco(model: Any, seconds: float, pose: Callable[[PyTree], dict[str, Any]]) -> Painter:
    """MuJoCo's picture of a physical state, through the model's own camera where it has one.

    seconds: that a step lasts. pose: (state) -> arrays of MuJoCo's data, by name
    """
    import mujoco

    data, camera = mujoco.MjData(model), 0 if model.ncam else -1
    renderer = _drawing(lambda: mujoco.Renderer(model, height=360, width=480))

    def paint(state: PyTree, obs: np.ndarray) -> np.ndarray:
        for part, x in pose(state).items():
            getattr(data, part)[:] = np.asarray(x)
        mujoco.mj_forward(model, data)
        renderer.update_scene(data, camera=camera)
        return renderer.render()

    return Painter(paint, 1 / seconds, renderer.close)


def cells(obs: np.ndarray) -> np.ndarray:
    """A grid [H, W] or [H, W, C] as coloured cells: one colour per channel, later channels above earlier ones."""
    grid = obs.reshape(*obs.shape[:2], -1)
    picture = np.full((*grid.shape[:2], 3), GROUND, np.float64)
    for i in range(grid.shape[-1]):
        color = np.array([int(COLORS[i % len(COLORS)][k : k + 2], 16) for k in (1, 3, 5)])
        strength = np.clip(grid[..., i : i + 1], 0, 1)
        picture = picture * (1 - strength) + color * strength
    size = max(2, SIDE // max(grid.shape[:2]) // 2 * 2)
    picture = picture.astype(np.uint8).repeat(size, 0).repeat(size, 1)
    if size >= 8:  # lines between the cells
        picture[::size] = picture[:, ::size] = GROUND
    return picture


def _make(name: str, **options: Any) -> Any:
    try:
        return host.open_one(host.registry().get(name, name), render_mode="rgb_array", **options)
    except (Exception, SystemExit) as error:
        raise BadInput(f"gym:{name} cannot be filmed: {one_line(error)}; films also need {EXTRA}") from error


def _render(env: Any) -> np.ndarray:
    return _drawing(env.render)


def _drawing(draw: Callable[[], Any]) -> Any:
    """What `draw` returns. Raises BadInput for whatever keeps this machine from drawing."""
    try:
        return draw()
    except Exception as error:  # packages that are missing, and anything that a graphics driver raises
        raise BadInput(
            f"no picture can be drawn: {error}; films need {EXTRA}, and bodies of MuJoCo a way to draw without a screen: "
            "set the environment variable MUJOCO_GL to egl or osmesa, whichever this machine has; bodies of brax can be "
            "drawn by a browser instead: --video champion.html"
        ) from error
