"""What the members of a run had learned at its last checkpoint, whatever program reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.core.atomic import Damaged
from shoal.core.knobs import joined
from shoal.core.types import PyTree
from shoal.core.workshop import Workshop
from shoal.run.checkpoint import Checkpoints

# Where a checkpoint has them.
LEARNED, HYPER, KNOB = "['population'].members.learned", "['population'].hyper.", "['population'].knobs['"
Arrays = dict[str, np.ndarray]


class Saved(NamedTuple):
    """N members. learned: arrays [N, ...], by their names in what each has learned; hyper: [N] each, knobs among them."""

    generation: int
    uid: list[int]
    learned: Arrays
    hyper: Arrays


def read_members(run: Path) -> Saved:
    """The members of a run, which has agents of Shoal's own. Raises BadInput, and Damaged where they are not saved."""
    checkpoints = Checkpoints(run / "checkpoints", 1, Workshop(run, "unused"))
    generation = checkpoints.newest(lambda message: None)
    first, *_ = shards = checkpoints.arrays(generation)  # named by the uid of their first member, in sizes of a shard
    names = [name for name in shards[first] if name.startswith((LEARNED, HYPER, KNOB))]
    arrays = {name: np.concatenate([x[name] for x in shards.values()]) for name in names}
    learned = {name.removeprefix(LEARNED): x for name, x in arrays.items() if name.startswith(LEARNED)}
    hyper = {name.removeprefix(HYPER): x for name, x in arrays.items() if name.startswith(HYPER)}
    knobs = {name[len(KNOB) : -2]: x for name, x in arrays.items() if name.startswith(KNOB)}
    if not learned or not hyper:
        raise Damaged(f"{run}: what its members have learned is not saved: they are drawn anew, or trainers have it")
    count = len(next(iter(learned.values())))
    start = int(first.rpartition("-")[2]) * count // len(shards)
    return Saved(generation, list(range(start, start + count)), learned, joined(hyper, knobs))


def as_tree(arrays: Arrays, like: PyTree, axes: int) -> PyTree:
    """A tree like `like`, from arrays by name with so many axes more in front. Raises Damaged for the first that differs."""
    arrays = dict(arrays)

    def fit(path: Any, leaf: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path)
        x, here = arrays.pop(name, None), f"{leaf.dtype} {list(leaf.shape)}"
        there = "missing" if x is None else f"{x.dtype} {list(x.shape[axes:])}"
        if x is None or there != here:
            raise Damaged(f"{name} is {there} there, and {here} in this run")
        return x

    tree = jax.tree_util.tree_map_with_path(fit, like)
    if arrays:
        raise Damaged(f"{min(arrays)} is there, and not in this run")
    return tree
