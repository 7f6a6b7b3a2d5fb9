"""Renderers of device environments: gymnasium, MuJoCo, a browser, or coloured cells; and pictures of host environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from ctypes.util import find_library
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.core.errors import BadInput
from shoal.core.extras import install
from shoal.core.spec import MASK, Spec, describe
from shoal.core.types import PyTree
from shoal.core.user_code import one_line
from shoal.environments.device import quiet
from shoal.environments.gymnasium import open_one, registry
from shoal.environments.playground import robot
from shoal.report.palette import CHANNELS

SIDE, GROUND = 400, 24  # pixels of the longer side of a grid, and the grey level of an empty cell
WIDEST = 960  # pixels of a video of several members

# The state of gymnasium's environment, of the state of the gymnax environment of the same name.
GYMNASIUM_STATES: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "CartPole-v1": lambda s: (s.x, s.x_dot, s.theta, s.theta_dot),
    "Pendulum-v1": lambda s: (s.theta, s.theta_dot),
    "Acrobot-v1": lambda s: (s.joint_angle1, s.joint_angle2, s.velocity_1, s.velocity_2),
    "MountainCar-v0": lambda s: (s.position, s.velocity),
    "MountainCarContinuous-v0": lambda s: (s.position, s.velocity),
}


def need_no_screen() -> None:
    """Let pygame and MuJoCo render without a screen, and pygame be silent; both read this when first imported."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        if find_library("EGL"):  # without the library MuJoCo could not even be imported
            os.environ.setdefault("MUJOCO_GL", "egl")


def need_screen() -> None:
    """Raise BadInput where there is no screen for a window."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform == "linux" and not any(map(os.environ.get, names)):
        raise BadInput("--live needs a screen, and there is none here (DISPLAY is not set); record with --video FILE")


class Renderer(NamedTuple):
    """Pictures uint8 [H, W, 3] of the state and observation of a device environment.

    page: the HTML of a list of states; where it is given, `render` returns states instead of pictures
    """

    render: Callable[[PyTree, PyTree], Any]
    rate: float
    close: Callable[[], None] = lambda: None
    page: Callable[[list[Any]], str] | None = None


def _gymnax(name: str, options: dict[str, Any]) -> Renderer | None:
    """Gymnasium's picture of the environment of the same name, if it can be set to this state."""
    if name not in GYMNASIUM_STATES:
        return None
    env = drawable(with_pictures(name), f"gym:{name}")
    env.reset(seed=0)

    def render(state: PyTree, obs: np.ndarray) -> np.ndarray:
        env.unwrapped.state = np.array(GYMNASIUM_STATES[name](state), np.float64)
        return picture_of(env)

    return Renderer(render, env.metadata["render_fps"], env.close)


def _of_brax(name: str, options: dict[str, Any]) -> Any:
    from brax import envs

    own = {name: x for name, x in options.items() if name != "episode_length"}
    with quiet():
        return envs.get_environment(name, **{"backend": "spring"} | own)


def _brax_page(name: str, options: dict[str, Any]) -> Renderer:
    """A page on which a browser shows the body from any side; it loads its program from the network."""
    from brax.io import html

    env = _of_brax(name, options)
    system = env.sys.tree_replace({"opt.timestep": env.dt})  # of a step, which may be several steps of the physics

    def render(state: PyTree, obs: np.ndarray) -> Any:
        return jax.device_get(state[0].pipeline_state)

    return Renderer(render, 1 / float(env.dt), page=lambda states: html.render(system, states, "100vh", colab=False))


def _brax(name: str, options: dict[str, Any]) -> Renderer:
    """MuJoCo's picture of a body of brax."""
    env = _of_brax(name, options)

    pose = {"qpos": "pipeline_state.q", "qvel": "pipeline_state.qd"}
    return _mujoco(env.sys.mj_model, float(env.dt), pose)


def _playground(name: str, options: dict[str, Any]) -> Renderer:
    """MuJoCo's picture of a robot of Playground and its scene."""
    env = robot(name, options)

    pose = {part: f"data.{part}" for part in ("qpos", "qvel", "mocap_pos", "mocap_quat")}
    return _mujoco(env.mj_model, float(env.dt), pose)


def _mujoco(model: Any, seconds: float, pose: dict[str, str]) -> Renderer:
    """MuJoCo's picture of a physical state, through the model's own camera where it has one.

    seconds: of a step. pose: the attribute of the state for each array of MuJoCo's data
    """
    import mujoco

    data, camera = mujoco.MjData(model), 0 if model.ncam else -1
    renderer = _drawing(lambda: mujoco.Renderer(model, height=360, width=480))

    def render(state: PyTree, obs: np.ndarray) -> np.ndarray:
        for part, place in pose.items():
            getattr(data, part)[:] = np.asarray(attrgetter(place)(state[0]))
        mujoco.mj_forward(model, data)
        renderer.update_scene(data, camera=camera)
        return renderer.render()

    return Renderer(render, 1 / seconds, renderer.close)


def cells(obs: np.ndarray) -> np.ndarray:
    """A grid [H, W] or [H, W, C] as coloured cells: one colour per channel, later channels above earlier ones."""
    grid = obs.reshape(*obs.shape[:2], -1)
    picture = np.full((*grid.shape[:2], 3), GROUND, np.float64)
    for i in range(grid.shape[-1]):
        color = np.array([int(CHANNELS[i % len(CHANNELS)][k : k + 2], 16) for k in (1, 3, 5)])
        strength = np.clip(grid[..., i : i + 1], 0, 1)
        picture = picture * (1 - strength) + color * strength
    size = max(2, SIDE // max(grid.shape[:2]) // 2 * 2)
    picture = picture.astype(np.uint8).repeat(size, 0).repeat(size, 1)
    if size >= 8:  # lines between the cells
        picture[::size] = picture[:, ::size] = GROUND
    return picture


RENDERERS: dict[str, Callable[[str, dict[str, Any]], Renderer | None]] = {  # by suite
    "gymnax": _gymnax,
    "brax": _brax,
    "playground": _playground,
}


def renderer_of(env: str, options: dict[str, Any], spec: Spec, as_page: bool) -> Renderer:
    """The renderer of a suite, or else of observations that are grids; for pages that of brax. Raises BadInput."""
    suite, _, name = env.partition(":")
    if as_page and suite != "brax":
        raise BadInput(f"{env} cannot be shown as an HTML page, which only bodies of brax can; write .mp4 or .gif")
    if as_page:
        return _brax_page(name, options)
    renderer = RENDERERS[suite](name, options) if suite in RENDERERS else None
    if renderer is not None:
        return renderer
    if not isinstance(spec.obs, dict) and len(spec.obs.shape) in (2, 3):
        return Renderer(lambda state, obs: cells(obs), 10)
    beside_mask = {k: x for k, x in spec.obs.items() if k != MASK} if isinstance(spec.obs, dict) else {}
    if len(beside_mask) == 1:  # as jumanji has it
        key, leaf = beside_mask.popitem()
        if len(leaf.shape) in (2, 3):
            return Renderer(lambda state, obs: cells(obs[key]), 10)
    problem = f"it has no renderer, and its observations are no grid: {describe(spec.obs)}"
    raise BadInput(f"{env} cannot be rendered: {problem}")


def with_pictures(name: str, **options: Any) -> Callable[[], Any]:
    """A function that makes the environment of gymnasium of this id, with a renderer, whatever `render_mode` it has."""
    return lambda: open_one(registry().get(name, name), **options | {"render_mode": "rgb_array"})


def drawable(make: Callable[[], Any], name: str) -> Any:
    """The environment of gymnasium that `make` returns. Raises BadInput, which names it."""
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise BadInput(f"{name} cannot be rendered: {one_line(error)}; videos also need {install('video')}") from error


def picture_of(env: Any) -> np.ndarray:
    """The picture that an environment of gymnasium renders, uint8 [H, W, 3]: grey gets three channels, alpha is dropped.

    Raises BadInput if it is no picture.
    """
    drawn = _drawing(env.render)
    picture = np.asarray(drawn if hasattr(drawn, "__array__") else None)
    shape = picture.shape if picture.ndim == 3 else (*picture.shape, 1)
    whole = picture.dtype.kind in "iu" and picture.size > 0  # white is unknown for other dtypes
    if not whole or len(shape) != 3 or shape[2] not in (1, 3, 4) or picture.min() < 0 or picture.max() > 255:
        given = f"{picture.dtype} {list(picture.shape)}" if hasattr(drawn, "__array__") else type(drawn).__name__
        if whole:
            given += f" from {picture.min()} to {picture.max()}"
        problem = f"render must return an array [H, W, 3] of integers from 0 to 255, not {given}"
        raise BadInput(f"the environment cannot be rendered: {problem}")
    picture = picture.reshape(shape)[..., :3].astype(np.uint8, copy=False)
    return np.broadcast_to(picture, (*shape[:2], 3))


def _drawing(draw: Callable[[], Any]) -> Any:
    """The result of `draw`. Raises BadInput if this machine cannot render."""
    try:
        return draw()
    except NotImplementedError:  # what gymnasium.Env does by itself
        return None
    except Exception as error:  # packages that are missing, and anything that a graphics driver raises
        raise BadInput(
            f"rendering failed: {error}; videos need {install('video')}, and MuJoCo needs a way to render without a screen: "
            "set the environment variable MUJOCO_GL to egl or osmesa, whichever this machine has; bodies of brax can be "
            "shown in a browser instead: --video champion.html"
        ) from error


def side_by_side(pictures: Sequence[Any]) -> Any:
    """A grid [H, W, 3] of several pictures [h, w, 3]; a single one stays as it is. Raises BadInput."""
    if len(pictures) == 1:
        return pictures[0]
    check_sizes(pictures)
    square = int(np.ceil(np.sqrt(len(pictures))))
    columns = min(range(square, 2 * square), key=lambda columns: -len(pictures) % columns)  # the fewest empty places
    rows = -(-len(pictures) // columns)
    height, width, _ = pictures[0].shape
    every = -(-columns * width // WIDEST)
    empty = np.zeros((columns * rows - len(pictures), height, width, 3), np.uint8)
    grid = np.concatenate([np.stack(pictures), empty])[:, ::every, ::every]
    grid = np.pad(grid, ((0, 0), (2, 2), (2, 2), (0, 0)))  # a line between them
    height, width = grid.shape[1:3]
    return grid.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)


def check_sizes(pictures: Sequence[np.ndarray]) -> None:
    """Raise BadInput if frames of a video differ in size."""
    sizes = dict.fromkeys("{1} x {0}".format(*picture.shape) for picture in pictures)
    if len(sizes) > 1:
        raise BadInput(f"the environment cannot be rendered: its frames have {' and '.join(sizes)} pixels")
