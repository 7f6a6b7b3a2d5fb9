"""Helpers for pytrees, most of them for leaves that carry a leading member axis N."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.types import PyTree


def take(tree: PyTree, rows: Any) -> PyTree:
    """Select the members at `rows`: an index array [K] gives leaves [K, ...], a number gives one member."""
    return jax.tree.map(lambda x: x[rows], tree)


def where(mask: Any, yes: PyTree, no: PyTree) -> PyTree:
    """Take `yes` where mask, else `no`; the mask has the leading axes of every leaf. NumPy arrays stay NumPy arrays."""

    def choose(a: Any, b: Any) -> Any:
        xp = np if all(isinstance(x, np.ndarray) for x in (mask, a, b)) else jnp
        return xp.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return jax.tree.map(choose, yes, no)


def finite(tree: PyTree, axes: int = 1) -> jax.Array:
    """Mark the members, bool [N], without NaN or infinity in any floating-point leaf."""

    def of(x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.ones(x.shape[:axes], bool)
        return jnp.isfinite(x).reshape(*x.shape[:axes], -1).all(-1)

    return jnp.stack([of(x) for x in jax.tree.leaves(tree)]).all(0)


def zeros(shapes: PyTree, *leading: int) -> PyTree:
    """Make zeros of these shapes and dtypes (of `jax.eval_shape`), with `leading` axes before them."""
    return jax.tree.map(lambda x: jnp.zeros((*leading, *x.shape), x.dtype), shapes)


def size_in_bytes(tree: PyTree) -> int:
    """Sum the memory of all leaves; works on shapes alone (`jax.eval_shape`)."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
