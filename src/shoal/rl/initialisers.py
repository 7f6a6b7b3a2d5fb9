"""Initial weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


@functools.cache
def orthogonal(scale: float) -> Callable:
    """The orthogonal initialiser, uniform over all such matrices, by one reflection per row, or per column where there are
    fewer columns (Stewart 1980, doi 10.1137/0717034).

    Without LAPACK: its last bits depend on environment variables and threads, and its batches can hang on a CPU.
    Matrices are sampled one after another, with sums along the last axis, so that none depends on the size of the batch.
    """

    def draw(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        wide = shape[0] <= shape[1]

        def matrix(key: jax.Array) -> jax.Array:
            drawn = scale * _orthonormal(key, min(shape), max(shape))
            return (drawn if wide else drawn.T).astype(dtype)

        return jax.custom_batching.sequential_vmap(matrix)(key)

    return draw


@functools.partial(jax.jit, static_argnums=(1, 2))  # traced once for all networks of a process
def _orthonormal(key: jax.Array, rows: int, columns: int) -> jax.Array:
    """A random matrix with orthonormal rows, [rows, columns]; rows <= columns."""
    normal, column = jax.random.normal(key, (rows, columns)), jnp.arange(columns)

    def reflect(k: jax.Array, q: jax.Array) -> jax.Array:
        i = rows - 1 - k
        x = jnp.where(column >= i, normal[i], 0.0)
        sign = jnp.where(x[i] < 0, -1.0, 1.0)
        mirror = x.at[i].add(sign * jnp.sqrt(jnp.square(x).sum()))
        squares = jnp.square(mirror).sum()
        factor = jnp.where(squares > 0, 2 / squares, 0.0)
        q = q - factor * (q * mirror[None]).sum(-1, keepdims=True) * mirror[None]
        return q.at[i].multiply(-sign)

    return jax.lax.fori_loop(0, rows, reflect, jnp.eye(rows, columns))
