"""Running functions of one member for all members, where a plain `vmap` would be slow.

On a CPU members run one after another: the weights of one remain in the cache, and a branch that is not taken costs
nothing. On an accelerator they are batched. Agents call `per_member`, `repeat` and `when`, the same on every device.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from shoal.core import tree
from shoal.core.types import PyTree

AXIS = "members"  # name of the mesh axis that the devices of a program form
TILES = 4  # parts that an accelerator splits the members into, so that it can skip parts that have nothing to do


def _one_by_one() -> bool:
    return jax.default_backend() == "cpu"


def per_member(function: Callable) -> Callable:
    """Make `function(state, *arguments) -> (state, result)` fast under `vmap` on this device.

    It must not close over traced values.
    """
    return _in_turn(function) if _one_by_one() else function


def _in_turn(function: Callable) -> Callable:
    """One member after another, each state updated in place: stacking new ones would double the memory traffic."""
    function = jax.jit(function, inline=True)  # traced once: for the shapes of its results, and for the loop

    def all_members(size: int, state: PyTree, *arguments: PyTree) -> PyTree:
        shapes = jax.eval_shape(function, *tree.take((state, *arguments), 0))[1]
        results = tree.zeros(shapes, size)

        def member(i: jax.Array, all_: PyTree) -> PyTree:
            new = function(*tree.take((all_[0], *arguments), i))
            return jax.tree.map(lambda x, y: jax.lax.dynamic_update_index_in_dim(x, y, i, 0), all_, new)

        return jax.lax.fori_loop(0, size, member, (state, results))

    return _batched_by(all_members, function)


def in_parts(function: Callable, rows: int) -> Callable:
    """Split `function(state, batch) -> sums over the rows of the batch` on a CPU into parts of so many rows, or a few less.

    What a network remembers of many images for its gradient then stays in the cache, and does not fill the memory.
    """
    if not _one_by_one():
        return function

    def total(state: PyTree, batch: PyTree) -> PyTree:
        length = len(jax.tree.leaves(batch)[0])
        size = next(n for n in range(min(rows, length), 0, -1) if length % n == 0)
        parts = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), batch)
        nothing = tree.zeros(jax.eval_shape(function, state, tree.take(parts, 0)))

        def add(sums: PyTree, part: PyTree) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, sums, function(state, part)), None

        return jax.lax.scan(add, nothing, parts)[0]

    return total


def repeat(count: jax.Array, body: Callable, state: PyTree, *arguments: PyTree) -> PyTree:
    """Repeat `state = body(i, state, *arguments)` for i below `count`, which may differ between members."""

    def loop(count: jax.Array, state: PyTree, *arguments: PyTree) -> PyTree:
        return jax.lax.fori_loop(0, count, lambda i, state: body(i, state, *arguments), state)

    def all_members(size: int, count: jax.Array, state: PyTree, *arguments: PyTree) -> PyTree:
        every = jax.vmap(body, (None, 0, *[0] * len(arguments)))

        def masked(i: jax.Array, state: PyTree) -> PyTree:
            return tree.where(i < count, every(i, state, *arguments), state)

        # Repetitions that all members make need no mask, which would cost as much memory traffic as an optimiser.
        common = count.min()
        state = jax.lax.fori_loop(0, common, lambda i, state: every(i, state, *arguments), state)
        return jax.lax.fori_loop(common, count.max(), masked, state)

    return _batched_by(all_members, loop)(count, state, *arguments)


def when(due: jax.Array, function: Callable, state: PyTree, *arguments: PyTree) -> PyTree:
    """Apply `function(state, *arguments)` where `due`, else keep `state`, which costs little or nothing."""

    def choose(due: jax.Array, state: PyTree, *arguments: PyTree) -> PyTree:
        return jax.lax.cond(due, function, lambda state, *_: state, state, *arguments)

    def all_members(size: int, due: jax.Array, state: PyTree, *arguments: PyTree) -> PyTree:
        width = -(-size // TILES)
        first_due = jnp.argsort(~due)
        rows = jnp.where(jnp.arange(size) < due.sum(), first_due, size)  # row `size` is none: reads clip, writes drop
        rows = jnp.pad(rows, (0, width * TILES - size), constant_values=size)

        def tile(i: jax.Array, state: PyTree) -> PyTree:
            mine = jax.lax.dynamic_slice(rows, (i * width,), (width,))
            inputs = jax.tree.map(lambda x: x.at[mine].get(mode="clip"), (state, *arguments))
            outputs = jax.vmap(function)(*inputs)
            return jax.tree.map(lambda x, y: x.at[mine].set(y, mode="drop"), state, outputs)

        return jax.lax.fori_loop(0, -(-due.sum() // width), tile, state)

    return _batched_by(all_members, choose)(due, state, *arguments)


def spread(tree: PyTree) -> PyTree:
    """Split the first axis of every leaf over the devices, each of which holds all the data, so that each computes a part.

    Returns the tree unchanged in other programs, or where the number of devices does not divide it.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1 or mesh.manual_axes:
        return tree
    leaves = jax.tree.leaves(tree)
    if any(len(x) % mesh.size for x in leaves):
        return tree
    spec = jax.sharding.PartitionSpec(AXIS)
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, spec), tree)


def _batched_by(all_members: Callable, function: Callable) -> Callable:
    """Return `function`, replaced under `vmap` by `all_members(size, *arguments)`, whose leaves all have the member axis."""
    one = custom_vmap(function)

    @one.def_vmap
    def batched(size: int, in_batched: list, *arguments: PyTree) -> tuple[PyTree, PyTree]:
        def broadcast(there: bool, x: jax.Array) -> jax.Array:
            return x if there else jnp.broadcast_to(x, (size, *x.shape))

        result = all_members(size, *jax.tree.map(broadcast, tuple(in_batched), arguments))
        return result, jax.tree.map(lambda _: True, result)

    return one
