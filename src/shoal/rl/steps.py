"""Leaving out steps that cannot be learned from."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import Rollout

LARGEST = 1e15  # size of a number in a step: returns, and sums of their squares, still fit into float32


def usable(rollout: Rollout) -> jax.Array:
    """bool [T, B]: every number of a step is finite, and at most `LARGEST` in size."""
    axes = rollout.reward.shape
    leaves = [x for x in jax.tree.leaves(rollout) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([(jnp.abs(x) <= LARGEST).reshape(*axes, -1).all(-1) for x in leaves]).all(0)


def without(rollout: Rollout, left_out: jax.Array) -> Rollout:
    """The rollout with zeros in place of the steps that are `left_out` [T, B]; episodes are truncated there."""
    nothing = jax.tree.map(jnp.zeros_like, rollout)._replace(truncated=jnp.ones_like(rollout.truncated))
    return tree.where(left_out, nothing, rollout)
