"""Environments of jumanji, whose levels are generated from keys: those whose observation can be one picture, with a mask of
the legal actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.core.errors import check_names
from shoal.core.spec import MASK, Discrete
from shoal.core.types import PyTree
from shoal.environments.device import DeviceEnvironment, accepted, adapted, quiet


class Game(NamedTuple):
    """Description of how an environment becomes one of Shoal.

    make: (module jumanji.environments, options) -> the environment; its parameters are the options
    picture: (observation) -> float32 [rows, columns, C]
    """

    make: Callable[..., Any]
    picture: Callable[[Any], jax.Array]


def _maze(environments: Any, num_rows: int = 10, num_cols: int = 10, time_limit: int | None = None) -> Any:
    generator = environments.maze.generator.RandomGenerator(num_rows, num_cols)
    return environments.Maze(generator, time_limit)


def _snake(environments: Any, num_rows: int = 12, num_cols: int = 12, time_limit: int = 4000) -> Any:
    return environments.Snake(num_rows, num_cols, time_limit)


def _of_maze(obs: Any) -> jax.Array:
    """Planes of walls, agent and target."""

    def plane(position: Any) -> jax.Array:
        rows, columns = jnp.indices(obs.walls.shape)
        return (rows == position.row) & (columns == position.col)

    return jnp.stack([obs.walls, plane(obs.agent_position), plane(obs.target_position)], -1).astype(jnp.float32)


def _seen(game: Game, obs: Any) -> dict[str, jax.Array]:
    """An observation as agents get it."""
    return {"picture": game.picture(obs), MASK: obs.action_mask}


GAMES = {"Maze-v0": Game(_maze, _of_maze), "Snake-v1": Game(_snake, lambda obs: obs.grid.astype(jnp.float32))}


def jumanji_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of jumanji. Options: `num_rows`, `num_cols` and `time_limit`.

    Jumanji does not tell a time limit from an end. Here an episode that has reached it is truncated.
    """
    game = GAMES[name]
    check_names("env_options", options, list(inspect.signature(game.make).parameters)[1:])
    with quiet():
        from jumanji import environments

    def reset(env: Any, key: jax.Array) -> tuple[PyTree, PyTree]:
        state, first = env.reset(jax.random.key_data(key))  # it keeps keys as plain numbers
        return _seen(game, first.observation), state

    def step(env: Any, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        state, now = env.step(state, action)
        over, late = now.last(), state.step_count >= env.time_limit
        truncated = over & (late | (now.discount > 0))
        return _seen(game, now.observation), state, now.reward, over & ~truncated, truncated

    with accepted(f"jumanji:{name}", options):
        env = game.make(environments, **options)
        actions, limit = Discrete(int(env.action_spec.num_values)), int(env.time_limit)
    # To generate a level takes as long as dozens of steps.
    return adapted(f"jumanji:{name}", options, env, reset, step, actions, None, fresh_resets=False, episode_limit=limit)
