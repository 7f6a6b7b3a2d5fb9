"""Measuring members that are sampled around a mean, some rows at a time, on the device and on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import Drawn, Member, Population

if TYPE_CHECKING:
    import jax


def chunks_of(members: int, size: int, multiple: int) -> tuple[int, int]:
    """The number of chunks, and of rows in each, for the members and the mean: about `size` rows, a whole `multiple`."""
    count = -(-(members + 1) // size)
    return count, multiple * -(-(members + 1) // (multiple * count))


def actors_at(drawn: Drawn, population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array) -> Population:
    """The policies at rows [R] as a population, so that they can act; uid [R]: those of their members."""
    mine = jnp.minimum(rows, population.hyper[0].shape[0] - 1)
    return Population(Member(drawn.actors(population, rows, uid, key), (), ()), (), tree.take(population.hyper, mine))
