"""JAX's random bits on a CPU without its loop: the same bits in a third of the time, and programs that compile sooner.

JAX makes them there in a loop of five rounds of a dozen kernels each, which take longer to start than to run: a step of a
small environment draws a few numbers. In one piece the compiler fuses them into one kernel, with what is made of the bits.
"""

from __future__ import annotations

import jax
import numpy as np
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)  # of odd and of even groups of rounds
PARITY = np.uint32(0x1BD11BDA)


def in_one_piece() -> None:
    """Compile JAX's random bits without a loop from now on, on a CPU."""
    mlir.register_lowering(threefry2x32_p, mlir.lower_fun(threefry, multiple_results=True), platform="cpu")


def threefry(key: jax.Array, other: jax.Array, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 of 20 rounds: two words of a key and two of a counter, uint32 [...], make two of random bits.

    Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3, section 4.1.
    """
    keys = key, other, key ^ other ^ PARITY
    first, second = first + key, second + other
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            first = first + second
            second = first ^ ((second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation)))
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return first, second
