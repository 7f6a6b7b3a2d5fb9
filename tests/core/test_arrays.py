"""Trees of arrays as bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from shoal.core.arrays import Named, arrays_in, pack, unpack, within
from shoal.core.atomic import Damaged


class Pair(NamedTuple):
    one: Any
    other: Any


def test_leaves_are_named_by_their_places() -> None:
    tree = {"a": Pair(np.zeros(2), [np.ones(1), {"deep": np.arange(3)}]), "b": ()}
    arrays = arrays_in(pack(tree))
    assert sorted(arrays) == ["a/one", "a/other/0", "a/other/1/deep"]
    assert sorted(within(arrays, "a/other")) == ["0", "1/deep"] and within(arrays, "a/o") == {}


@pytest.mark.parametrize("name", ["w", "a/b", "layer.0 weight", "['x']", "é", ""])
def test_arrays_whose_names_are_not_known_come_back_under_them(name: str) -> None:
    """Those that trainers give: the state of a member, as it travels and as it is saved."""
    sent = {name: np.arange(6.0).reshape(2, 3).T, "count": np.array(3)}, {"replay": np.zeros((0, 2), np.uint8)}
    arrived = unpack(pack(sent), (Named(), Named()))
    for part, other in zip(sent, arrived, strict=True):
        assert part.keys() == other.keys()
        for key, x in part.items():
            assert other[key].shape == x.shape and other[key].dtype == x.dtype and np.array_equal(other[key], x)


@pytest.mark.parametrize(
    ("like", "said"),
    [
        ({"a": jnp.zeros(3)}, "a is float32 \\[2\\] there, and float32 \\[3\\] in this run"),
        ({"b": jnp.zeros(2)}, "b is missing there"),
        ({}, "a is there, and not in this run"),
    ],
)
def test_what_does_not_fit_is_named(like: Any, said: str) -> None:
    with pytest.raises(Damaged, match=said):
        unpack(pack({"a": np.zeros(2, np.float32)}), like)


@pytest.mark.parametrize("cut", [0, 7, 60])
def test_bytes_that_are_no_arrays(cut: int) -> None:
    with pytest.raises(Damaged, match="its data cannot be read"):
        unpack(pack({"a": np.zeros(8)})[:cut], {"a": np.zeros(8)})
