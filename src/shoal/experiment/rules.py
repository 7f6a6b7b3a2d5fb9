"""Rules for experiments: each combination of fields that is refused is an entry of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

from shoal.core.errors import BadField
from shoal.experiment.experiment import OF_EXCHANGE, ExchangeSettings, Experiment
from shoal.experiment.structures import choices
from shoal.members.protocol import Kind
from shoal.methods import METHODS


class Rule(NamedTuple):
    """A combination of fields that is refused.

    field: the one that is said to be wrong. broken: true where it is, called with the experiment, its method and, in
    `OF_KIND`, the kind of its members. problem, advice: both with `{e}` for the experiment
    """

    field: str
    broken: Callable[..., Any]
    problem: str
    advice: str = ""


def _beside(field: str, other: str, there: Callable[[Experiment], bool]) -> Rule:
    """A field that means something only beside another one."""
    value = attrgetter(field)
    return Rule(field, lambda e, m: value(e) != value(Experiment()) and not there(e), f"goes with {other}")


def _not_of_trainers(field: str, problem: str, advice: str = "") -> Rule:
    """A field that trainers decide for themselves."""
    value = attrgetter(field)
    return Rule(field, lambda e, m: e.external and value(e) != value(Experiment()), problem, advice)


def _exchanged(name: str) -> Callable[[Experiment], bool]:
    return lambda e: e.exchange.name == name


_worker = _exchanged("directory")


RULES = (
    Rule(
        "population",
        lambda e, m: e.auto and (e.exchange.name != "local" or e.shards is not None),
        "is measured for one process without shards",
        "write a number",
    ),
    *(_beside(f"exchange.{option}", f"exchange: {name}", _exchanged(name)) for option, name in OF_EXCHANGE.items()),
    Rule(
        "exchange",
        lambda e, m: _worker(e) and e.exchange.workspace is None,
        "needs a workspace, the directory that workers share",
        "write exchange: {{name: directory, workspace: ...}}",
    ),
    Rule(
        "method",
        lambda e, m: m.ends_members and e.divided,
        "stops members during the run, which needs one shard in one process",
        "write method: pbt",
    ),
    Rule(
        "budget",
        lambda e, m: _worker(e) and e.budget is not None,
        "workers of a directory do not know what others have spent",
        "give each its generations",
    ),
    Rule(
        "method",
        lambda e, m: choices(e) and (not (m.tunes and m.rank_based) or m.copies),
        "its members cannot have several structures, for weights are copied or shared, and config has choices",
        "write method: independent, or {{name: successive_halving, between_rungs: none}}",
    ),
    Rule(
        "config",
        lambda e, m: choices(e) and (e.divided or e.init_from is not None or e.auto),
        "choices of structures need one process, and no shards, init_from or population: auto",
    ),
    Rule(
        "run_dir",
        lambda e, m: _worker(e) and e.run_dir is not None,
        "the run of a worker lies in its workspace",
        "leave run_dir out",
    ),
    Rule(
        "fitness.source",
        lambda e, m: e.levels is not None and e.fitness.source == "training",
        "training is on the levels of train alone: write evaluation",
    ),
    _beside("fitness.levels", "levels", lambda e: e.levels is not None),
    Rule(
        "space",
        lambda e, m: e.space and not m.tunes,
        "method {e.method_name} tunes nothing",
        "give hyperparameters fixed values under hyper",
    ),
    _beside(
        "fitness.direction",
        "fitness.objective; returns are always maximised",
        lambda e: e.fitness.objective is not None,
    ),
    Rule(
        "fitness.tie_breaker",
        lambda e, m: e.fitness.tie_breaker is not None and e.fitness.source == "training",
        "is read in evaluations only",
        "write fitness.source: evaluation",
    ),
    Rule(
        "fitness.tie_breaker",
        lambda e, m: e.fitness.tie_breaker is not None and not m.rank_based,
        "breaks ties, and method {e.method_name} needs more of the fitness than its order",
        "leave it out",
    ),
    Rule(
        "fitness.source",
        lambda e, m: m.race and e.fitness.source == "training",
        "method.race lets members play evaluations: write evaluation",
    ),
    _beside("python", "trainers, such as agent: sb3:PPO", lambda e: e.external),
    _beside("processes", "trainers, such as agent: sb3:PPO", lambda e: e.external),
    Rule(
        "method",
        lambda e, m: e.external and not m.supports_external_trainers,
        "its members are agents of Shoal's own, and {e.agent} is a trainer",
        f"write {', '.join(name for name, method in METHODS.items() if method().supports_external_trainers)}",
    ),
    _not_of_trainers("fitness.deterministic", "trainers are evaluated with deterministic actions"),
    _not_of_trainers("fitness.objective", "trainers are measured by their returns"),
    _not_of_trainers("fitness.tie_breaker", "trainers are measured by their returns alone"),
    _not_of_trainers("levels", "trainers have environments of their own, with levels that Shoal cannot choose"),
    _not_of_trainers(
        "fitness.step_limit", "trainers play their own episodes, and end them where they choose", "leave it out"
    ),
)


def of_game(kind: Kind) -> bool:
    """True where the members play a game that is known as a whole."""
    return kind.compiled is not None and getattr(kind.compiled.environment, "game", None) is not None


# Those that the kind of the members decides, when every default is filled in.
OF_KIND = (
    Rule(
        "exchange",
        lambda e, m, kind: _worker(e) and kind.sampled and kind.together,
        "with method {e.method_name} members share a critic: they need one process",
    ),
    Rule(
        "fitness.source",
        lambda e, m, kind: kind.sampled and e.fitness.source == "training",
        "with method {e.method_name} members train in their evaluations alone",
    ),
    Rule(
        "fitness.source",
        lambda e, m, kind: e.fitness.exact and not of_game(kind),
        "is of games that are known as a whole, and {e.env_name} is none",
        "write evaluation",
    ),
    Rule(
        "fitness.source",
        lambda e, m, kind: not e.fitness.exact and kind.spec is not None and kind.spec.turns,
        "a member plays as both players of a game, so that it loses what it wins",
        "write exploitability, where the game is known as a whole",
    ),
    Rule(
        "fitness.tie_breaker",
        lambda e, m, kind: e.fitness.tie_breaker is not None and of_game(kind),
        "exploitability is exact: there are no ties to be broken",
    ),
    Rule(
        "levels",
        lambda e, m, kind: e.levels is not None and of_game(kind),
        "exploitability counts all that chance may do",
    ),
    Rule(
        "init_from",
        lambda e, m, kind: e.init_from is not None and kind.together and not kind.sampled,
        "with method {e.method_name} members share a critic, which would begin anew and lead them astray",
    ),
    Rule(
        "shards",
        lambda e, m, kind: e.shards > 1 and kind.together,
        "with method {e.method_name} members share a critic: it needs one shard",
    ),
    Rule(
        "population",
        lambda e, m, kind: e.population % (kind.side_by_side * e.shards),
        "method {e.method_name} perturbs in mirrored pairs",
        "take an even number of members for each shard",
    ),
)


def refuse(rules: Iterable[Rule], e: Experiment, *facts: Any) -> None:
    """Raise BadInput for the first rule that is broken."""
    for rule in rules:
        if rule.broken(e, *facts):
            value = e.method_name if rule.field == "method" else attrgetter(rule.field)(e)
            value = value.name if isinstance(value, ExchangeSettings) else value
            shown = value if isinstance(value, (str, int)) else None
            raise BadField(rule.field, rule.problem.format(e=e), rule.advice.format(e=e), value=shown)
