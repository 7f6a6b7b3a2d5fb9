"""Serialisation of trees of arrays: a safetensors file, in which each leaf is named by its place in the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shoal.core.atomic import Damaged
from shoal.core.types import PyTree

Arrays = dict[str, np.ndarray]


class Named:
    """Stand-in for a tree of arrays whose names, shapes and types are not known beforehand."""


def pack(tree: PyTree) -> bytes:
    """Return all leaves of a tree, with random keys as raw numbers."""
    return save(dict(_storable(path, x) for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]))


def arrays_in(data: bytes) -> Arrays:
    """Unpack bytes of `pack` to arrays, by the names of their places. Raises Damaged."""
    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise Damaged(f"its data cannot be read ({error})") from error


def unpack(data: bytes, like: PyTree) -> PyTree:
    """Unpack bytes of `pack` to a tree; see `as_tree`."""
    return as_tree(arrays_in(data), like)


def as_tree(arrays: Mapping[str, np.ndarray], like: PyTree) -> PyTree:
    """Build a tree of the structure, shapes and dtypes of `like` from all the arrays, by the names of their places.

    Raises Damaged for the first that differs.
    """
    left = dict(arrays)

    def fit(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, Named):
            place = _place(path)
            inside = [name for name in left if name.startswith(place)]
            return {name.removeprefix(place): left.pop(name) for name in inside}
        expected = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
        dtype = np.dtype(expected.dtype)
        name = _name(path, dtype)
        found = left.pop(name, None)
        if found is not None and dtype.kind == "V":
            found = found.view(dtype)
        there = "missing" if found is None else f"{found.dtype} {list(found.shape)}"
        here = f"{dtype} {list(expected.shape)}"
        if found is None or there != here:
            raise Damaged(f"{name} is {there} there, and {here} in this run")
        return jax.random.wrap_key_data(jnp.asarray(found)) if is_key(leaf) else found

    tree = jax.tree_util.tree_map_with_path(fit, like)
    if left:
        raise Damaged(f"{min(left)} is there, and not in this run")
    return tree


def within(arrays: Arrays, place: str) -> Arrays:
    """Select the arrays at a place of a tree, by their names there."""
    return {name.removeprefix(f"{place}/"): x for name, x in arrays.items() if name.startswith(f"{place}/")}


def is_key(leaf: Any) -> bool:
    """True where a leaf is an array of random keys."""
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _storable(path: Any, leaf: Any) -> tuple[str, np.ndarray]:
    """A name, and a contiguous array of a dtype that safetensors reads back: bfloat16 and its kin as integers."""
    x = np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
    x, name = np.ascontiguousarray(x).reshape(x.shape), _name(path, x.dtype)
    return name, x.view(f"u{x.itemsize}") if x.dtype.kind == "V" else x


def _name(path: Any, dtype: np.dtype) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/") + (f" {dtype}" if dtype.kind == "V" else "")


def _place(path: Any) -> str:
    """Prefix of the names of the arrays at a path."""
    return f"{_name(path, np.dtype(bool))}/" if path else ""
