"""Leaving out steps that cannot be learned from."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import PyTree, Rollout

LARGEST = 1e15  # size of a number in a step: returns, and sums of their squares, still fit into float32


def bounded(values: PyTree, axes: int) -> jax.Array:
    """bool over the leading axes: every number of such leaves is finite, and at most `LARGEST` in size."""
    leaves = jax.tree.leaves(values)
    floating = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    fits = [(jnp.abs(x) <= LARGEST).all(tuple(range(axes, x.ndim))) for x in floating]
    return functools.reduce(jnp.logical_and, fits, jnp.ones(leaves[0].shape[:axes], bool))


def usable(rollout: Rollout) -> jax.Array:
    """bool [T, B]: every number of a step is finite, and at most `LARGEST` in size."""
    return bounded(rollout._replace(carry=()), 2)


def without(rollout: Rollout, left_out: jax.Array) -> Rollout:
    """The rollout with zeros in place of numbers of the steps that are `left_out` [T, B]; episodes are truncated there."""

    def zeros(x: jax.Array) -> jax.Array:  # whole numbers cannot be unusable: images are not copied
        return tree.where(left_out, jnp.zeros_like(x), x) if jnp.issubdtype(x.dtype, jnp.floating) else x

    cleared = jax.tree.map(zeros, rollout._replace(carry=()))
    ends = {"terminated": rollout.terminated & ~left_out, "truncated": rollout.truncated | left_out}
    return cleared._replace(**ends, carry=rollout.carry)
