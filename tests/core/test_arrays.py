"""Trees of arrays as bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy
from support.messages import Said
from support.tiny import same

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


DTYPES = st.sampled_from(["?", "i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]).map(np.dtype)
ARRAYS = numpy.arrays(DTYPES, numpy.array_shapes(min_dims=0, min_side=0, max_side=3))


@given(st.dictionaries(st.text(), ARRAYS), st.dictionaries(st.text(), ARRAYS))
@example({"a/b": np.arange(6.0).reshape(2, 3).T, "['x']": np.array(3)}, {"": np.zeros((0, 2), np.uint8)})
def test_arrays_whose_names_are_not_known_come_back_under_them(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Those that trainers give: the state of a member, as it travels and as it is saved."""
    arrived = unpack(pack((one, other)), (Named(), Named()))
    for part, back in zip((one, other), arrived, strict=True):
        assert part.keys() == back.keys() and same([part[name] for name in part], [back[name] for name in part])
    assert same(unpack(pack(list(one.values())), list(one.values())), list(one.values()))


@pytest.mark.parametrize("like", [{"a": jnp.zeros(3)}, {"b": jnp.zeros(2)}, {}], ids=["other", "missing", "more"])
def test_what_does_not_fit_is_named(like: Any, said: Said) -> None:
    with pytest.raises(Damaged) as error:
        unpack(pack({"a": np.zeros(2, np.float32)}), like)
    said(error.value)


@pytest.mark.parametrize("cut", [0, 7, 60])
def test_bytes_that_are_no_arrays(cut: int) -> None:
    with pytest.raises(Damaged, match="its data cannot be read"):
        unpack(pack({"a": np.zeros(8)})[:cut], {"a": np.zeros(8)})
