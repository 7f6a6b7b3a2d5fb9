"""The kernel of behaviours against numbers by hand, and its gradient against finite differences."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from shoal.rl.diversity import JITTER, kernel, log_determinant, squared_distances


def by_hand(embeddings: np.ndarray) -> float:
    """log det K in float64, entry by entry."""
    n = len(embeddings)
    k = np.eye(n)
    for i in range(n):
        for j in range(n):
            if i != j:
                mean = sum((a - b) ** 2 for a, b in zip(embeddings[i], embeddings[j], strict=True)) / len(embeddings[i])
                k[i, j] = (1 - JITTER) * np.exp(-mean / 2)
    return float(np.linalg.slogdet(k)[1])


@jax.jit
def volume(embeddings: jax.Array) -> jax.Array:
    return log_determinant(kernel(squared_distances(embeddings)))


gradient = jax.jit(jax.grad(volume))


def test_distances():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 1.0]], np.float32)
    np.testing.assert_allclose(squared_distances(x), [[0, 0.5, 1], [0.5, 0, 2.5], [1, 2.5, 0]])


def test_two_members():
    """det [[1, r], [r, 1]] = 1 - r^2."""
    r = (1 - JITTER) * np.exp(-0.5)
    np.testing.assert_allclose(volume(np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)), np.log(1 - r**2), rtol=1e-5)


@pytest.mark.parametrize(("members", "length"), [(2, 1), (10, 20)])
def test_against_numpy(members, length):
    x = np.random.default_rng(members).uniform(-1, 1, (members, length)).astype(np.float32)
    np.testing.assert_allclose(volume(x), by_hand(x), rtol=1e-4)


@pytest.mark.parametrize("spread", [0.0, 1e-8, 1e-4, 1e-2])
def test_members_that_nearly_coincide(spread):
    """The determinant is that of the jitter, and everything stays finite."""
    x = (0.3 + spread * np.random.default_rng(0).normal(size=(6, 30))).astype(np.float32)
    value = volume(x)
    np.testing.assert_allclose(value, by_hand(x.astype(np.float64)), rtol=1e-3)
    assert np.isfinite(gradient(x)).all()
    assert float(value) >= 5 * np.log(JITTER)


@pytest.mark.parametrize("gap", [1e-4, 1e-3, 0.03, 0.1])
def test_neighbours_are_pushed_apart(gap):
    """Of three members the two that are close; and where they can be told apart, more than both from the third."""
    x = np.array([[0.0] * 20, [gap] * 20, [0.9] * 20], np.float32)
    slope = np.asarray(gradient(x))
    assert (slope[1] > slope[0]).all()
    assert gap < 0.01 or ((slope[0] < 0).all() and (slope[1] > 0).all() and (slope[2] > 0).all())


def test_long_embeddings_keep_their_gradient():
    """Of a shift of all entries at once, it does not depend on how many there are."""
    base = np.array([[-0.9], [0.1], [0.8]], np.float32)
    slope = np.asarray(gradient(np.tile(base, 2000))).sum(1, keepdims=True)
    expected = np.asarray(gradient(base))
    np.testing.assert_allclose(slope, expected, rtol=1e-3)
    assert np.abs(slope).max() > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_gradient_by_finite_differences(seed):
    x = np.random.default_rng(seed).uniform(-1, 1, (4, 6)).astype(np.float32)
    slope = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = x.astype(np.float64)
            moved[place] += step
            ends.append(by_hand(moved))
        slope[place] = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose(gradient(x), slope, rtol=2e-3, atol=1e-5)
