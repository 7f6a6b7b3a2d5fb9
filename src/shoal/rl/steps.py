"""Steps that cannot be learned from, and rollouts without them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import PyTree, Rollout

LARGEST = 1e15  # size of a number in a step: returns, and sums of their squares, still fit into float32


def is_bounded(values: PyTree, axes: int) -> jax.Array:
    """Mark, over the leading axes, where all numbers are finite and at most `LARGEST` in size."""
    leaves = jax.tree.leaves(values)
    floating = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    fits = [(jnp.abs(x) <= LARGEST).all(tuple(range(axes, x.ndim))) for x in floating]
    return functools.reduce(jnp.logical_and, fits, jnp.ones(leaves[0].shape[:axes], bool))


def valid_steps(rollout: Rollout) -> jax.Array:
    """Mark the steps, bool [T, B], whose numbers are finite and at most `LARGEST` in size."""
    return is_bounded(rollout._replace(carry=()), 2)


def mask_steps(rollout: Rollout, left_out: jax.Array) -> Rollout:
    """Replace the numbers of steps that are `left_out` [T, B] by zeros, and truncate episodes there."""

    def zeros(x: jax.Array) -> jax.Array:  # integers cannot be unusable: images are not copied
        return tree.where(left_out, jnp.zeros_like(x), x) if jnp.issubdtype(x.dtype, jnp.floating) else x

    cleared = jax.tree.map(zeros, rollout._replace(carry=()))
    ends = {"terminated": rollout.terminated & ~left_out, "truncated": rollout.truncated | left_out}
    return cleared._replace(**ends, carry=rollout.carry)
