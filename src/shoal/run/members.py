"""What the members of a run had learned at its last checkpoint, whatever program reads it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core.arrays import Arrays, within
from shoal.core.atomic import Damaged, Staging
from shoal.run.checkpoint import Checkpoints


class Saved(NamedTuple):
    """N members. learned: of each, its arrays by their names; hyper: [N] each, knobs among them; fitness: [N], as it was
    measured last."""

    generation: int
    uid: list[int]
    learned: list[Arrays]
    hyper: Arrays
    fitness: np.ndarray


def read_members(run: Path) -> Saved:
    """The members of a run, of whatever kind. Raises BadInput, and Damaged where they are not saved."""
    checkpoints = Checkpoints(run / "checkpoints", 1, Staging(run, "unused"))
    generation, shards = checkpoints.newest_arrays()  # by name in order, all of one size
    learned: list[Arrays] = []
    for arrays in shards.values():
        count = len(arrays.get("fitness", ()))
        together, each = within(arrays, "learned"), within(arrays, "each")
        names = sorted({name.partition("/")[0] for name in each})  # by uid
        learned += [within(each, name) for name in names] or (
            [{name: x[i] for name, x in together.items()} for i in range(count if together else 0)]
        )
    names = [name for name in next(iter(shards.values())) if name.startswith("hyper/")]
    hyper = {name.removeprefix("hyper/"): _joined(shards, name) for name in names}
    fitness = _joined(shards, "fitness")
    if not hyper or len(learned) != len(fitness):
        raise Damaged(f"{run}: what its members have learned is not saved: they are drawn anew")
    start = int(next(iter(shards)).rpartition("-")[2]) * len(fitness) // len(shards)
    return Saved(generation, list(range(start, start + len(fitness))), learned, hyper, fitness)


def _joined(shards: dict[str, Arrays], name: str) -> np.ndarray:
    """What all shards have under a name, one below the other. Raises Damaged."""
    try:
        return np.concatenate([arrays[name] for arrays in shards.values()])
    except (KeyError, ValueError) as error:
        raise Damaged(f"the checkpoint does not hold {name} of every member") from error
