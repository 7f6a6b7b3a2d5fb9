"""Running mean and variance, and what agents normalise with them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

CLIP = 10.0  # standard deviations from the mean


class Statistics(NamedTuple):
    """Mean and variance [...] of all values so far, and their number `total`."""

    mean: jax.Array
    variance: jax.Array
    total: jax.Array


def empty(shape: tuple[int, ...]) -> Statistics:
    """Statistics of no values: mean 0 and variance 1, which change nothing."""
    return Statistics(jnp.zeros(shape), jnp.ones(shape), jnp.float32(0))


def update_statistics(statistics: Statistics, batch: jax.Array, counts: jax.Array) -> Statistics:
    """Add those values of a batch [A, B, ...] that `counts` [A, B] marks (Chan et al. 1979, parallel variance)."""
    mask, n = counts.reshape(*counts.shape, *[1] * (batch.ndim - 2)), counts.sum().astype(jnp.float32)
    divisor = jnp.maximum(n, 1.0)

    def mean_of(x: jax.Array) -> jax.Array:
        return jnp.where(mask, x, 0.0).sum((0, 1)) / divisor

    mean = mean_of(batch)
    variance = mean_of(jnp.square(batch - jnp.broadcast_to(mean, batch.shape)))
    old, new = statistics.total / jnp.maximum(statistics.total + n, 1.0), n / jnp.maximum(statistics.total + n, 1.0)
    delta = mean - statistics.mean
    merged = Statistics(
        statistics.mean + delta * new,
        statistics.variance * old + variance * new + jnp.square(delta) * old * new,
        statistics.total + n,
    )
    return jax.tree.map(lambda new, old: jnp.where(n > 0, new, old), merged, statistics)


def normalize(statistics: Statistics, x: jax.Array) -> jax.Array:
    """Normalise to zero mean and unit variance, and clip."""
    mean, scale = statistics.mean, jax.lax.rsqrt(statistics.variance + 1e-8)
    return jnp.clip((x - jnp.broadcast_to(mean, x.shape)) * jnp.broadcast_to(scale, x.shape), -CLIP, CLIP)


def running_returns(
    carried: jax.Array, reward: jax.Array, done: jax.Array, discount: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Discounted sums of past rewards; rewards are scaled by their variance.

    carried [B]: the sums so far; reward and done [T, B]. Returns the sums to carry on [B], 0 after an episode's end, and
    the sum at each step [T, B].
    """

    def forwards(total: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, done = step
        total = total * discount + reward
        return total * (1 - done), total

    return jax.lax.scan(forwards, carried, (reward, done))
