"""The study file: arms of one experiment, and the runs that they amount to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

from shoal.core.atomic import read_named
from shoal.core.errors import BadField, error_context, unknown
from shoal.core.schema import as_given, build, convert
from shoal.core.yaml_text import read_yaml, write_yaml
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import attribute_errors, from_dict, text_of, to_dict
from shoal.experiment.plan import make_closed_plan
from shoal.study.sequences import MOST, Tune

FORBIDDEN = ("seed", "run_dir", "exchange")  # the study itself sets them
OWN = ("replay", "tune")  # fields of an arm that no experiment has, of which it has one at most
ALIKE = 0.01  # budgets that differ by less count as equal: intervals are whole rollouts


class RunKey(NamedTuple):
    """The key of a run of a study. task: "" where the study states none."""

    task: str
    arm: str
    seed: int

    @property
    def parts(self) -> list[str]:
        """The parts that there are, as text."""
        return [*filter(None, map(str, self))]

    @property
    def title(self) -> str:
        """Name of the run among others: its task, arm and seed."""
        return ", ".join([*self.parts[:-1], f"seed {self.seed}"])

    @property
    def place(self) -> Path:
        """The place of the run, within the study's directory."""
        return Path("runs", *self.parts)

    @property
    def lease(self) -> Path:
        """The lease, within the study's directory, of the process that does the run. In folders, as the run itself: joined
        by any character, two keys could make one name."""
        return Path("leases", *self.parts)

    @property
    def failure(self) -> Path:
        """The file, within the study's directory, that says why the run has failed."""
        return Path("failures", *self.parts).with_suffix(".txt")


@dataclass(frozen=True)
class Study:
    """Arms of one experiment, each run with the same seeds."""

    base: dict[str, Any] = field(default_factory=dict)
    """fields of an experiment that all arms share"""
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    """by name, the fields in which each arm differs; `replay: ARM` trains anew with the schedule that a run of that arm
    found, on seeds that nobody used; `tune: {optimizer: module:name, trials: NUMBER}` trains single members with what an
    optimiser asks for"""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """by name, the fields of several tasks, on each of which every arm is run, and `scale: [LOW, HIGH]`: the returns that
    count as 0 and 1"""
    seeds: int = 5
    """runs of each arm: seeds 0, 1, 2, ..."""
    interim_analyses: list[int] = field(default_factory=list)
    """numbers of seeds, `seeds` the last, after which arms are compared; the study ends at the first at which all pairs are
    significantly different"""
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """the pairs of arms that are compared; by default all"""
    unequal_steps: bool = False
    """arms may train for different numbers of steps"""

    @property
    def all_tasks(self) -> list[str]:
        """The names of the tasks; one without a name where the study states none."""
        return list(self.tasks) or [""]

    def runs(self, task: str, arm: str) -> list[RunKey]:
        """The runs of an arm on a task, by seed."""
        return [RunKey(task, arm, seed) for seed in range(self.seeds)]

    def fields(self, task: str) -> dict[str, Any]:
        """The fields of an experiment that a task sets; none where the study states no task."""
        return {name: value for name, value in self.tasks.get(task, {}).items() if name != "scale"}

    def scale(self, task: str) -> tuple[float, float]:
        """The returns of a task that count as 0 and 1. Raises BadInput."""
        given = self.tasks.get(task, {}).get("scale")
        if given is None and len(self.tasks) < 2:
            return 0.0, 1.0
        try:
            low, high = (float(x) for x in given)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            low = high = 0.0
        if isinstance(given, str) or not -math.inf < low < high < math.inf:
            problem = "write scale: [LOW, HIGH], the returns that count as 0 and 1, so that tasks can be put together"
            raise BadField(f"tasks.{task}.scale", problem, value=given)
        return low, high


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    experiment: of an arm that replays, the one that found the schedule, with this arm's population
    replays: the run that has the schedule to follow
    sequence: how several runs share its budget, where it is not one
    """

    key: RunKey
    experiment: Experiment
    replays: RunKey | None
    sequence: Tune | None


def read(path: Path, read_bytes: Callable[[Path], bytes] = read_named) -> Study:
    """Read a study file, as one that a user has named. Raises BadInput."""
    text = text_of(path, read_bytes)
    with attribute_errors(path):
        values = read_yaml(text) or {}
        if isinstance(values, dict) and "arms" not in values and "env" in values:
            raise BadField("env", "this is one experiment, not a study of arms", "give the file to shoal train")
        study: Study = build(Study, values, "")
        _check(study)
    return study


def dump(study: Study) -> str:
    """The study as YAML."""
    return write_yaml(as_given(study))


def _check(study: Study) -> None:
    """Raise BadInput for what is wrong whatever the environments and agents."""
    if not study.arms:
        advice = "such as arms: {pbt: {method: pbt}, control: {method: independent}}"
        raise BadField("arms", "a study compares arms: name some", advice)
    if not 1 <= study.seeds <= MOST:
        raise BadField("seeds", f"must be 1 to {MOST:,}", value=study.seeds)
    analyses = study.interim_analyses
    if analyses and (analyses != sorted({*analyses}) or analyses[0] < 2 or analyses[-1] != study.seeds):
        problem = f"must rise from at least 2 to seeds = {study.seeds}"
        advice = "such as interim_analyses: [5, 10, 20] beside seeds: 20"
        raise BadField("interim_analyses", problem, advice, value=analyses)
    if analyses and len(study.arms) == 1:  # no pair of arms is left to differ, at the first analysis already
        raise BadField("interim_analyses", "compares arms, and there is one", "leave it out, or add an arm")
    for k, pair in enumerate(study.pairs):
        for arm in pair:
            if arm not in study.arms:
                raise unknown(f"pairs.{k}", arm, study.arms)
        if pair[0] == pair[1] or {*pair} in [{*other} for other in study.pairs[:k]]:
            raise BadField(f"pairs.{k}", "is of two arms, and named once", value=list(pair))
    entries = {"base": study.base}
    for kind, named in (("arms", study.arms), ("tasks", study.tasks)):
        for name, entry in named.items():
            if not 1 <= len(name.encode(errors="replace")) <= 255 or name in (".", "..") or "/" in name or "\0" in name:
                raise BadField(kind, "is a folder's name: no /, and at most 255 bytes", name=name)
            entries[f"{kind}.{name}"] = entry
    for prefix, entry in entries.items():
        for name in FORBIDDEN:
            if name in entry:
                raise BadField(f"{prefix}.{name}", "the study sets it for each run")
    for arm, changes in study.arms.items():
        with error_context(f"arms.{arm}"):
            _check_arm(study, changes)
    for task in study.tasks:
        study.scale(task)


def _check_arm(study: Study, changes: Mapping[str, Any]) -> None:
    """Check the changes of one arm. Raises BadInput."""
    if len(several := [name for name in OWN if name in changes]) > 1:
        raise BadField("", f"has {' and '.join(several)}", "an arm has one of them at most")
    if Tune.of(changes) is not None and "method" in changes:
        raise BadField("method", "its members learn alone", "leave it out")
    other = convert(str | None, changes.get("replay"), "replay")
    if other is None:
        return
    if other not in study.arms:
        raise unknown("replay", other, study.arms)
    if any(name in study.arms[other] for name in OWN):
        raise BadField("replay", f"must name another arm, which has none of {', '.join(OWN)}", value=f"{other!r}")
    if set(changes) - {"replay", "population"}:
        raise BadField("", "an arm that replays is trained as the other was, so that only its population can differ")


def trials(study: Study) -> list[Trial]:
    """All runs: those of the first seed first, so that there is soon something to compare. Raises BadInput."""
    arms = {(task, arm): experiment_of(study, task, arm) for task, arm in product(study.all_tasks, study.arms)}
    made = []
    for seed, ((task, arm), experiment) in product(range(study.seeds), arms.items()):
        source = study.arms[arm].get("replay")
        replays, sequence = source and RunKey(task, source, seed), Tune.of(study.arms[arm])
        made.append(Trial(RunKey(task, arm, seed), replace(experiment, seed=seed), replays, sequence))
    return made


def experiment_of(study: Study, task: str, arm: str) -> Experiment:
    """The experiment of an arm; of one that replays, see `Trial`. Raises BadInput."""
    for prefix, values in _layers(study, task, arm):
        with error_context(prefix):
            experiment = from_dict(values)
    return replace(experiment, **experiment.absolute_paths)


def fields_of(study: Study, task: str, arm: str) -> dict[str, Any]:
    """The fields of an arm's experiment, as the study file states them."""
    *_, (_, values) = _layers(study, task, arm)
    return values


def _layers(study: Study, task: str, arm: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parts of the file that make an arm's experiment, each with the fields so far."""
    changes = {"base": study.base}
    if task:
        changes[f"tasks.{task}"] = study.fields(task)
    for name in filter(None, (study.arms[arm].get("replay"), arm)):
        changes[f"arms.{name}"] = {k: v for k, v in study.arms[name].items() if k not in OWN}
    values: dict[str, Any] = {}
    for prefix, changed in changes.items():
        values = _merged(values, changed)
        yield prefix, values


def _merged(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with changes; those of a mapping (config, hyper, fitness, ...) one by one, a method as a whole."""
    made = dict(values)
    for name, value in changes.items():
        together = isinstance(value, dict) and isinstance(made.get(name), dict) and name not in ("method", "space")
        made[name] = made[name] | value if together else value
    return made


def budgets(study: Study) -> dict[tuple[str, str], float]:
    """Steps of all members of a run, by task and arm: its budget, or those of training where it has generations; NaN where
    whole episodes make an interval, or where a time limit or `stop` may end it. What is known before any run: how many
    steps evaluate members is not.

    Raises BadInput, which names the arm, where one cannot be trained, is another one again, or has an unlike budget.
    """
    found: dict[tuple[str, str], float] = {}
    for task in study.all_tasks:
        arms = {arm: _planned(study, task, arm) for arm in study.arms}
        _check_differ(task, arms)
        found |= {(task, arm): one.steps for arm, one in arms.items()}
        known = [one.steps for one in arms.values() if one.steps == one.steps]
        kinds = len({one.whole for one in arms.values()})
        if study.unequal_steps or (kinds == 1 and len(known) == len(arms) and max(known) <= min(known) * (1 + ALIKE)):
            continue
        ways = {
            arm: f"{one.steps:,}{' in all' * (one.whole and kinds > 1)}" if one.steps == one.steps else "not known"
            for arm, one in arms.items()
        }
        steps = ", ".join(f"{arm} {way}" for arm, way in ways.items())
        raise BadField(
            "arms",
            f"they train for different numbers of steps ({steps})",
            "make them equal, or write unequal_steps: true",
        )
    return found


class _Planned(NamedTuple):
    """An arm on a task. steps: see `budgets`; whole: whether they are all steps; made: what runs, in full."""

    steps: float
    whole: bool
    made: tuple[dict[str, Any], dict[str, Any]]


def _planned(study: Study, task: str, arm: str) -> _Planned:
    experiment, sequence = experiment_of(study, task, arm), Tune.of(study.arms[arm])
    with error_context(f"arms.{arm}"):  # the parts of a sequence differ in seed and budget alone
        part = experiment if sequence is None else replace(sequence.parts(experiment)[0], budget=experiment.budget)
        plan = make_closed_plan(part)
        if (source := study.arms[arm].get("replay")) is not None and not plan.method.tuned(plan.experiment.space or ()):
            raise BadField("replay", "has no schedule: nothing is tuned there", value=source)
    runs = 1 if sequence is None else sequence.trials
    each = plan.steps if plan.steps and part.time_limit is None else math.nan
    trains = each * part.generations * part.population * runs
    own = {name: study.arms[arm][name] for name in OWN if name in study.arms[arm]}
    steps, whole = (trains, False) if experiment.budget is None else (experiment.budget, True)
    steps = math.nan if part.stops_early else steps
    return _Planned(steps, whole, (own, to_dict(plan.experiment)))


def check_optimizers(study: Study) -> None:
    """Raise BadInput where an optimiser cannot be imported: its turn would come when other arms have run for hours."""
    for arm, changes in study.arms.items():
        with error_context(f"arms.{arm}"):
            if (sequence := Tune.of(changes)) is not None:
                sequence.imported()


def _check_differ(task: str, arms: dict[str, _Planned]) -> None:
    """Raise BadInput where an arm is another one again: its runs would be the same, to the last bit."""
    for one, other in combinations(arms, 2):
        if arms[one].made == arms[other].made:
            where = f" on task {task}" if task else ""
            tuned = arms[one].made[1].get("space")
            same = "without a space all members have the default hyperparameters"
            advice = "say in what they differ" if tuned else same
            raise BadField(f"arms.{other}", f"is the same as {one}{where}", advice)
