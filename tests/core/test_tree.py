"""Helpers for leaves with a leading member axis."""

import jax.numpy as jnp
import numpy as np

from shoal.core import tree

MEMBERS = {"a": jnp.arange(6, dtype=jnp.float32).reshape(3, 2), "b": (jnp.int32([7, 8, 9]),)}


def test_take():
    two = tree.take(MEMBERS, jnp.int32([2, 0]))
    np.testing.assert_array_equal(two["a"], [[4, 5], [0, 1]])
    np.testing.assert_array_equal(two["b"][0], [9, 7])
    one = tree.take(MEMBERS, 1)
    np.testing.assert_array_equal(one["a"], [2, 3])
    assert one["b"][0].shape == ()


def test_where():
    other = {"a": -jnp.ones((3, 2)), "b": (jnp.int32([0, 0, 0]),)}
    chosen = tree.where(jnp.array([True, False, True]), MEMBERS, other)
    np.testing.assert_array_equal(chosen["a"], [[0, 1], [-1, -1], [4, 5]])
    np.testing.assert_array_equal(chosen["b"][0], [7, 0, 9])


def test_where_with_two_leading_axes():
    yes, no = jnp.ones((2, 2, 3)), jnp.zeros((2, 2, 3))
    chosen = tree.where(jnp.array([[True, False], [False, False]]), yes, no)
    np.testing.assert_array_equal(chosen.sum(-1), [[3, 0], [0, 0]])


def test_finite():
    members = {"w": jnp.float32([[1, 2], [jnp.nan, 0], [1, jnp.inf], [0, 0]]), "n": jnp.int32([1, 2, 3, 4])}
    members["b"] = jnp.float32([0, 0, 0, -jnp.inf])
    np.testing.assert_array_equal(tree.finite(members), [True, False, False, False])


def test_size_in_bytes():
    assert tree.size_in_bytes(MEMBERS) == 6 * 4 + 3 * 4
