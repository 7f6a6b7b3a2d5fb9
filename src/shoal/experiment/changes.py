"""Changes of an experiment while its run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.core.errors import BadField
from shoal.core.user_code import OBJECT
from shoal.core.yaml_text import plain
from shoal.experiment.experiment import CHANGEABLE, Experiment
from shoal.experiment.files import differing, of_run, to_dict, with_fields
from shoal.experiment.trust import check_code

# Budgets, the state of methods, and the bits of members that train together are those of so many members.
MORE = "start a new one with `shoal train --init-from RUN --population {}`: extra members are children of the fittest"


def going_on(place: Path, trust_code: bool, given: Mapping[str, Any]) -> Experiment:
    """The experiment of a run that goes on with these fields: what they leave out stays as the run has it.

    Raises BadField for what would make it another run, but for objects, which its file cannot hold, and which are given
    again; and where the run names code and is not trusted.
    """
    run = of_run(place)
    made = with_fields(run, given)
    check_changes(run, made, objects=True)
    if not trust_code:
        check_code(made, given)
    return made


def check_changes(run: Experiment, now: Experiment, objects: bool = False) -> None:
    """Raise BadField about the first field that is not as the run has it and may not change. objects: but those that its
    file could not name."""
    for path, old, new in differing(plain(to_dict(run)), plain(to_dict(now))):
        if path not in CHANGEABLE and not (objects and _again(old, new)):
            advice = MORE.format(new) if path == "population" else f"may change: {', '.join(CHANGEABLE)}"
            raise BadField(path, "cannot change in a resumed run", advice)


def _again(old: Any, new: Any) -> bool:
    """True where a value takes the place of an object, or is one of that name."""
    (module, _, name), (here, _, other) = (str(x).partition(":") for x in (old, new))
    return OBJECT in (module, here) and (module == OBJECT or name.rpartition(":")[2] == other)
