"""What lies where a run of a study belongs: a study goes on with its own runs, and with no other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from shoal.core.errors import BadInput
from shoal.core.yaml_text import read_yaml
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import differences, dump, from_dict, of_run
from shoal.experiment.resolve import resolve

FREE = ("run_dir", "checkpoint", "processes")  # fields on which nothing depends that a run comes to
ADVICE = "move it away, or name a free place with --workspace"


class NotOurs(BadInput):
    """What lies there is not the run that the study would make."""


def begun(run: Path, wanted: Experiment) -> bool:
    """Whether a run has begun in its place. Raises NotOurs where it is of another experiment than is wanted there."""
    if not (run / "experiment.yaml").is_file():
        if (run / "result.json").exists():
            raise NotOurs(f"{run} holds a result and no experiment, which no run of the study leaves; {ADVICE}")
        return False
    found = of_run(run)
    known = _resolved(dump(replace(wanted, seed=0, start=None, run_dir=None)))
    wanted = replace(known, seed=wanted.seed, start=_end(wanted.start))
    differing = differences(wanted, replace(found, start=_end(found.start)))
    if names := [name for name in differing if name.partition(".")[0] not in FREE]:
        problem = f"{run} is another run than the study would make there, as it differs in {', '.join(names)}"
        raise NotOurs(f"{problem}; {ADVICE}")
    return True


@cache
def _resolved(text: str) -> Experiment:
    """An experiment with all its defaults, as the file of its run has it."""
    resolved = resolve(from_dict(read_yaml(text)))
    resolved.kind.close()
    return resolved.experiment


def _end(start: str | None) -> str | None:
    """ARM/SEED/NUMBER of a run of the study that another begins with: seen from here the study may have another path."""
    return None if start is None else "/".join(Path(start).parts[-3:])
