"""Diversity of policies: the volume that their behaviours span (Parker-Holder et al. 2020, arXiv 2002.00632).

A policy's embedding is its actions in some states (section 3.1). Distances are means over its entries, not sums, so that
the kernel is as wide for long embeddings as for short ones: with actions in [-1, 1] it lies between 1 and exp(-2).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

JITTER = 1e-4  # share of the identity in the kernel: between equal policies its determinant is small, but not 0


def squared_distances(embeddings: jax.Array) -> jax.Array:
    """Mean squared differences of embeddings [N, D]: [N, N]. Infinite between an embedding that is not finite and others."""
    finite = jnp.isfinite(embeddings).all(-1)
    embeddings = jnp.where(finite[:, None], embeddings, 0.0)
    squared = jnp.square(embeddings[:, None] - embeddings[None]).mean(-1)
    comparable = (finite[:, None] & finite[None]) | jnp.eye(len(finite), dtype=bool)
    return jnp.where(comparable, squared, jnp.inf)


def kernel(squared: jax.Array) -> jax.Array:
    """The squared exponential kernel (equation 5) of squared distances [N, N], with ones on its diagonal."""
    return (1 - JITTER) * jnp.exp(-squared / 2) + JITTER * jnp.eye(len(squared))


def log_determinant(kernel: jax.Array) -> jax.Array:
    """The logarithm of the determinant of a kernel [N, N].

    0 where all members differ much; at least (N - 1) log(JITTER), where all are the same. Computed by elimination: the
    last bits of LAPACK's results depend on environment variables.
    """

    def eliminate(rest: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        row = rest[i]
        return rest - row[:, None] * (row / row[i])[None], row[i]

    pivots = jax.lax.scan(eliminate, kernel, jnp.arange(len(kernel)))[1]
    return jnp.log(pivots).sum()
