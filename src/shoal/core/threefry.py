"""JAX's random bits on a CPU with a loop where it pays: the same bits, and programs that run and compile sooner.

JAX makes them there in a loop of five rounds of a dozen kernels each. Where a few numbers are drawn, as in a step of a small
environment, these take longer to start than to run: in one piece the compiler fuses them into one kernel, with what is made
of the bits. Where many are drawn, that kernel would be computed again by everything that uses them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

ROTATIONS = np.array([[13, 15, 26, 6], [17, 29, 16, 24]], np.uint32)  # of odd and of even groups of rounds
PARITY = np.uint32(0x1BD11BDA)
FEW = 1024  # numbers that are drawn in one piece
# A key that is made in the loop that draws with it: LLVM follows each path through its rounds, in some programs for ever.
# From 0.11 on JAX can make it apart. 0.10 forgets that too early, and then does not end with others.
APART = jax.__version_info__ >= (0, 11)
Words = tuple[jax.Array, jax.Array]


def few_in_one_piece() -> None:
    """Compile JAX's random bits on a CPU without a loop from now on, where they are few."""
    mlir.register_lowering(threefry2x32_p, mlir.lower_fun(threefry, multiple_results=True), platform="cpu")


def threefry(key: jax.Array, other: jax.Array, first: jax.Array, second: jax.Array) -> Words:
    """Threefry-2x32 of 20 rounds: two words of a key and two of a counter, uint32 [...], make two of random bits.

    Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3, section 4.1.
    """
    if APART:
        key, other = jax.lax.optimization_barrier((key, other))
    keys = key, other, key ^ other ^ PARITY
    state = first + key, second + other
    if state[0].size > FEW:

        def group(i: jax.Array, carry: Any) -> Any:
            state, (one, other, last), (now, then) = carry
            return _group(state, now, one, other + i.astype(np.uint32) + 1), (other, last, one), (then, now)

        turned = keys[1], keys[2], keys[0]
        return jax.lax.fori_loop(0, 5, group, (state, turned, (*map(jnp.asarray, ROTATIONS),)))[0]
    for i in range(5):
        state = _group(state, ROTATIONS[i % 2], keys[(i + 1) % 3], keys[(i + 2) % 3] + np.uint32(i + 1))
    return state


def _group(state: Words, rotations: Any, one: jax.Array, other: jax.Array) -> Words:
    """Four rounds, after which words of the key are added."""
    first, second = state
    for rotation in rotations:
        first = first + second
        second = first ^ ((second << rotation) | (second >> (np.uint32(32) - rotation)))
    return first + one, second + other
