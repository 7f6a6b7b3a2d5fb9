"""Games as environments on the device: the players move in turn, and the tables are looked up.

An observation has three parts: what the player to move knows, which of its actions are legal, and which player it is. A
reward is that of player 0, and comes at the end. Chance moves with the player before it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.errors import unknown
from shoal.core.schema import build
from shoal.core.spec import MASK, PLAYER, Discrete, Spec
from shoal.core.types import PyTree
from shoal.environments.device import DeviceEnvironment
from shoal.environments.games.boards import Connect, TicTacToe
from shoal.environments.games.liars_dice import LiarsDice
from shoal.environments.games.poker import Kuhn, Leduc
from shoal.environments.games.tree import CHANCE, OVER, GameTree, Tables, check, tabulate

GAMES: dict[str, Any] = {
    "kuhn": Kuhn,
    "leduc": Leduc,
    "liars_dice": LiarsDice,
    "tic_tac_toe": TicTacToe,
    "connect": Connect,
}


def make_game(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """A game of ours. Raises BadInput where there is no such game, or it has no such options."""
    if name not in GAMES:
        raise unknown("env", name, GAMES)
    return of_game(build(GAMES[name], options, "env_options."), f"game:{name}")


def of_game(game: GameTree | Tables, env: str = "the game") -> DeviceEnvironment:
    """The environment of a game, or of its tables. Raises BadInput, which names it as `env`, where they are wrong."""
    tables = game if isinstance(game, Tables) else tabulate(game, env)
    check(tables, env)
    player, child, payoff, sets, information_state, legal, until = map(jnp.asarray, _for_steps(tables))
    at_start, after_move = _most_in_a_row(tables)
    shape = {"information_state": tables.information_state.shape[1:], MASK: tables.legal.shape[1:], PLAYER: ()}
    spec = Spec(shape, "float32", Discrete(tables.legal.shape[1]))

    def observe(node: jax.Array) -> PyTree:
        row = sets[node]
        return {
            "information_state": information_state[row],
            MASK: legal[row],
            PLAYER: (player[node] == 1).astype(jnp.float32),
        }

    def after_chance(key: jax.Array, node: jax.Array, most: int) -> jax.Array:
        for luck in jax.random.uniform(key, (most,)):
            outcome = (luck >= until[node]).sum(dtype=jnp.int32)
            node = jnp.where(player[node] == CHANCE, child[node, outcome], node)
        return node

    def reset(key: jax.Array) -> tuple[PyTree, jax.Array]:
        node = after_chance(key, jnp.int32(0), at_start)
        return observe(node), node

    def step(key: jax.Array, node: jax.Array, action: jax.Array) -> tuple[Any, ...]:
        node = after_chance(key, child[node, action], after_move)
        return observe(node), node, payoff[node], player[node] == OVER, jnp.bool_(False)

    return DeviceEnvironment(spec, reset, step, game=tables)


def knowledge(tables: Tables) -> PyTree:
    """The observations of all information sets, [I, ...]."""
    float32 = (x.astype(np.float32) for x in (tables.information_state, tables.legal, tables.mover))
    return dict(zip(("information_state", MASK, PLAYER), float32, strict=True))


def _for_steps(tables: Tables) -> tuple[np.ndarray, ...]:
    """The arrays that steps look up, in 32 bits, with an information set that sees nothing for games that are over."""
    nothing = [(0, 1), (0, 0)]
    information_state, legal = (np.pad(x.astype(np.float32), nothing) for x in (tables.information_state, tables.legal))
    # Outcome c comes where luck is at least the first c of these; no luck is as large as the last one of an actual outcome.
    until = np.cumsum(tables.chance, -1).astype(np.float32)
    until[until > 1 - 1e-6] = 2
    return (
        tables.player,
        tables.child,
        tables.payoff.astype(np.float32),
        tables.information_set,
        information_state,
        legal,
        until,
    )


def _most_in_a_row(tables: Tables) -> tuple[int, int]:
    """The most moves of chance, one directly after another, at the start and after a move of a player."""
    chance = tables.player == CHANCE
    row = chance.astype(int)
    for first, end in reversed(tables.levels):
        child = tables.child[first:end]
        row[first:end] *= 1 + np.where(child > 0, row[child], 0).max(-1)
    after = tables.child[tables.player >= 0]
    return int(row[0]), int(row[after[after > 0]].max(initial=0))
