"""Warm start: the weights and hyperparameters that a run takes from another one (`init_from`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.core import run_files
from shoal.core.arrays import Arrays, Named, as_tree
from shoal.core.errors import BadField, BadInput
from shoal.core.types import PyTree
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import of_run
from shoal.experiment.plan import Plan
from shoal.experiment.trust import untrusted
from shoal.run import checkpoint
from shoal.run.champion import champion_of_manifest
from shoal.run.members import read_members


class WarmStart(NamedTuple):
    """The beginning of N members.

    learned: of each, as the first part of a `snapshot`
    hyper: float32 [K] each, of those that both runs tune, and of the first K members, which go on
    run, generation, uid [N]: whose it was, and when; None of a file of another program, which is then the `run`
    """

    learned: list[PyTree]
    hyper: Arrays
    run: str
    generation: int | None
    uid: list[int | None]

    def manifest(self, first: int) -> dict[str, Any]:
        """Return the content of init_from.json; `first`: the uid of the first member."""
        members = [{"uid": first + i, "parent": parent} for i, parent in enumerate(self.uid)]
        return {"run": self.run, "generation": self.generation, "members": members}


def read_warm_start(plan: Plan, trusted: bool = True) -> WarmStart | None:
    """Read what `init_from` of an experiment names, if it is set. Raises BadInput where there is nothing that fits.

    trusted: the experiment is the user's own, so that a file which it names may be loaded, whatever that runs
    """
    e = plan.experiment
    if e.init_from is None:
        return None
    path = Path(e.init_from)
    try:
        for place, begin in ((run_files.EXPERIMENT, _population), (checkpoint.MANIFEST, _champion)):
            if (path / place).is_file():
                _check_levels(e)
                return begin(plan, path)
        if path.is_file() and (load := plan.kind.policy_factory.load) is not None:
            if not trusted:
                raise untrusted("init_from", e.init_from, "a file that may hold code")
            return WarmStart([load(path)] * e.population, {}, str(path), None, [None] * e.population)
    except BadInput as error:
        raise error if isinstance(error, BadField) else BadField("init_from", str(error), value=e.init_from) from error
    advice = "write RUN or RUN/champion, or with a trainer a file of its library"
    raise BadField("init_from", "there is no run, and no champion of one", advice, value=e.init_from)


def experiment_behind(start: str) -> Experiment:
    """The experiment of the run that `start` names, by itself or by its champion. Raises BadInput."""
    path = Path(start)
    return of_run(path if (path / run_files.EXPERIMENT).is_file() else path.parent)


def _check_levels(e: Experiment) -> None:
    """Raise BadInput where members have trained on levels that are to measure them here, or where they were chosen by
    levels that are to test the champion: in the run that they come from, or in those before it that are still there."""
    start, here = e.init_from, {} if e.levels is None else e.levels.spans()
    while here and start is not None:
        try:
            before = experiment_behind(start)
        except BadInput:
            if start == e.init_from:
                raise
            return
        there = {} if before.levels is None else before.levels.spans()
        for name, its, what in (
            ("validation", "train", "trained on"),
            ("test", "train", "trained on"),
            ("test", "validation", "measured its members on"),
        ):
            if there and here[name].meets(there[its]):
                problem = f"has levels that {start} {what}, {list(there[its])}"
                raise BadField(f"levels.{name}", problem, "choose others", value=list(here[name]))
        start = before.init_from


def _population(plan: Plan, run: Path) -> WarmStart:
    """Each member begins where the one in its place has ended, with its hyperparameters; of more members, the fittest.

    Those beyond are children of the fittest, who take turns, with hyperparameters as new members have them.
    """
    e, earlier = plan.experiment, of_run(run)
    if plan.kind.sampled:
        problem = f"method {e.method_name} samples its members around a mean, which begins as one policy"
        raise BadField("init_from", problem, f"write {run / 'champion'}", value=e.init_from)
    champion = run / "champion"
    if not (run / "checkpoints").exists() and (champion / checkpoint.MANIFEST).is_file():  # as `Champion.save` has it
        problem = "has a champion, and no checkpoint of its members"
        raise BadField("init_from", problem, f"write {champion}", value=e.init_from)
    saved = read_members(run)
    sound = np.isfinite(saved.fitness)
    order = np.argsort(-np.where(sound, saved.fitness, -np.inf), kind="stable")
    rows = np.sort(order[: e.population])
    hyper = plan.nearest({name: x[rows] for name, x in saved.hyper.items() if name in (earlier.space or {})})
    rows = np.append(rows, np.resize(order[: max(1, sound.sum())], e.population - len(rows)))
    learned = _fitting(plan, run, [saved.learned[row] for row in rows])
    return WarmStart(learned, hyper, str(run), saved.generation, [saved.uid[row] for row in rows])


def _champion(plan: Plan, folder: Path) -> WarmStart:
    """All members, or the mean, begin with what it had learned; hyperparameters differ, as those of new members do."""
    arrays, manifest = checkpoint.read_arrays(folder, folder)
    best = champion_of_manifest(manifest, f"{folder}: ")
    n, (learned,) = plan.experiment.population, _fitting(plan, folder.parent, [arrays])
    return WarmStart([learned] * n, {}, str(folder), best.generation, [best.uid] * n)


def _fitting(plan: Plan, run: Path, learned: list[Arrays]) -> list[PyTree]:
    """Weights of members of another run, in the structure of this one. Raises Damaged where it does not fit, and
    BadInput where trainers differ; what a trainer's arrays must be, it knows itself."""
    e, like = plan.experiment, plan.kind.policy_factory.learned
    if isinstance(like, Named) and (there := of_run(run).agent_name) != e.agent_name:
        raise BadField("init_from", f"{there} has learned there, and {e.agent_name} learns here", value=e.init_from)
    return [as_tree(arrays, like) for arrays in learned]
