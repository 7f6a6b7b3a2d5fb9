"""Filming a champion, or a population: whole episodes, drawn frame by frame."""

from __future__ import annotations

import importlib.util
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shoal.commands.rendered import Rendered, open_rendered
from shoal.commands.renderers import EXTRA, need_no_screen
from shoal.core.atomic import absolute, write_file
from shoal.core.backend import on_jax
from shoal.core.errors import BadInput
from shoal.core.interrupts import interruptible
from shoal.core.keys import derive
from shoal.run.champion import Champion, load_champion, load_members

WIDEST = 960  # pixels of a film in which several play side by side


@on_jax()
def film(
    run: Path, video: Path, episodes: int = 1, seed: int = 0, trust_code: bool = False, population: bool = False
) -> list[float]:
    """Film the champion of a run; `video` ends in .mp4 or .gif, or in .html for bodies of brax. Returns what the episodes
    returned.

    population: film all members instead, side by side in the same episodes; returns what each of them returned on average.
    Raises BadInput.
    """
    run, video = absolute(run), absolute(video)
    suffix = video.suffix.lower()
    as_page = suffix == ".html"
    if episodes < 1:
        raise BadInput(f"--episodes {episodes}: must be at least 1")
    if seed < 0:
        raise BadInput(f"--seed {seed}: must be at least 0")
    if suffix not in (".mp4", ".gif", ".html"):
        raise BadInput(f"--video {video}: the film must end in .mp4 or .gif, or in .html for bodies of brax")
    if population and as_page:
        raise BadInput(f"--video {video}: a page shows one body; write .mp4 or .gif")
    for package in () if as_page else ("imageio", "imageio_ffmpeg"):
        if importlib.util.find_spec(package) is None:
            raise BadInput(f"films need the package {package.replace('_', '-')}: {EXTRA}")
    need_no_screen()
    players = load_members(run, trust_code) if population else [load_champion(run, trust_code)]
    e = players[0].experiment
    env = str(e.env)
    if players[0].policy.save is not None and ":" not in env:
        env = f"gym:{env}"  # which trainers know without it
    first = open_rendered(env, e.env_options, None if e.levels is None else e.levels.spans()["validation"], as_page)
    shown = [first]
    try:
        shown += [first.sibling() for _ in players[1:]]
        with interruptible() as attend, _writer(video, first) as write:
            keys = [derive((e.seed,), "play", seed, episode) for episode in range(episodes)]
            returns = [_episode(players, shown, key, write, attend) for key in keys]
    finally:
        for environment in shown:
            environment.close()
    return np.mean(returns, 0).tolist() if population else [x for (x,) in returns]


def _episode(
    players: Sequence[Champion],
    shown: Sequence[Rendered],
    key: Any,
    write: Callable[[Any], None],
    attend: Callable[[], None],
) -> list[float]:
    """One episode, the same for every player; who has ended it stands still until all have. Returns their returns."""
    for player in players:
        player.reset()
    seen = [environment.reset(key) for environment in shown]
    pictures = [environment.render() for environment in shown]
    write(side_by_side(pictures))
    totals, playing = [0.0] * len(players), list(range(len(players)))
    for _ in range(players[0].experiment.fitness.step_limit):
        for i in list(playing):
            attend()
            seen[i], reward, done = shown[i].step(players[i].act(seen[i]))
            pictures[i], totals[i] = shown[i].render(), totals[i] + reward
            if done:
                playing.remove(i)
        write(side_by_side(pictures))
        if not playing:
            break
    return totals


def side_by_side(pictures: Sequence[Any]) -> Any:
    """One picture [H, W, 3] of several [h, w, 3], in rows from left to right; of one alone, that one. Raises BadInput."""
    if len(pictures) == 1:
        return pictures[0]
    _check_sizes(pictures)
    columns = int(np.ceil(np.sqrt(len(pictures))))
    rows = -(-len(pictures) // columns)
    height, width, _ = pictures[0].shape
    every = -(-columns * width // WIDEST)
    empty = np.zeros((columns * rows - len(pictures), height, width, 3), np.uint8)
    grid = np.concatenate([np.stack(pictures), empty])[:, ::every, ::every]
    grid = np.pad(grid, ((0, 0), (2, 2), (2, 2), (0, 0)))  # a line between them
    height, width = grid.shape[1:3]
    return grid.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)


def _check_sizes(pictures: Sequence[np.ndarray]) -> None:
    """Raise BadInput where pictures of one film differ in their size."""
    sizes = dict.fromkeys("{1} x {0}".format(*picture.shape) for picture in pictures)
    if len(sizes) > 1:
        raise BadInput(f"the environment cannot be filmed: its pictures have {' and '.join(sizes)} pixels")


@contextmanager
def _writer(video: Path, environment: Rendered) -> Iterator[Callable[[Any], None]]:
    """A function that appends what an environment has drawn; the film gets its name when it is whole."""
    try:
        video.parent.mkdir(parents=True, exist_ok=True)
        if environment.page is None:
            with film_file(video, environment.rate) as append:
                yield append
        else:
            states: list[Any] = []
            yield states.append
            write_file(video, environment.page(states).encode())
    except OSError as error:
        raise BadInput(f"--video {video} cannot be written: {error}") from error


@contextmanager
def film_file(video: Path, rate: float) -> Iterator[Callable[[np.ndarray], None]]:
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
                _check_sizes([*first, picture])
                writer.append_data(picture)

            yield append
        temporary.replace(video)
    finally:
        temporary.unlink(missing_ok=True)
