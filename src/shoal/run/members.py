"""The members of a run at its last checkpoint, for whatever program reads them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core.arrays import Arrays, within
from shoal.core.atomic import Damaged, Staging
from shoal.core.errors import BadInput
from shoal.run.checkpoint import Checkpoints


class Saved(NamedTuple):
    """N members: the arrays that each has learned, by name; `hyper` [N] each, environment parameters included; and
    the last fitness [N] of each."""

    generation: int
    uid: list[int]
    learned: list[Arrays]
    hyper: Arrays
    fitness: np.ndarray


def read_members(run: Path, generation: int | None = None) -> Saved:
    """The members of a run, of whatever kind, after a generation (counted from 0), by default that of the newest checkpoint.

    Raises BadInput where that is not kept, and Damaged where they are not saved.
    """
    checkpoints = Checkpoints(run / "checkpoints", 1, Staging(run, "unused"))
    if generation is not None and generation not in (kept := checkpoints.generations()):
        here = ", ".join(str(each + 1) for each in kept) or "none"
        problem = f"has no checkpoint of generation {generation + 1}, but of {here}"
        raise BadInput(f"{run} {problem}{_remedy(generation, kept)}")
    generation, shards = checkpoints.arrays(generation)  # by name in order, all of one size
    arrays = next(iter(shards.values()))
    if (uid := _of_all(shards, "uid")).dtype.kind not in "iu":
        raise Damaged(f"{run}: its checkpoint does not say which members it holds")
    hyper = {name: _of_all(shards, f"hyper/{name}") for name in within(arrays, "hyper")}
    fitness = _of_all(shards, "fitness")
    learned = [of_one for arrays in shards.values() for of_one in _learned(arrays)]
    if not hyper or not learned:
        raise Damaged(f"{run}: what its members have learned is not saved: they are sampled anew")
    if odd := [name for name, x in hyper.items() if not np.isfinite(x).all()]:
        raise Damaged(f"{run}: its checkpoint does not hold a finite {odd[0]} of every member")
    if {len(uid), len(fitness), len(learned)} != {len(x) for x in hyper.values()}:
        raise Damaged(f"{run}: its checkpoint does not say of as many members what they are and what they have learned")
    # Who asks may have the generation from a table, whose numbers are NumPy's.
    return Saved(int(generation), uid.astype(np.int64).tolist(), learned, hyper, fitness)


def _remedy(generation: int, kept: list[int]) -> str:
    """The option with which a run keeps a generation that is not among those; none for one that it has not come to."""
    if not kept or generation > kept[-1]:
        return ""
    if generation < kept[0]:
        return "; train with --set checkpoint.keep=N to keep the last N"
    return "; train with --set checkpoint.every=1 to save every generation"


def _learned(arrays: Arrays) -> list[Arrays]:
    """Learned arrays of each member of a shard. Raises Damaged."""
    if each := within(arrays, "each"):
        return [within(each, uid) for uid in sorted({name.partition("/")[0] for name in each})]
    together = within(arrays, "learned")
    counts = {len(x) if x.ndim else -1 for x in together.values()}
    if len(counts) > 1 or -1 in counts:
        raise Damaged("the checkpoint has learned weights of more members here than there")
    return [{name: x[i] for name, x in together.items()} for i in range(max(counts, default=0))]


def _of_all(shards: dict[str, Arrays], name: str) -> np.ndarray:
    """Arrays [N] of a name, of the members of all shards. Raises Damaged."""
    parts = [arrays[name] for arrays in shards.values() if name in arrays and arrays[name].ndim == 1]
    if len(parts) < len(shards):
        raise Damaged(f"the checkpoint does not hold {name} of every member")
    return np.concatenate(parts)
