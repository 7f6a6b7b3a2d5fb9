"""Videos of champions: every kind of environment that can be drawn, and clear words for those that cannot."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import imageio.v2 as imageio
import imageio_ffmpeg
import jax
import numpy as np
import pygame
import pytest
from support.cases import others_slow
from support.masked import Masked
from support.messages import Said
from support.probes import match
from support.runs import COMMAND, at_work, build_run, shoal, tiny

from shoal.cli import main
from shoal.commands import renderers
from shoal.commands.video import RenderedGymnasium, play, rendered, video_file
from shoal.core.atomic import write_file
from shoal.core.errors import BadInput
from shoal.core.spec import Discrete, Spec
from shoal.environments import registry
from shoal.environments.levels import Span
from shoal.environments.playground import robot
from shoal.experiment.experiment import Experiment, Fitness
from shoal.experiment.files import dump
from shoal.run import champion
from shoal.run.train import train

CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
TINY = {"layers": [4], "rollout_length": 4, "num_envs": 1, "num_minibatches": 1}


def grid_environment() -> Any:
    """An environment of one's own whose observation is a picture."""
    environment = match()
    spec = environment.spec.__class__((3, 4), "float32", environment.spec.action)

    def reset(key: Any) -> tuple[Any, Any]:
        obs, state = environment.reset(key)
        return np.full((3, 4), 0.5, np.float32) * obs[0], state

    def step(key: Any, state: Any, action: Any) -> tuple[Any, ...]:
        obs, state, *rest = environment.step(key, state, action)
        return np.full((3, 4), 0.5, np.float32) * obs[0], state, *rest

    return environment._replace(spec=spec, reset=reset, step=step)


def host_environment() -> Any:
    """A host environment that does not come from gymnasium's registry."""
    from shoal.environments.gymnasium import gymnasium_environment

    return gymnasium_environment("CartPole-v1", {})


class Blind(gymnasium.Env[Any, Any]):
    """It cannot be drawn."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, True, False, {}


class Grey(Masked):
    """It draws itself, and says in its info which choices are legal."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None):
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> np.ndarray:
        return np.full((16, 16, 3), 100, np.uint8)


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[..., Path]:
    """A run directory with an untrained champion, which takes no training to make."""

    def make(env: Any, step_limit: int = 12, **options: Any) -> Path:
        fitness = Fitness(step_limit=step_limit)
        parts = build_run(Experiment(env=env, population=2, config=TINY, env_options=options, fitness=fitness))
        agent, folder = parts.agent, tmp_path / "run"
        folder.mkdir()
        write_file(folder / "experiment.yaml", dump(replace(parts.experiment, run_dir=str(folder))).encode())
        draw = np.random.default_rng(0)
        shapes = jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper)).learned
        learned = jax.tree.map(lambda x: draw.normal(size=x.shape).astype(x.dtype), shapes)
        hyper = {name: float(x) for name, x in agent.hyper._asdict().items()}
        best = champion.Candidate(learned, uid=0, generation=0, fitness=1.0, hyper=hyper)
        with at_work(folder) as staging:
            champion.save(folder / "champion", best, parts.environment.spec, staging)
        parts.shard.close()
        return folder

    return make


def frames(video: Path) -> np.ndarray:
    """The frames of a video, made small: int [F, 40, 60, 3]."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(video), "-vf", "scale=60:40", "-fps_mode", "passthrough"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(decoded, np.uint8).reshape(-1, 40, 60, 3).astype(int)


@pytest.mark.parametrize(
    "env",
    others_slow([*(f"gymnax:{name}" for name in renderers.GYMNASIUM_STATES), "gym:CartPole-v1"], "gymnax:Pendulum-v1"),
)
def test_a_video_shows_every_step(env: str, run_of: Callable[..., Path], tmp_path: Path) -> None:
    video = tmp_path / "video.mp4"
    returns = play(run_of(env), video, episodes=1, seed=0)
    shown = frames(video)
    assert len(returns) == 1 and np.isfinite(returns[0])
    assert len(shown) == 13 or "CartPole" in env  # the start and every step up to the limit; a pole may fall earlier
    assert any((a != b).any() for a, b in pairwise(shown)), "nothing moves"


def test_the_device_environment_itself_is_recorded(run_of: Callable[..., Path], tmp_path: Path) -> None:
    run = run_of("gymnax:CartPole-v1", step_limit=1000, max_steps_in_episode=7)
    assert play(run, tmp_path / "video.mp4", 2, 0) == [7.0, 7.0]  # no pole falls in seven steps
    assert len(frames(tmp_path / "video.mp4")) == 2 * 8


def test_gymnasium_draws_the_state_of_its_twin() -> None:
    renderer = renderers.RENDERERS["gymnax"]("CartPole-v1", {})
    state = type("State", (), {"x": 2.0, "x_dot": 0.0, "theta": 0.0, "theta_dot": 0.0})
    right = renderer.render(state, np.zeros(4)).astype(int)
    state.x = -2.0
    left = renderer.render(state, np.zeros(4)).astype(int)
    renderer.close()
    dark = [np.argwhere(picture.sum(-1) == 0)[:, 1].mean() for picture in (left, right)]
    assert dark[0] < 250 < 350 < dark[1]


def test_cells_have_one_colour_per_channel() -> None:
    obs = np.zeros((10, 10, 4))
    obs[0, 0, 0] = obs[9, 9, 2] = obs[5, 5, 0] = obs[5, 5, 2] = 1
    picture = renderers.cells(obs)
    assert picture.shape == (400, 400, 3)
    first, second, both, empty = (picture[i, j].tolist() for i, j in ((20, 20), (380, 380), (220, 220), (20, 380)))
    assert first != second == both != empty == [renderers.GROUND] * 3


def test_the_grid_beside_an_action_mask_is_drawn(said: Said) -> None:
    """As in jumanji; of two grids neither is."""
    grid, mask = np.random.default_rng(0).random((3, 4, 2)), np.ones(4)
    spec = Spec({"picture": grid.shape, "action_mask": mask.shape}, "float32", Discrete(4))
    drawn = renderers.renderer_of("jumanji:Maze-v0", {}, spec, False).render(
        None, {"picture": grid, "action_mask": mask}
    )
    np.testing.assert_array_equal(drawn, renderers.cells(grid))
    with pytest.raises(BadInput) as error:
        renderers.renderer_of("a:b", {}, Spec(dict.fromkeys("ab", (3, 4)), "float32", Discrete(4)), False)
    said(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["gymnax:Breakout-MinAtar", grid_environment])
def test_grids_are_drawn_as_cells(env: Any, run_of: Callable[..., Path], tmp_path: Path) -> None:
    returns = play(run_of(env), tmp_path / "video.gif", episodes=2, seed=3, trust_code=True)
    assert len(returns) == 2
    assert imageio.imread(tmp_path / "video.gif").shape[1] == 400
    assert len(frames(tmp_path / "video.gif")) >= 2  # a GIF keeps equal frames once


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of importing brax
def test_brax_draws_its_own_physics(run_of: Callable[..., Path], tmp_path: Path) -> None:
    run, video = run_of("brax:inverted_pendulum", episode_length=3), tmp_path / "video.mp4"
    command = [*COMMAND, "play", str(run), "--video", str(video)]
    done = subprocess.run(command, capture_output=True, text=True)  # MuJoCo looks for a way to draw when it is imported
    if done.returncode == 2 and "MUJOCO_GL" in done.stderr:
        pytest.skip("this machine cannot draw without a screen")
    assert done.returncode == 0, done.stderr
    shown = frames(video)
    assert 2 <= len(shown) <= 4 and shown[0].std() > 5


def test_a_body_of_brax_is_drawn_in_silence() -> None:
    """A run trains without the warning of brax that it is not maintained, and its video had it."""
    registry.make("brax:inverted_pendulum", {})  # imports brax
    renderers._of_brax("inverted_pendulum", {"episode_length": 3})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of importing it
def test_robots_of_playground_are_drawn_as_they_stand() -> None:
    pytest.importorskip("mujoco_playground")
    renderers.need_no_screen()
    import mujoco

    try:
        renderer = renderers.RENDERERS["playground"]("CartpoleBalance", {})
    except BadInput:
        pytest.skip("this machine cannot draw without a screen")
    data = mujoco.MjData(robot("CartpoleBalance", {}).mj_model)
    state = SimpleNamespace(data=data), 0
    upright = renderer.render(state, np.zeros(5)).copy()
    assert upright.shape == (360, 480, 3) and upright.std() > 10 and renderer.rate == 100
    data.qpos[1] = 1.5
    fallen = renderer.render(state, np.zeros(5))
    renderer.close()
    assert (upright != fallen).any(-1).mean() > 0.005


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of importing brax
def test_a_browser_draws_bodies_of_brax(run_of: Callable[..., Path], tmp_path: Path) -> None:
    page = tmp_path / "champion.html"
    (returned,) = play(run_of("brax:inverted_pendulum", episode_length=3), page)
    (packed,) = re.findall(r'var system = "([A-Za-z0-9+/=]+)"', page.read_text())
    told = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert len(told["states"]["x"]) == returned + 1  # a reward of 1 for every step, and the first state
    assert told["opt"]["timestep"] == pytest.approx(0.02)  # of a step, which is four of the physics


def test_pages_are_for_bodies_of_brax(run_of: Callable[..., Path], tmp_path: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        play(run_of("gymnax:CartPole-v1"), tmp_path / "champion.html")
    said(error.value)
    assert not (tmp_path / "champion.html").exists()


def test_a_population_plays_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same episode; in four quarters of the picture, of which each stands still when its pole has fallen."""
    train(tiny(tmp_path / "run", generations=1))
    shown: list[np.ndarray] = []
    monkeypatch.setattr("shoal.commands.video.frame_writer", lambda video, environment: nullcontext(shown.append))
    returns = play(tmp_path / "run", tmp_path / "video.mp4", population=True)
    assert len(returns) == 4 and len(shown) == max(returns) + 1 > min(returns) + 1
    height, width = (n // 2 for n in shown[0].shape[:2])
    places = [(a, b) for a in (0, height) for b in (0, width)]
    for (a, b), returned in zip(places, returns, strict=True):
        quarter = [picture[a : a + height, b : b + width] for picture in shown]
        np.testing.assert_array_equal(quarter[0], shown[0][:height, :width])  # all begin alike
        moves = [bool((x != y).any()) for x, y in pairwise(quarter)]
        assert any(moves[: int(returned)]) and not any(moves[int(returned) :])


def test_in_a_window(run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """Which shows every frame, and ends it all when it is closed."""
    run, shown = run_of("gymnax:CartPole-v1"), list[np.ndarray]()
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    if sys.platform == "linux":
        with pytest.raises(BadInput) as error:
            play(run, None)
        said(error.value)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    flip = pygame.display.flip

    def watched() -> None:
        flip()
        shown.append(pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1))
        if len(shown) in (12, 13):
            pygame.event.post(pygame.event.Event(pygame.QUIT))

    monkeypatch.setattr(pygame.display, "flip", watched)
    (returned,) = play(run, None, 2)
    assert returned < 11, "the window is closed in the second episode"
    assert len(shown) == 12 and any((a != b).any() for a, b in pairwise(shown))
    assert not pygame.display.get_init()
    assert shoal("play", run, "--live").out == f"{run}: closed before an episode had ended\n"


def test_where_pictures_stand() -> None:
    pictures = [np.full((3, 4, 3), i, np.uint8) for i in range(1, 8)]
    together = renderers.side_by_side(pictures)
    assert together.shape == (2 * (3 + 4), 4 * (4 + 4), 3)
    corners = together[3::7, 4::8]
    np.testing.assert_array_equal(corners[..., 0], [[1, 2, 3, 4], [5, 6, 7, 0]])
    shapes = {n: renderers.side_by_side(pictures[:1] * n).shape[:2] for n in (2, 4, 8, 16)}
    assert shapes == {2: (7, 16), 4: (14, 16), 8: (14, 32), 16: (28, 32)}
    np.testing.assert_array_equal(renderers.side_by_side(pictures[:1]), pictures[0])
    assert renderers.side_by_side([np.zeros((1000, 1500, 3), np.uint8)] * 4).shape[1] <= renderers.WIDEST


def test_a_population_of_which_nothing_is_saved(run_of: Callable[..., Path], tmp_path: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        play(run_of("gymnax:CartPole-v1"), tmp_path / "video.mp4", population=True)
    said(error.value)
    with pytest.raises(BadInput) as error:
        play(tmp_path / "run", tmp_path / "video.html", population=True)
    said(error.value)
    with pytest.raises(BadInput) as error:
        play(tmp_path / "run", tmp_path / "video.mp4", population=True, member=3)
    said(error.value)


def test_the_same_seed_gives_the_same_episodes(run_of: Callable[..., Path], tmp_path: Path) -> None:
    run = run_of("gymnax:Pendulum-v1")
    same = [play(run, tmp_path / f"{i}.mp4", 1, seed) for i, seed in enumerate((1, 1, 2))]
    assert same[0] == same[1] != same[2]


def test_what_is_no_video(said: Said, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        play(tmp_path, tmp_path / "video.avi")
    said(error.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: Said) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput) as error:
        play(tmp_path, tmp_path / "video.mp4", 1, 0)
    said(error.value)


@pytest.mark.slow
def test_a_host_environment_is_drawn_as_it_is_seen() -> None:
    """Six times as large, at the levels that were asked for."""
    pytest.importorskip("envpool")
    environment = rendered("envpool:bigfish", {"distribution_mode": "easy"}, Span(7, 8))()
    seen = [environment.reset((seed,)) for seed in (1, 2)]
    np.testing.assert_array_equal(*seen)
    obs, reward, done = environment.step(np.int32(4))
    assert obs.shape == (3, 64, 64) and isinstance(reward, float) and not done
    np.testing.assert_array_equal(environment.render(), obs.transpose(1, 2, 0).repeat(6, 0).repeat(6, 1))
    environment.close()


def test_a_game_of_atari_is_as_quick_as_on_the_console() -> None:
    """It has 60 frames a second, of which a step is several; ale-py says 30."""
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    for options, rate in (({"frameskip": 2}, 30), ({"obs_type": "ram"}, 15), ({"obs_type": "rgb", "frameskip": 3}, 20)):
        environment = rendered("gym:ALE/Pong-v5", options, None)()
        assert environment.rate == rate
        environment.close()


def test_envpools_bodies_are_drawn_by_gymnasium() -> None:
    pytest.importorskip("envpool")
    pytest.importorskip("mujoco")
    environment = rendered("envpool:HalfCheetah-v5", {"num_threads": 1}, None)()
    assert isinstance(environment, RenderedGymnasium)
    environment.close()


def test_a_class_of_ones_own_draws_itself(said: Said) -> None:
    """As gymnasium draws it, also at levels, where the class can be told to; and where it cannot, that is said."""
    renderers.need_no_screen()
    own = rendered(CARTPOLE, {}, None)()
    registered = rendered("gym:CartPole-v1", {"render_mode": "human"}, None)()  # a run may have been watched
    for environment in (own, registered):
        environment.reset((3,))
    np.testing.assert_array_equal(own.render(), registered.render())
    assert own.render().std() > 5 and own.rate == registered.rate
    levels = [rendered(name, {}, Span(7, 8))() for name in ("gym:CartPole-v1", CARTPOLE)]
    np.testing.assert_array_equal(*(environment.reset((3,)) for environment in levels))
    for environment in (own, registered, *levels):
        environment.close()
    blind = rendered(f"{__name__}:Blind", {}, None)()
    blind.reset((3,))
    with pytest.raises(BadInput) as error:
        blind.render()
    said(error.value)


def test_the_legal_choices_of_an_info_reach_the_policy(run_of: Callable[..., Path], tmp_path: Path) -> None:
    """As in training: the environment raises an error at others."""
    (total,) = play(run_of(f"{__name__}:Grey"), tmp_path / "video.mp4", 1, 0, trust_code=True)
    assert np.isfinite(total) and len(frames(tmp_path / "video.mp4")) == 9


@pytest.mark.parametrize("env", [match, host_environment])
def test_what_cannot_be_drawn(env: Any, run_of: Callable[..., Path], tmp_path: Path, said: Said) -> None:
    with pytest.raises(BadInput) as error:
        play(run_of(env), tmp_path / "video.mp4", 1, 0, trust_code=True)
    said(error.value)
    assert not (tmp_path / "video.mp4").exists()


def test_a_machine_that_cannot_draw(
    run_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    from gymnasium.envs.classic_control.cartpole import CartPoleEnv

    def fail(self: Any) -> None:
        raise RuntimeError("no OpenGL")

    monkeypatch.setattr(CartPoleEnv, "render", fail)
    with pytest.raises(BadInput) as error:
        play(run_of("gymnax:CartPole-v1"), tmp_path / "video.mp4", 1, 0)
    said(error.value)


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (np.full((2, 3, 3), 7, np.uint8), [7, 7, 7]),
        (np.full((2, 3, 3), 7, np.int64), [7, 7, 7]),
        (np.full((2, 3), 255, np.uint8), [255, 255, 255]),
        (np.full((2, 3, 1), 9, np.int32), [9, 9, 9]),
        (np.uint8([[[1, 2, 3, 4]] * 3] * 2), [1, 2, 3]),
    ],
)
def test_what_can_be_a_picture(drawn: np.ndarray, expected: list[int]) -> None:
    picture = renderers.picture_of(SimpleNamespace(render=lambda: drawn))
    assert picture.shape == (2, 3, 3) and picture.dtype == np.uint8 and (picture == expected).all()


@pytest.mark.parametrize(
    "drawn",
    [
        None,
        [np.zeros((2, 3, 3), np.uint8)],
        np.zeros((2, 3, 3)),
        np.full((2, 3, 3), 256),
        np.full((2, 3, 3), -1),
        np.zeros((3, 2, 7), np.uint8),
        np.zeros((0, 2, 3), np.uint8),
        np.uint8(3),
    ],
    ids=["nothing", "list", "float64", "256", "-1", "seven colours", "no rows", "a number"],
)
def test_what_is_no_picture(drawn: Any, said: Said) -> None:
    with pytest.raises(BadInput) as caught:
        renderers.picture_of(SimpleNamespace(render=lambda: drawn))
    said(caught.value)


@pytest.mark.parametrize("name", ["video.gif", "video.mp4"])
def test_pictures_that_change_their_size(name: str, tmp_path: Path, said: Said) -> None:
    pictures = [np.zeros((height, 16, 3), np.uint8) for height in (16, 32)]
    with pytest.raises(BadInput) as error, video_file(tmp_path / name, 10.0) as append:
        for picture in pictures:
            append(picture)
    said(error.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(BadInput) as error:
        renderers.side_by_side(pictures)
    said(error.value)


def test_a_policy_forgets_between_episodes(
    run_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[Any] = []

    def predict(self: Any, obs: Any, state: Any, deterministic: bool) -> Any:
        states.append(state)
        return np.zeros(1, np.float32), len(states)

    run = run_of("gymnax:Pendulum-v1", step_limit=2)
    monkeypatch.setattr(champion.Champion, "predict", predict)
    play(run, tmp_path / "video.gif", 2, 0)
    assert states == [None, 1, None, 3]


def test_a_failure_leaves_no_half_video(
    run_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("stop")

    run = run_of("gymnax:Pendulum-v1")
    monkeypatch.setattr(champion.Champion, "predict", fail)
    with pytest.raises(RuntimeError, match="stop"):
        play(run, tmp_path / "videos" / "video.mp4", 1, 0)
    assert list((tmp_path / "videos").iterdir()) == []


def test_the_command(run_of: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = tmp_path / "video.mp4"
    with pytest.raises(SystemExit) as stop:
        main(["play", str(run_of("gymnax:CartPole-v1")), "--video", str(video), "--episodes", "2"])
    assert stop.value.code == 0 and video.stat().st_size > 1000
    assert "video.mp4" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["play", str(tmp_path / "nothing"), "--video", str(video)])
    assert stop.value.code == 2
