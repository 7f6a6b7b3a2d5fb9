"""The study file: arms of one experiment, and the runs that they amount to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from shoal.core.errors import BadField, BadInput, unknown
from shoal.core.schema import build, convert
from shoal.core.yaml_text import plain, read_yaml, write_yaml
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import blame, from_dict, text_of
from shoal.experiment.resolve import Resolved, resolve
from shoal.study.sequences import MOST, Sequence, sequence_of

FORBIDDEN = ("seed", "run_dir", "exchange")  # the study itself sets them
OWN = ("replay", "halving", "ask")  # fields of an arm that no experiment has, of which it has one at most
ALIKE = 0.01  # budgets that differ by less count as equal: intervals are whole rollouts


@dataclass(frozen=True)
class Study:
    """Arms of one experiment, each run with the same seeds."""

    base: dict[str, Any] = field(default_factory=dict)
    """fields of an experiment that all arms share"""
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    """by name, the fields in which each arm differs; `replay: ARM` trains anew with the schedule that a run of that arm
    found, on seeds that nobody used; `halving: FACTOR` stops weak members for the sake of the others; `ask: {optimiser:
    module:name, runs: NUMBER}` trains single members with what an optimiser asks for"""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """by name, the fields of several tasks, on each of which every arm is run, and `scale: [LOW, HIGH]`: the returns that
    count as 0 and 1"""
    seeds: int = 5
    """runs of each arm: seeds 0, 1, 2, ..."""
    unequal: bool = False
    """arms may train for different numbers of steps"""


@dataclass(frozen=True, eq=False)
class Trial:
    """One run of a study.

    experiment: of an arm that replays, the one that found the schedule, with this arm's population
    replays: the arm whose run with the same seed has the schedule to follow
    sequence: how several runs share its budget, where it is not one
    """

    task: str
    arm: str
    seed: int
    experiment: Experiment
    replays: str | None
    sequence: Sequence | None

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the others."""
        return self.task, self.arm, self.seed

    @property
    def place(self) -> Path:
        """Where its run lies, within the study's directory."""
        return place(self.task, self.arm, self.seed)


def place(task: str, arm: str, seed: int) -> Path:
    """Where a run lies, within the study's directory."""
    return Path("runs", *([task] if task else []), arm, str(seed))


def read(path: Path) -> Study:
    """Read a study file. Raises BadInput."""
    text = text_of(path)
    with blame(path):
        values = read_yaml(text) or {}
        if isinstance(values, dict) and "arms" not in values and "env" in values:
            raise BadField("env", "this is one experiment, not a study of arms", "give the file to shoal train")
        study: Study = build(Study, values, "")
        check(study)
    return study


def dump(study: Study) -> str:
    """The study as YAML."""
    return write_yaml(plain({f.name: getattr(study, f.name) for f in fields(study)}))


def check(study: Study) -> None:
    """Raise BadInput for what is wrong whatever the environments and agents."""
    if not study.arms:
        raise BadField("arms", "a study compares arms: name some", "such as arms: {pbt: {}, control: {method: seeds}}")
    if not 1 <= study.seeds <= MOST:
        raise BadField("seeds", f"must be 1 to {MOST:,}", value=study.seeds)
    for kind, entries in (("arms", study.arms), ("tasks", study.tasks)):
        for name in entries:
            if not name or name in (".", "..") or "/" in name or "\0" in name:
                raise BadField(kind, "is a folder's name: no /", name=name)
    for prefix, entry in _entries(study):
        for name in FORBIDDEN:
            if name in entry:
                raise BadField(f"{prefix}.{name}", "the study sets it for each run")
    for arm, changes in study.arms.items():
        if len(several := [name for name in OWN if name in changes]) > 1:
            raise BadField(f"arms.{arm}", f"has {' and '.join(several)}", "an arm has one of them at most")
        with _of_arm(arm):
            sequence = sequence_of(changes)
        if sequence is not None and "method" in changes:
            raise BadField(f"arms.{arm}.method", "its members learn alone", "leave it out")
        other = convert(str | None, changes.get("replay"), f"arms.{arm}.replay")
        if other is not None and other not in study.arms:
            raise unknown(f"arms.{arm}.replay", other, study.arms)
        if other is not None and any(name in study.arms[other] for name in OWN):
            problem = f"must name another arm, which has none of {', '.join(OWN)}"
            raise BadField(f"arms.{arm}.replay", problem, value=f"{other!r}")
        if other is not None and set(changes) - {"replay", "population"}:
            problem = "an arm that replays is trained as the other was, so that only its population can differ"
            raise BadField(f"arms.{arm}", problem)
    for task in study.tasks:
        scale_of(study, task)


def _entries(study: Study) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "base", study.base
    for kind, entries in (("arms", study.arms), ("tasks", study.tasks)):
        yield from ((f"{kind}.{name}", entry) for name, entry in entries.items())


def scale_of(study: Study, task: str) -> tuple[float, float]:
    """The returns of a task that count as 0 and 1. Raises BadInput."""
    if not task:
        return 0.0, 1.0
    given = study.tasks[task].get("scale")
    if given is None and len(study.tasks) == 1:
        return 0.0, 1.0
    try:
        low, high = (float(x) for x in given)  # type: ignore[union-attr]
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        problem = "write scale: [LOW, HIGH], the returns that count as 0 and 1, so that tasks can be put together"
        raise BadField(f"tasks.{task}.scale", problem, value=given)
    return low, high


def trials(study: Study) -> list[Trial]:
    """All runs: those of the first seed first, so that there is soon something to compare. Raises BadInput."""
    made = []
    for seed in range(study.seeds):
        for task in study.tasks or [""]:
            for arm, changes in study.arms.items():
                experiment = replace(experiment_of(study, task, arm), seed=seed)
                made.append(Trial(task, arm, seed, experiment, changes.get("replay"), sequence_of(changes)))
    return made


def experiment_of(study: Study, task: str, arm: str) -> Experiment:
    """The experiment of an arm; of one that replays, see `Trial`. Raises BadInput."""
    values = dict(study.base)
    places = [("base", study.base)]
    if task:
        places.append((f"tasks.{task}", {k: v for k, v in study.tasks[task].items() if k != "scale"}))
    arms = [other for other in (study.arms[arm].get("replay"), arm) if other]
    places += [(f"arms.{name}", {k: v for k, v in study.arms[name].items() if k not in OWN}) for name in arms]
    for prefix, changes in places:
        values = _merged(values, changes)
        try:
            experiment = from_dict(values)
        except BadField as error:
            raise error.within(prefix) from error
    return experiment


def _merged(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with changes; those of a mapping (config, hyper, fitness, ...) one by one, a method as a whole."""
    made = dict(values)
    for name, value in changes.items():
        together = isinstance(value, dict) and isinstance(made.get(name), dict) and name not in ("method", "space")
        made[name] = made[name] | value if together else value
    return made


def budgets(study: Study) -> dict[tuple[str, str], int | None]:
    """Training steps of all members of a run, by task and arm; None where whole episodes make an interval.

    Raises BadInput, which names the arm, where one cannot be trained, or where arms of a task have unlike budgets.
    """
    found: dict[tuple[str, str], int | None] = {}
    for task in study.tasks or [""]:
        for arm, changes in study.arms.items():
            experiment, sequence = experiment_of(study, task, arm), sequence_of(changes)
            with _of_arm(arm):
                parts = [experiment] if sequence is None else sequence.parts(experiment)
                alike = groupby(replace(part, seed=experiment.seed) for part in parts)
                found[task, arm] = _sum((_steps(resolve(part)), len(list(same))) for part, same in alike)
        told = {arm: steps for (t, arm), steps in found.items() if t == task}
        known = [steps for steps in told.values() if steps is not None]
        if study.unequal or (len(known) == len(told) and max(known) <= min(known) * (1 + ALIKE)):
            continue
        steps = ", ".join(f"{arm} {'by episodes' if n is None else f'{n:,}'}" for arm, n in told.items())
        raise BadField("arms", f"they do not train for equally many steps ({steps})", "mend it, or write unequal: true")
    return found


def _sum(costs: Iterable[tuple[int | None, int]]) -> int | None:
    """Of steps, each so many times; None where one is unknown."""
    total: int | None = 0
    for steps, times in costs:
        total = None if steps is None or total is None else total + steps * times
    return total


def _steps(resolved: Resolved) -> int | None:
    resolved.kind.close()
    e = resolved.experiment
    return None if resolved.steps is None else resolved.steps * e.generations * e.population


@contextmanager
def _of_arm(arm: str) -> Iterator[None]:
    """Errors inside name the arm."""
    try:
        yield
    except BadField as error:
        raise error.within(f"arms.{arm}") from error
    except BadInput as error:
        raise BadInput(f"arms.{arm}: {error}") from error
