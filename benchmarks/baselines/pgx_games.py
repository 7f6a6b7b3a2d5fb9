"""pgx's games, as `benchmarks/games.py` asks for them: prints a line of JSON with what `random_play` returns.

`random_play` is the measurement of both sides: games side by side under vmap, moves under scan, one compiled function on one
core. Seconds are those of the processor.

Needs jax, and for its own games pgx.

    python benchmarks/baselines/pgx_games.py --game kuhn --batch 1024
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

NAMES = {"kuhn": "kuhn_poker", "leduc": "leduc_holdem", "tic_tac_toe": "tic_tac_toe"}  # of the games that both have
MOVES = 1 << 20  # of all games together in a call; but no game makes more than these:
LONGEST = 1 << 14


def on_one_core() -> None:
    """Bind this process to one core; to be called before JAX starts."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


def random_play(reset: Callable, step: Callable, legal: Callable, games: int, seconds: float) -> dict[str, float]:
    """Moves per second of all games together, by uniformly random legal play; seconds of compiling; mean moves per game.

    reset: (key) -> position, with what the player to move observes
    step:  (key, position, action) -> (position, reward, over), where a new game begins as one is over
    legal: (position) -> bool [A]
    """

    @partial(jax.jit, donate_argnums=1)
    def play(key: jax.Array, positions: Any) -> tuple[Any, ...]:
        def moves(positions: Any, key: jax.Array) -> tuple[Any, ...]:
            draw, luck = jax.random.split(key)
            mask = jax.vmap(legal)(positions)
            action = jnp.argmax(jnp.where(mask, jax.random.uniform(draw, mask.shape), -1), -1)
            positions, reward, over = jax.vmap(step)(jax.random.split(luck, games), positions, action)
            return positions, (reward.sum(), over.sum())

        positions, (rewards, over) = jax.lax.scan(moves, positions, jax.random.split(key, length))
        return positions, rewards.sum(), over.sum()

    on_one_core()
    length = min(LONGEST, MOVES // games)
    positions, times, ended = jax.jit(jax.vmap(reset))(jax.random.split(jax.random.key(0), games)), [], 0
    while len(times) < 4 or sum(times[1:]) < seconds:
        key, began = jax.random.key(len(times)), time.process_time()
        positions, _, over = jax.block_until_ready(play(key, positions))
        times.append(time.process_time() - began)
        ended += int(over)
    each = statistics.median(times[1:])
    return {
        "moves_per_second": games * length / each,
        "compile": times[0] - each,
        "moves_per_game": games * length * len(times) / ended,
    }


def of_pgx(game: str, games: int, seconds: float) -> dict[str, float]:
    """Random play of one of pgx's games, with its own automatic reset."""
    import pgx
    from pgx.experimental import auto_reset

    env = pgx.make(NAMES[game])
    next_state = auto_reset(env.step, env.init)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        state = next_state(state, action, key)
        return state, state.rewards[0], state.terminated

    return random_play(env.init, step, lambda state: state.legal_action_mask, games, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=NAMES, default="kuhn", help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1024, help="games side by side (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="to be measured (default: %(default)s)")
    options = parser.parse_args()
    print(json.dumps(of_pgx(options.game, options.batch, options.seconds)))


if __name__ == "__main__":
    main()
