"""Random keys: all of them derive from (seed, generation, uid, purpose), so none is ever stored.

A JAX key is used either for sampling or for child keys, and its children are either one for each purpose or numbered by one
index (iteration, member, step). `split(key)[i]` and `fold_in(key, i)` are the same child: two indices would collide.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.population import Seed
from shoal.core.types import PyTree

if TYPE_CHECKING:
    import jax

FAR = 1000  # uids that lie this far apart, or farther, are drawn by themselves
PLACES = 16  # bits of a place in `order`, at most; as many are left to be drawn, at least


def derive(key: Seed, *path: int | str) -> Seed:
    """Derive a key for each path of numbers and purposes."""
    return key + tuple(_number(p) if isinstance(p, str) else int(p) for p in path)


def draws(key: Seed, uid: np.ndarray, count: int) -> np.ndarray:
    """Draw uniform numbers in [0, 1), float64 [len(uid), count]. A member's row depends on (key, count, its uid) alone.

    There is one stream, in which each uid has a place of its own: a generator for each takes a hundred times as long.
    """
    rows, order, blocks = np.empty((len(uid), count)), np.argsort(uid), -(-count // 4)  # Philox makes four at a time
    seed = np.random.SeedSequence(_entropy(derive(key, count)))
    for near in np.split(order, np.flatnonzero(np.diff(uid[order]) > FAR) + 1) if len(uid) else []:
        first, last = int(uid[near[0]]), int(uid[near[-1]])
        stream = np.random.Generator(np.random.Philox(seed).advance(first * blocks))
        rows[near] = stream.random((last + 1 - first, 4 * blocks))[uid[near] - first, :count]
    return rows


def words(key: Seed, count: int) -> list[int]:
    """Draw `count` integers below 2**31, for libraries that take integers as seeds."""
    return [int(word) >> 1 for word in np.random.SeedSequence(_entropy(key)).generate_state(count)]


def jax_key(key: Seed) -> jax.Array:
    """Return the JAX key of a derived key."""
    return _of_words()(*words(key, 2))  # keys from a single 31-bit word would soon collide


@cache
def _of_words() -> Callable[[int, int], jax.Array]:
    """Compile the keys as one program: operation by operation, each takes half a millisecond."""
    import jax

    return jax.jit(of_words)


def of_words(first: Any, second: Any) -> jax.Array:
    """Make the JAX key of two of `words`."""
    import jax

    return jax.random.fold_in(jax.random.key(first), second)


def stream(keys: jax.Array, purpose: str) -> jax.Array:
    """Return the child of each JAX key [...] for a purpose."""
    return at(keys, np.uint32(_number(purpose)))


def at(keys: PyTree, number: Any) -> PyTree:
    """Return the child of each JAX key with this number; keys: a tree of leaves [...]."""
    import jax
    import jax.numpy as jnp

    leaves, structure = jax.tree.flatten(keys)
    flat = jnp.concatenate([x.reshape(-1) for x in leaves])
    parts = jnp.split(jax.vmap(jax.random.fold_in, (0, None))(flat, number), np.cumsum([x.size for x in leaves])[:-1])
    return jax.tree.unflatten(structure, [new.reshape(x.shape) for new, x in zip(parts, leaves, strict=True)])


def member_keys(key: jax.Array, uid: jax.Array) -> jax.Array:
    """Return one JAX key per member [N], which depends on (key, its uid) alone."""
    import jax

    return jax.vmap(jax.random.fold_in, (None, 0))(key, uid)


def environment_keys(key: jax.Array, uid: jax.Array, count: int) -> jax.Array:
    """Return one JAX key for each environment of every member, [N, count]."""
    import jax

    return jax.vmap(lambda key: jax.random.split(key, count))(member_keys(key, uid))


def order(key: jax.Array, count: int) -> jax.Array:
    """Shuffle the numbers below `count`, int32 [count].

    The place stands in the last bits of what is drawn, so that one array is sorted: on a CPU a sort of pairs, as
    `jax.random.permutation` makes it, takes five times as long. Of equal bits the lower place comes first.
    """
    import jax
    import jax.numpy as jnp

    if (bits := max(count - 1, 1).bit_length()) > PLACES:
        return jax.random.permutation(key, count)
    low = np.uint32((1 << bits) - 1)
    drawn = jax.random.bits(key, (count,)) & ~low | jnp.arange(count, dtype=jnp.uint32)
    return (jnp.sort(drawn) & low).astype(jnp.int32)


def _number(purpose: str) -> int:
    return zlib.crc32(purpose.encode())


def _entropy(key: Seed) -> Seed:
    # NumPy pads its entropy with zeros, so that (1,) and (1, 0) would be one stream; the length makes them differ.
    return (*key, len(key))
