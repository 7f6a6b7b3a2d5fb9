"""Filming a champion: whole episodes, drawn frame by frame."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from ctypes.util import find_library
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from shoal.core.errors import BadInput
from shoal.core.interrupts import interruptible
from shoal.core.keys import derive, jax_key, words
from shoal.core.types import PyTree, Seed
from shoal.core.user_code import one_line
from shoal.environments import host, registry
from shoal.environments.atari import ONLY_IN_TRAINING
from shoal.environments.blame import blamed
from shoal.environments.device import DeviceEnvironment
from shoal.environments.envpool import EQUAL
from shoal.environments.guard import guarded
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import Span, at_levels
from shoal.experiment.trust import check_trust
from shoal.run.champion import load_champion
from shoal.trainers.trainers import is_trainer

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
    """One environment that can be looked at; `rate`: frames per second."""

    rate: float

    def reset(self, key: Seed) -> Any: ...
    def step(self, action: np.ndarray) -> tuple[Any, float, bool]: ...
    def draw(self) -> np.ndarray: ...
    def close(self) -> None: ...


class Painter(NamedTuple):
    """Pictures uint8 [H, W, 3] of the state and observation of a device environment."""

    paint: Callable[[PyTree, np.ndarray], np.ndarray]
    rate: float
    close: Callable[[], None] = lambda: None


def film(run: Path, video: Path, episodes: int = 1, seed: int = 0, trust_code: bool = False) -> list[float]:
    """Film the champion of a run; `video` ends in .mp4 or .gif. Returns what the episodes returned. Raises BadInput."""
    if episodes < 1:
        raise BadInput(f"--episodes {episodes}: must be at least 1")
    if video.suffix.lower() not in (".mp4", ".gif"):
        raise BadInput(f"--video {video}: the film must end in .mp4 or .gif")
    for package in ("imageio", "imageio_ffmpeg"):
        if importlib.util.find_spec(package) is None:
            raise BadInput(f"films need the package {package.replace('_', '-')}: {EXTRA}")
    _need_no_screen()
    champion = load_champion(run, trust_code)
    check_trust(champion.experiment, trust_code, ["env"])
    env = str(champion.experiment.env)
    if is_trainer(champion.experiment.agent, champion.experiment.python) and ":" not in env:
        env = f"gym:{env}"  # which trainers know without it
    levels = champion.experiment.levels
    stage = _stage(env, champion.experiment.env_options, None if levels is None else levels.spans()["validation"])
    returns = []
    try:
        with interruptible() as attend, _writer(video, stage.rate) as write:
            for episode in range(episodes):
                champion.reset()
                obs = stage.reset(derive((champion.experiment.seed,), "play", seed, episode))
                write(stage.draw())
                total, done, steps = 0.0, False, 0
                while not done and steps < champion.experiment.fitness.step_limit:
                    attend()
                    obs, reward, done = stage.step(champion.act(obs))
                    write(stage.draw())
                    total, steps = total + reward, steps + 1
                returns.append(total)
    finally:
        stage.close()
    return returns


@contextmanager
def _writer(video: Path, rate: float) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends a frame; the film gets its name when it is whole."""
    import imageio.v2 as imageio

    suffix = video.suffix.lower()
    options: dict[str, Any] = {"duration": 1000 / rate, "loop": 0}
    if suffix == ".mp4":
        options = {"fps": rate, "macro_block_size": 2}
    temporary = video.with_name(f".{video.stem}.{os.getpid()}{suffix}")
    try:
        video.parent.mkdir(parents=True, exist_ok=True)
        with closing(imageio.get_writer(temporary, **options)) as writer, warnings.catch_warnings():
            # imageio starts ffmpeg by a fork; nothing of JAX runs in the child.
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
            yield writer.append_data
        temporary.replace(video)
    except OSError as error:
        raise BadInput(f"--video {video} cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _need_no_screen() -> None:
    """Let pygame and MuJoCo draw without a screen where there is none; both read this when first imported."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        if find_library("EGL"):  # without the library MuJoCo could not even be imported
            os.environ.setdefault("MUJOCO_GL", "egl")


def _stage(env: str, options: dict[str, Any], levels: Span | None) -> Stage:
    """An environment, at these levels, with something to look at. Raises BadInput when there is nothing."""
    suite, _, name = env.partition(":")
    if suite == "gym" or (suite == "envpool" and name in EQUAL):  # and so gymnasium can draw it
        return _Host(name, options, levels)
    environment: Any = guarded(registry.make(registry.resolve(env), options), env)
    if levels is not None:
        environment = at_levels(environment, levels)
    if isinstance(environment, HostEnvironment):
        return _Seen(environment, env)
    if suite == "brax":
        return _Device(environment, _brax(name, options))
    if suite == "gymnax" and name in TWINS:
        return _Device(environment, _twin(name))
    if len(environment.spec.obs_shape) in (2, 3):
        return _Device(environment, Painter(lambda state, obs: cells(obs), 10))
    raise BadInput(f"{env} cannot be filmed: nothing is known of how to draw it, and its observations are no grid")


class _Host:
    """An environment of gymnasium that draws itself."""

    def __init__(self, name: str, options: dict[str, Any], levels: Span | None):
        self._name, self._levels = f"gym:{name}", levels
        unseen = {"vectorization", "num_threads", *ONLY_IN_TRAINING}
        self._env: Any = _make(name, **{k: v for k, v in options.items() if k not in unseen})
        self._dtype = self._env.action_space.dtype
        self.rate = self._env.metadata.get("render_fps") or 30

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

    def __init__(self, environment: HostEnvironment, env: str):
        shape = environment.spec.obs_shape
        if environment.spec.obs_dtype != "uint8" or len(shape) != 3 or 3 not in (shape[0], shape[2]):
            advice = (
                "host environments can when they come from gymnasium (gym:...), or when what members see is a picture"
            )
            raise BadInput(f"{env} cannot be filmed: {advice}")
        self._vector, self._channels_last = environment.open(1, None), shape[2] == 3

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
        self._painter, self.rate, self.close = painter, painter.rate, painter.close

    def reset(self, key: Seed) -> Any:
        first, self._key = jax.random.split(jax_key(key))
        self._state, self._obs = self._reset(first)
        return self._obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        self._key, key = jax.random.split(self._key)
        self._state, self._obs, reward, terminated, truncated = self._step(key, self._state, action)
        return self._obs, float(reward), bool(terminated | truncated)

    def draw(self) -> np.ndarray:
        return self._painter.paint(self._state, np.asarray(self._obs))


# -------------------------------------------------------------------------------------------- painters


def _twin(name: str) -> Painter:
    """Gymnasium's picture of the environment of the same name."""
    env = _make(name)
    env.reset(seed=0)

    def paint(state: PyTree, obs: np.ndarray) -> np.ndarray:
        env.unwrapped.state = np.array(TWINS[name](state), np.float64)
        return _render(env)

    return Painter(paint, env.metadata["render_fps"], env.close)


def _brax(name: str, options: dict[str, Any]) -> Painter:
    """MuJoCo's picture of a physical state, through the model's own camera where it has one."""
    import mujoco
    from brax import envs

    options = {"backend": "spring"} | {k: v for k, v in options.items() if k != "episode_length"}
    env = envs.get_environment(name, **options)
    model = env.sys.mj_model
    data, camera = mujoco.MjData(model), 0 if model.ncam else -1
    renderer = _drawing(lambda: mujoco.Renderer(model, height=360, width=480))

    def paint(state: PyTree, obs: np.ndarray) -> np.ndarray:
        physics = state[0].pipeline_state
        data.qpos, data.qvel = np.asarray(physics.q), np.asarray(physics.qd)
        mujoco.mj_forward(model, data)
        renderer.update_scene(data, camera=camera)
        return renderer.render()

    return Painter(paint, 1 / float(env.dt), renderer.close)


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
            "set the environment variable MUJOCO_GL to egl or osmesa, whichever this machine has"
        ) from error
