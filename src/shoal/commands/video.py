"""Videos of a champion, or of a population, and windows: whole episodes, rendered frame by frame."""

from __future__ import annotations

import importlib.util
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from shoal.commands import renderers
from shoal.commands.renderers import Renderer
from shoal.core.atomic import absolute, write_file
from shoal.core.backend import on_jax
from shoal.core.errors import BadInput
from shoal.core.extras import install
from shoal.core.interrupts import interruptible
from shoal.core.keys import derive, jax_key, words
from shoal.core.population import Seed
from shoal.core.spec import MASK
from shoal.core.user_code import attributed
from shoal.environments import registry, suites
from shoal.environments.atari import ONLY_IN_TRAINING
from shoal.environments.error_boundary import with_error_boundary
from shoal.environments.gymnasium import with_mask
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import Span, at_levels
from shoal.experiment.experiment import Fitness
from shoal.run.champion import Champion, load_champion, load_members
from shoal.run.evaluation import with_stochastic_actions


@on_jax()
def play(
    run: Path,
    video: Path | None,
    episodes: int = 1,
    seed: int = 0,
    trust_code: bool = False,
    population: bool = False,
    member: int | None = None,
    generation: int | None = None,
    stochastic: bool = False,
) -> list[float]:
    """Show the champion of a run, or the member that `load_champion` finds. Returns the return of each episode that has
    ended. Raises BadInput.

    video: a file that ends in .mp4 or .gif, or in .html for bodies of brax; None: a window
    population: show all members, side by side in the same episodes; returns the mean return of each of them
    stochastic: sample actions instead of taking the setting of the run (`fitness.deterministic`)
    """
    run, video = absolute(run), None if video is None else absolute(video)
    suffix = "" if video is None else video.suffix.lower()
    as_page = suffix == ".html"
    if suffix not in (".mp4", ".gif", ".html") and video is not None:
        raise BadInput(f"--video {video}: must end in .mp4 or .gif, or in .html for bodies of brax")
    if population and as_page:
        raise BadInput(f"--video {video}: an HTML page shows one member; with --population write .mp4 or .gif")
    if population and member is not None:
        raise BadInput(f"--member {member}: --population shows all members; give one of the two")
    for package in () if as_page else ("pygame",) if video is None else ("imageio", "imageio_ffmpeg"):
        if importlib.util.find_spec(package) is None:
            raise BadInput(f"videos and windows need the package {package.replace('_', '-')}: {install('video')}")
    if video is None:
        renderers.need_screen()
    renderers.need_no_screen()
    if population:
        players = load_members(run, trust_code, generation)
    else:
        players = [load_champion(run, trust_code, member, generation)]
    e = with_stochastic_actions(players[0].experiment) if stochastic else players[0].experiment
    env = str(e.env)
    if players[0].policy.save is not None and ":" not in env:
        env = f"gym:{env}"  # trainers name it without the suite
    levels = None if e.levels is None else e.levels.spans()["validation"]
    masked = isinstance(players[0].obs, dict) and MASK in players[0].obs
    make, returns = rendered(env, e.env_options, levels, as_page, masked), list[list[float]]()
    with ExitStack() as stack, interruptible() as attend:
        environments = [stack.enter_context(closing(make())) for _ in players]
        shown = window(str(run), environments[0]) if video is None else frame_writer(video, environments[0])
        show = stack.enter_context(shown)
        for episode in range(episodes):
            key = derive((e.seed,), "play", seed, episode)
            returns.append(_episode(players, environments, e.fitness, key, show, attend))
    return np.mean(returns, 0).tolist() if population and returns else [x for (x,) in returns]


def _episode(
    players: Sequence[Champion],
    environments: Sequence[Rendered],
    fitness: Fitness,
    key: Any,
    show: Callable[[Any], None],
    attend: Callable[[], None],
) -> list[float]:
    """One episode, the same for every player, until all have ended it. Returns their returns."""
    obs = [environment.reset(key) for environment in environments]
    pictures = [environment.render() for environment in environments]
    show(renderers.side_by_side(pictures))
    totals, playing = [0.0] * len(players), list(range(len(players)))
    states: list[Any] = [None] * len(players)
    for _ in range(fitness.step_limit):
        for i in list(playing):
            attend()
            action, states[i] = players[i].predict(obs[i], states[i], deterministic=fitness.deterministic)
            obs[i], reward, done = environments[i].step(action)
            pictures[i], totals[i] = environments[i].render(), totals[i] + reward
            if done:
                playing.remove(i)
        show(renderers.side_by_side(pictures))
        if not playing:
            break
    return totals


class Closed(Exception):
    """The user has closed the window."""


@contextmanager
def window(title: str, environment: Rendered) -> Iterator[Callable[[Any], None]]:
    """A function that shows a frame in a window, when it is due. Closing the window, or Escape, ends the block."""
    import pygame

    pygame.display.init()
    clock = pygame.time.Clock()

    def show(picture: np.ndarray) -> None:
        size = picture.shape[1::-1]
        surface = pygame.display.get_surface()
        if surface is None or surface.get_size() != size:
            surface = pygame.display.set_mode(size)
            pygame.display.set_caption(title)
        surface.blit(pygame.image.frombuffer(picture.tobytes(), size, "RGB"), (0, 0))
        pygame.display.flip()
        clock.tick(environment.rate)
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                raise Closed

    try:
        yield show
    except Closed:
        pass
    except pygame.error as error:
        raise BadInput(f"--live cannot open a window: {error}; record with --video FILE") from error
    finally:
        pygame.display.quit()


@contextmanager
def frame_writer(video: Path, environment: Rendered) -> Iterator[Callable[[Any], None]]:
    """A function that appends a frame; the file gets its name once it is complete."""
    try:
        video.parent.mkdir(parents=True, exist_ok=True)
        if environment.page is None:
            with video_file(video, environment.rate) as append:
                yield append
        else:
            states: list[Any] = []
            yield states.append
            write_file(video, environment.page(states).encode())
    except OSError as error:
        raise BadInput(f"--video {video} cannot be written: {error}") from error


@contextmanager
def video_file(video: Path, rate: float) -> Iterator[Callable[[np.ndarray], None]]:
    import imageio.v2 as imageio

    suffix = video.suffix.lower()
    options: Any = {"fps": rate, "macro_block_size": 2} if suffix == ".mp4" else {"duration": 1000 / rate, "loop": 0}
    temporary = video.with_name(f".{video.stem}.{uuid.uuid4().hex}{suffix}")
    first: list[np.ndarray] = []
    try:
        with closing(imageio.get_writer(temporary, **options)) as writer, warnings.catch_warnings():
            # imageio starts ffmpeg by a fork; nothing of JAX runs in the child.
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)

            def append(picture: np.ndarray) -> None:
                first[:] = first or [picture]
                renderers.check_sizes([*first, picture])
                writer.append_data(picture)

            yield append
        temporary.replace(video)
    finally:
        temporary.unlink(missing_ok=True)


class Rendered(Protocol):
    """An environment that renders its frames.

    rate: frames per second. page: see `Renderer`
    """

    rate: float
    page: Callable[[list[Any]], str] | None = None

    def reset(self, key: Seed) -> Any: ...
    def step(self, action: np.ndarray) -> tuple[Any, float, bool]: ...
    def render(self) -> Any: ...
    def close(self) -> None: ...


def rendered(
    env: str, options: dict[str, Any], levels: Span | None, as_page: bool = False, masked: bool = False
) -> Callable[[], Rendered]:
    """A function that opens an environment at these levels which renders pictures, or a page of a browser.

    It shares programs and renderer. Raises BadInput if the environment cannot be rendered, then or now.

    masked: observations have an action mask, which environments of gymnasium may have in their info
    """
    suite, _, name = env.partition(":")
    if suite in registry.SUITES and registry.SUITES[suite].in_gymnasium(name) and not as_page:
        unused = {"vectorization", "num_threads", *ONLY_IN_TRAINING}
        options = {k: v for k, v in options.items() if k not in unused}
        return partial(RenderedGymnasium, renderers.with_pictures(name, **options), f"gym:{name}", levels, masked)
    environment: Any = with_error_boundary(registry.make(suites.resolve(env), options), env)
    on_host = isinstance(environment, HostEnvironment) and not as_page
    if on_host and environment.drawn is not None:
        return partial(RenderedGymnasium, environment.drawn, env, levels, masked)
    if levels is not None:
        environment = at_levels(environment, levels)
    if on_host:
        return partial(RenderedPixels, environment, env)
    renderer = renderers.renderer_of(env, options, environment.spec, as_page)
    return partial(RenderedDevice, jax.jit(environment.reset), jax.jit(environment.step), renderer)


class RenderedGymnasium(Rendered):
    """An environment of gymnasium, which renders itself."""

    def __init__(self, make: Callable[[], Any], name: str, levels: Span | None, masked: bool):
        self._name, self._levels = name, levels
        env = renderers.drawable(make, name)
        self._env = with_mask(env) if masked else env
        self._dtype = self._env.action_space.dtype
        self.rate = self._env.metadata.get("render_fps") or 30

    def reset(self, key: Seed) -> Any:
        seed = words(key, 1)[0]
        if self._levels is not None:
            seed = self._levels.first + seed % (self._levels.end - self._levels.first)
        with attributed("env", f"{self._name} failed at reset"):
            return self._env.reset(seed=seed)[0]

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        with attributed("env", f"{self._name} failed at step"):
            obs, reward, terminated, truncated, _ = self._env.step(action.astype(self._dtype))
            return obs, float(reward), terminated or truncated

    def render(self) -> np.ndarray:
        return renderers.picture_of(self._env)

    def close(self) -> None:
        self._env.close()


class RenderedPixels(Rendered):
    """A host environment whose observations are pictures."""

    rate = 15.0

    def __init__(self, environment: HostEnvironment, env: str):
        obs = environment.spec.obs
        shape = () if isinstance(obs, dict) or obs.dtype != "uint8" else obs.shape
        if len(shape) != 3 or 3 not in (shape[0], shape[2]):
            problem = "a host environment must come from gymnasium (gym:...), or have pictures as observations"
            raise BadInput(f"{env} cannot be rendered: {problem}")
        self._vector, self._channels_last = environment.open(1), shape[2] == 3

    def reset(self, key: Seed) -> Any:
        self._obs = self._vector.reset(words(key, 1))[0]
        return self._obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        step, _ = self._vector.step(np.asarray(action)[None])
        self._obs = step.final_obs[0]
        return self._obs, float(step.reward[0]), bool(step.terminated[0] | step.truncated[0])

    def render(self) -> np.ndarray:
        picture = self._obs if self._channels_last else self._obs.transpose(1, 2, 0)
        size = max(1, renderers.SIDE // max(picture.shape[:2]))
        return picture.repeat(size, 0).repeat(size, 1)

    def close(self) -> None:
        self._vector.close()


class RenderedDevice(Rendered):
    """A device environment with the renderer of its states."""

    def __init__(self, reset: Callable[..., Any], step: Callable[..., Any], renderer: Renderer):
        self._reset, self._step, self._renderer = reset, step, renderer
        self.rate, self.page = renderer.rate, renderer.page

    def reset(self, key: Seed) -> Any:
        first, self._key = jax.random.split(jax_key(key))
        self._obs, self._state = self._reset(first)
        return self._obs

    def step(self, action: np.ndarray) -> tuple[Any, float, bool]:
        self._key, key = jax.random.split(self._key)
        self._obs, self._state, reward, terminated, truncated = self._step(key, self._state, action)
        return self._obs, float(reward), bool(terminated | truncated)

    def render(self) -> np.ndarray:
        return self._renderer.render(self._state, jax.device_get(self._obs))

    def close(self) -> None:
        self._renderer.close()
