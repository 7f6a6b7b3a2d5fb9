"""Random bits in one piece: the bits of the paper's own library, and of JAX, without its loop."""

import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import jax
import numpy as np
import pytest

from shoal.core.threefry import APART, FEW, few_in_one_piece, threefry

DRAWN = """
import jax

def drawn():
    key = jax.random.fold_in(jax.random.key(3), 5)
    return [jax.random.bits(key, shape).ravel()[-3:] for shape in ((7, 3), (100, 50), (3000,))]

print([x.tolist() for x in jax.jit(drawn)()])
"""
# of the file kat_vectors of Random123: a counter's words, the key's, and what becomes of them
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("counter, key, bits", KNOWN)
@pytest.mark.parametrize("many", [1, FEW + 1])
def test_known_answers(counter, key, bits, many):
    found = threefry(*(jax.numpy.full(many, word, np.uint32) for word in (*key, *counter)))
    assert [np.unique(words).tolist() for words in found] == [[word] for word in bits]


def test_the_bits_of_jax():
    """Those of a process that knows nothing of ours."""
    theirs = subprocess.run([sys.executable, "-c", DRAWN], capture_output=True, text=True, check=True).stdout
    few_in_one_piece()
    with redirect_stdout(StringIO()) as ours:
        exec(DRAWN, {})
    assert ours.getvalue() == theirs and theirs.count(",") == 8


def test_no_loop_is_left():
    few_in_one_piece()

    def drawn(key):
        return jax.random.normal(jax.random.split(key)[0], (3, 2))

    text = jax.jit(drawn).lower(jax.random.key(0)).compile().as_text()
    assert "while" not in text and np.isfinite(jax.jit(drawn)(jax.random.key(0))).all()


@pytest.mark.skipif(not APART, reason="JAX 0.10 does not keep apart what it is told to")
def test_a_key_is_made_apart_from_what_it_draws():
    """With JAX 0.11 a program in which they are one kernel may be compiled for ever."""
    few_in_one_piece()

    def drawn(i):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), i), 2)
        return jax.vmap(lambda key: jax.random.uniform(key, 4))(jax.random.split(key, 4))

    text = jax.jit(jax.vmap(drawn)).lower(np.arange(2)).compile().as_text()
    rounds = [kernel.count(" shift-left(") for kernel in text.split("\n\n")]
    assert max(rounds) == 20 and sum(rounds) >= 80
