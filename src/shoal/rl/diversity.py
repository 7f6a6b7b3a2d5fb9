"""How different policies behave: the volume that their behaviours span (Parker-Holder et al. 2020, arXiv 2002.00632).

A policy's embedding is what it does in some states (section 3.1). Distances are means over its entries, not sums, so that
the kernel is as wide for long embeddings as for short ones: with actions in [-1, 1] it lies between 1 and exp(-2).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

JITTER = 1e-4  # share of the identity in the kernel: between equal policies its determinant is small, but not 0


def squared_distances(embeddings: jax.Array) -> jax.Array:
    """Mean squared differences of embeddings [N, D]: [N, N]. Infinite to those that are not finite."""
    sound = jnp.isfinite(embeddings).all(-1)
    known = jnp.where(sound[:, None], embeddings, 0.0)
    squared = jnp.square(known[:, None] - known[None]).mean(-1)
    comparable = (sound[:, None] & sound[None]) | jnp.eye(len(sound), dtype=bool)
    return jnp.where(comparable, squared, jnp.inf)


def kernel(squared: jax.Array) -> jax.Array:
    """The squared exponential kernel (equation 5) of squared distances [N, N], with ones on its diagonal."""
    return (1 - JITTER) * jnp.exp(-squared / 2) + JITTER * jnp.eye(len(squared))


def log_determinant(kernel: jax.Array) -> jax.Array:
    """Of a kernel [N, N]: 0 where all differ, and never less than (N - 1) log(JITTER), where all are the same.

    By elimination, and not by LAPACK, whose last bits differ with environment variables.
    """

    def eliminate(rest: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        row = rest[i]
        return rest - row[:, None] * (row / row[i])[None], row[i]

    pivots = jax.lax.scan(eliminate, kernel, jnp.arange(len(kernel)))[1]
    return jnp.log(pivots).sum()
