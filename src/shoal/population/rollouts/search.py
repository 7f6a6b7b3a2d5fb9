"""Measuring members that are drawn around a mean, some rows at a time: what both rollouts share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import Drawn, Member, Population

if TYPE_CHECKING:
    import jax


def chunks_of(members: int, most: int, multiple: int) -> tuple[int, int]:
    """How many chunks of how many rows hold the members and the mean: about `most` rows, a whole multiple."""
    count = -(-(members + 1) // most)
    return count, multiple * -(-(members + 1) // (multiple * count))


def actors_at(drawn: Drawn, population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array) -> Population:
    """The policies at rows [R], which act like members; `uid` [R] of their members."""
    mine = jnp.minimum(rows, population.hyper[0].shape[0] - 1)
    return Population(Member(drawn.actors(population, rows, uid, key), (), ()), (), tree.take(population.hyper, mine))
