"""What the members of a run had learned at its last checkpoint, whatever program reads it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core.atomic import Damaged, Staging
from shoal.core.knobs import joined
from shoal.run.checkpoint import Checkpoints

# Where a checkpoint has them: agents of Shoal's own, then trainers.
LEARNED, HYPER, KNOB = "['population'].members.learned", "['population'].hyper.", "['population'].knobs['"
FITNESS = "['counters']['fitness']"
OF_TRAINER, HYPER_OF_TRAINERS, FITNESS_OF_TRAINERS = "['members']['{:08d}']['learned']", "['hyper']['", "['fitness']"
Arrays = dict[str, np.ndarray]


class Saved(NamedTuple):
    """N members. learned: of each, its arrays by their names; hyper: [N] each, knobs among them; fitness: [N], as it was
    measured last."""

    generation: int
    uid: list[int]
    learned: list[Arrays]
    hyper: Arrays
    fitness: np.ndarray


def read_members(run: Path) -> Saved:
    """The members of a run, whoever trains them. Raises BadInput, and Damaged where they are not saved."""
    checkpoints = Checkpoints(run / "checkpoints", 1, Staging(run, "unused"))
    generation, shards = checkpoints.newest_arrays()
    first, *_ = shards  # named by the uid of their first member, in sizes of a shard
    of_trainers = FITNESS_OF_TRAINERS in shards[first]
    fitness = FITNESS_OF_TRAINERS if of_trainers else FITNESS
    whole = (LEARNED, HYPER, KNOB, HYPER_OF_TRAINERS, fitness)  # what has an axis of members
    names = [name for name in shards[first] if name.startswith(whole)]
    arrays = {name: np.concatenate([x[name] for x in shards.values()]) for name in names}
    count = len(arrays[fitness]) if fitness in arrays else 0
    start = int(first.rpartition("-")[2]) * count // len(shards)
    uid = list(range(start, start + count))
    if of_trainers:
        every = {name: x for shard in shards.values() for name, x in shard.items()}
        learned = [_within(every, OF_TRAINER.format(u)) for u in uid]
        hyper = {name[:-2]: x for name, x in _within(arrays, HYPER_OF_TRAINERS).items()}
    else:
        together = _within(arrays, LEARNED)
        learned = [{name: x[i] for name, x in together.items()} for i in range(count)]
        knobs = {name[:-2]: x for name, x in _within(arrays, KNOB).items()}
        hyper = joined(_within(arrays, HYPER), knobs)
    if not all(learned) or not hyper:
        raise Damaged(f"{run}: what its members have learned is not saved: they are drawn anew")
    return Saved(generation, uid, learned, hyper, arrays[fitness])


def _within(arrays: Arrays, place: str) -> Arrays:
    """Those at a place of a tree, by their names there."""
    return {name.removeprefix(place): x for name, x in arrays.items() if name.startswith(place)}
