"""What the members of a run begin with, where it goes on from another one: `start` of the experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.core.atomic import Damaged
from shoal.core.errors import BadField, BadInput
from shoal.core.types import PyTree
from shoal.experiment.experiment import of_run
from shoal.experiment.resolve import Resolved
from shoal.run import checkpoint
from shoal.run.members import Arrays, as_tree, read_members


class Origin(NamedTuple):
    """What N members begin with.

    learned: leaves [N, ...]; hyper: float32 [N] each, of those that both runs tune
    run, generation, uid [N]: whose it was, and when
    """

    learned: PyTree
    hyper: Arrays
    run: str
    generation: int
    uid: list[int]

    def about(self, first: int) -> dict[str, Any]:
        """What start.json says; `first`: the uid of the first member."""
        members = [{"uid": first + i, "parent": parent} for i, parent in enumerate(self.uid)]
        return {"run": self.run, "generation": self.generation, "members": members}


def read_origin(resolved: Resolved) -> Origin | None:
    """What an experiment's members begin with, if it says so. Raises BadInput where there is nothing that fits."""
    e = resolved.experiment
    if e.start is None:
        return None
    path = Path(e.start)
    try:
        if (path / "experiment.yaml").is_file():
            return _population(resolved, path)
        if (path / checkpoint.MANIFEST).is_file():
            return _champion(resolved, path)
    except (Damaged, BadInput) as error:
        raise error if isinstance(error, BadField) else BadField("start", str(error), value=e.start) from error
    raise BadField("start", "there is no run, and no champion of one", "write RUN or RUN/champion", value=e.start)


def _population(resolved: Resolved, run: Path) -> Origin:
    """Each member begins where the one in its place has ended, with its hyperparameters."""
    e, earlier = resolved.experiment, of_run(run)
    if earlier.population != e.population:
        problem = f"{run} has a population of {earlier.population}, and this one is of {e.population}"
        raise BadField("start", problem, f"take the same, or write {run / 'champion'}, which fits all")
    saved = read_members(run)
    hyper = resolved.nearest({name: x for name, x in saved.hyper.items() if name in (earlier.space or {})})
    learned = as_tree(saved.learned, _like(resolved), axes=1)
    return Origin(learned, hyper, str(run), saved.generation, saved.uid)


def _champion(resolved: Resolved, folder: Path) -> Origin:
    """All members begin with what it had learned; their hyperparameters differ, as those of new members do."""
    arrays, manifest = checkpoint.read_arrays(folder)
    n, learned = resolved.experiment.population, as_tree(arrays, _like(resolved), axes=0)
    uid, generation = manifest.get("uid"), manifest.get("generation")
    if type(uid) is not int or type(generation) is not int:
        raise Damaged(f"{folder}: this is no champion")
    every = jax.tree.map(lambda x: np.broadcast_to(x, (n, *x.shape)), learned)
    return Origin(every, {}, str(folder), generation, [uid] * n)


def _like(resolved: Resolved) -> PyTree:
    """The shapes and types of what a member of this run learns."""
    agent = resolved.agent
    return jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper)).learned
