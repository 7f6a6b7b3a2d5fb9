"""Where randomness comes from: all of it derives from (seed, generation, uid, purpose), so none is ever stored."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import jax

    from shoal.types import Seed


def derive(key: Seed, *path: int | str) -> Seed:
    """A key of its own for each path of numbers and purposes."""
    return key + tuple(zlib.crc32(p.encode()) if isinstance(p, str) else int(p) for p in path)


def draws(key: Seed, uid: np.ndarray, count: int) -> np.ndarray:
    """Uniform numbers in [0, 1), float64 [len(uid), count]. A member's row depends on (key, its uid) alone."""
    rows = [np.random.default_rng(_entropy(derive(key, int(u)))).random(count) for u in uid]
    return np.stack(rows) if rows else np.empty((0, count))


def words(key: Seed, count: int) -> list[int]:
    """`count` whole numbers below 2**31, for whoever takes nothing but a seed."""
    return [int(word) >> 1 for word in np.random.SeedSequence(_entropy(key)).generate_state(count)]


def jax_key(key: Seed) -> jax.Array:
    """The JAX key of a derived key."""
    import jax

    return jax.random.key(words(key, 1)[0])


def member_keys(key: jax.Array, uid: jax.Array) -> jax.Array:
    """One JAX key per member [N], depending on (key, its uid) alone."""
    import jax

    return jax.vmap(jax.random.fold_in, (None, 0))(key, uid)


def _entropy(key: Seed) -> Seed:
    # NumPy pads its entropy with zeros, so that (1,) and (1, 0) would be one stream: the length tells them apart.
    return (*key, len(key))
