"""Views of dictionary observations: the arrays that a network sees, concatenated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from shoal.core.errors import BadField
from shoal.core.spec import MASK, PLAYER, describe
from shoal.rl.networks import flatten, scaled
from shoal.rl.normalize import empty, normalize, update_statistics

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree


class View:
    """The view that one network has of observations: the array itself, or some arrays of a dictionary, concatenated.

    Several arrays are flattened, as float32, those of uint8 divided by 255, and stand one behind another in the order of
    the keys. A single one stays as it is.

    keys: those of the dictionary that are seen; () where observations are one array
    spec: with the one array that is seen, in place of the dictionary
    """

    keys: tuple[str, ...] = ()

    def __init__(self, spec: Spec, field: str, chosen: Sequence[str], default: Sequence[str]):
        """chosen: the keys that the `field` of the experiment names; default: those where it names none. Raises BadInput."""
        self._leaves, self.spec = spec.obs, spec
        if not isinstance(self._leaves, dict):
            if chosen:
                problem = "observations of this environment are one array, without keys"
                raise BadField(field, problem, "leave it out", value=list(chosen))
            return
        for i, key in enumerate(chosen):
            if key not in self._leaves or key in chosen[:i]:
                problem = "is there twice" if key in self._leaves else "is no key of the observations"
                raise BadField(field, problem, f"there are {describe(self._leaves)}", name=key)
        unseen = ({MASK} if spec.masked else set()) | ({PLAYER} if spec.turns else set())
        self.keys = tuple(chosen or default or sorted(self._leaves.keys() - unseen))
        first, *others = (self._leaves[key] for key in self.keys)
        shape, dtype = first.shape, first.dtype
        if others:
            shape, dtype = (sum(math.prod(x.shape) for x in (first, *others)),), "float32"
        self.spec = replace(spec, obs_shape=shape, obs_dtype=dtype, actor=(), critic=())

    def look(self, obs: PyTree) -> jax.Array:
        """Select from observations [..., *] what is seen, [..., *spec.obs_shape]; other keys may be missing."""
        if not isinstance(self._leaves, dict):
            return obs
        if len(self.keys) == 1:
            return obs[self.keys[0]]
        return jnp.concatenate([flatten(obs[key], self._leaves[key].shape) for key in self.keys], -1)

    def vector(self, obs: PyTree) -> jax.Array:
        """Return observations as float32 vectors [..., F]."""
        return flatten(self.look(obs), self.spec.obs_shape)

    def with_action(self, obs: PyTree, action: jax.Array) -> jax.Array:
        """Concatenate `vector` and the actions [..., A], as critics of both see them: [..., F + A]."""
        return jnp.concatenate([self.vector(obs), action], -1)

    def normalised(self, statistics: PyTree, obs: PyTree) -> jax.Array:
        """Return normalised observations, each array by its own statistics."""
        if self.keys:
            statistics, obs = ({key: x[key] for key in self.keys} for x in (statistics, obs))
        return self.look(jax.tree.map(lambda x, of: normalize(of, scaled(x)), obs, statistics))


def empty_statistics(spec: Spec) -> PyTree:
    """Empty `Statistics` of every array of an observation."""
    return jax.tree.map(lambda x: empty(x.shape), spec.obs)


def update_all_statistics(statistics: PyTree, obs: PyTree, counts: jax.Array) -> PyTree:
    """Add to the statistics of every array those observations [A, B, ...] that `counts` [A, B] marks."""
    return jax.tree.map(lambda x, of: update_statistics(of, scaled(x), counts), obs, statistics)
