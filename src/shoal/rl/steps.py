"""Which steps can be learned from."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import Rollout

LARGEST = 1e15  # of numbers in a step: their returns, and sums of squares of those, still fit into float32


def usable(rollout: Rollout) -> jax.Array:
    """bool [T, B]: every number of a step is finite, and none is beyond `LARGEST`."""
    axes = rollout.reward.shape
    leaves = [x for x in jax.tree.leaves(rollout) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([(jnp.abs(x) <= LARGEST).reshape(*axes, -1).all(-1) for x in leaves]).all(0)


def without(rollout: Rollout, left_out: jax.Array) -> Rollout:
    """The rollout with zeros in place of the steps that are `left_out` [T, B]; what came before them is cut off there."""
    nothing = jax.tree.map(jnp.zeros_like, rollout)._replace(truncated=jnp.ones_like(rollout.truncated))
    return tree.where(left_out, nothing, rollout)
