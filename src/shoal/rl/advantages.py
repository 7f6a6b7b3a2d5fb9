"""Returns and advantages of a rollout."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import Array


def next_values(value: Array, bootstrap_value: Array, terminated: Array, truncated: Array) -> jax.Array:
    """Values [T, B] after each step: that of the next one, `bootstrap_value` where the episode is truncated and after the
    last step, and 0 where it terminates. All arguments are [T, B]."""
    following = jnp.concatenate([value[1:], bootstrap_value[-1:]])
    following = jnp.where(truncated, bootstrap_value, following)
    return jnp.where(terminated, 0.0, following)


def generalised_advantages(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    discount: Array,
    trace: Array,
) -> jax.Array:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, equation 16).

    All of [T, B] but `discount` and `trace` (lambda), scalars. `next_value` is the value of the observation before any
    automatic reset: a termination does not bootstrap from it, a truncation does; both cut the trace.
    Returns the advantages [T, B]; the value targets are advantages + value.
    """
    delta = reward + discount * next_value * (1 - terminated) - value
    keep = discount * trace * (1 - jnp.maximum(terminated, truncated))

    def backwards(advantage: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, keep = step
        advantage = delta + keep * advantage
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, keep), reverse=True, unroll=8)[1]


def advantages_in_turns(
    reward: Array,
    value: Array,
    bootstrap_value: Array,
    ends: Array,
    player: Array,
    discount: Array,
    trace: Array,
) -> jax.Array:
    """Generalised advantage estimation where two players take turns, and one loses what the other wins.

    The steps of a player are its own moves: from one to its next, or to the end of the game, it collects all rewards, and
    discounts once. Arguments are [T, B], `bootstrap_value` [B], and scalars. Returns the advantages [T, B].

    reward: of player 0. value: of the player that moves, as the advantages. bootstrap_value: of player 0 after the last step
    """
    sign = 1 - 2 * player

    def backwards(later: tuple[Any, ...], step: tuple[Any, ...]) -> tuple[Any, jax.Array]:
        """later: for each player [2, B] the rewards before its next move, the value there and its advantage, all of
        player 0."""
        reward, value, ends, player = (jnp.stack([x, x]) for x in step)
        rewards, next_value, next_advantage = (x * (1 - ends) for x in later)
        rewards = rewards + reward
        advantage = rewards + discount * next_value - value + discount * trace * next_advantage
        moves = jnp.stack([player[0] == 0, player[1] == 1])
        later = tree.where(moves, (0 * rewards, value, advantage), (rewards, next_value, next_advantage))
        return later, jnp.where(moves[0], advantage[0], advantage[1])

    nothing = jnp.zeros((2, *bootstrap_value.shape))
    last = nothing, jnp.stack([bootstrap_value, bootstrap_value]), nothing
    steps = reward, value * sign, ends, player
    return sign * jax.lax.scan(backwards, last, steps, reverse=True)[1]
